/** Limits of the protocol (section 11) and of this client, in bytes, numbers and milliseconds. */

export const MAX_KEY_BYTES = 512;
export const MAX_KEYS = 64;
export const MAX_ID_BYTES = 128;
export const MAX_LABEL_BYTES = 256;
export const MAX_DECLARED = 64;
export const MAX_HOLDERS = 1000;
export const MAX_LISTED = 10_000;

/** Bytes of a frame that a client sends, and that a server sends. */
export const MAX_REQUEST_BYTES = 65_536;
export const MAX_REPLY_BYTES = 1_048_576;
/** Bytes of a frame that are kept free for the age that a request has when it is sent again. */
export const RESEND_ROOM = 64;

/** Unanswered requests of one client; a few more are kept for what it sends by itself. */
export const MAX_IN_FLIGHT = 10_000 - 16;
/** Bytes that may wait to be written before requests are refused. */
export const MAX_UNSENT_BYTES = 16 * 1024 * 1024;
/** Watches of one client. */
export const MAX_WATCHES = 1000;
/** Events that a watch keeps for a reader that is slow, unless asked otherwise. */
export const DEFAULT_WATCH_BUFFER = 1024;

export const MAX_TTL = 366 * 24 * 3600 * 1000;
export const MAX_HOUR = 3600 * 1000;
export const MIN_TTL = 100;
export const DEFAULT_TTL = 30_000;
export const DEFAULT_GRACE = 3000;
export const DEFAULT_CONNECT_TIMEOUT = 3000;

/** How long a call waits for the answer to its own cancel, and close for its goodbye. */
export const CANCEL_WAIT = 1000;
/** How long the release at the end of `do` may take. */
export const RELEASE_WAIT = 5000;
