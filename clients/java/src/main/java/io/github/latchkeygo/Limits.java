package io.github.latchkeygo;

/** Limits of the protocol (section 11) and of this client, in bytes, numbers and milliseconds. */
final class Limits {
  static final int MAX_KEY_BYTES = 512;
  static final int MAX_KEYS = 64;
  static final int MAX_ID_BYTES = 128;
  static final int MAX_LABEL_BYTES = 256;
  static final int MAX_DECLARED = 64;
  static final int MAX_HOLDERS = 1000;
  static final int MAX_LISTED = 10_000;
  static final int MAX_REQUEST_BYTES = 65_536;

  /** What is kept free in a frame for the age of a request that is sent again. */
  static final int RESEND_ROOM = 64;

  static final int MAX_REPLY_BYTES = 1_048_576;
  static final int MAX_NESTING = 32;
  static final long MAX_INTEGER = (1L << 53) - 1;

  /** Unanswered requests of one client; a few more are kept for what it sends by itself. */
  static final int MAX_IN_FLIGHT = 10_000 - 16;

  /** Bytes that may wait to be written before requests are refused. */
  static final int MAX_UNSENT_BYTES = 16 * 1024 * 1024;

  static final int MAX_WATCHES = 1000;

  /** Callbacks that may wait for one that does not return. */
  static final int MAX_CALLBACKS = 20_000;

  /** Events that a watch keeps for a reader that is slow, unless asked otherwise. */
  static final int DEFAULT_WATCH_BUFFER = 1024;

  static final long MAX_TTL = 366L * 24 * 3600 * 1000;
  static final long MAX_HOUR = 3600 * 1000;
  static final long MIN_TTL = 100;
  static final long DEFAULT_TTL = 30_000;
  static final long DEFAULT_GRACE = 3000;
  static final long DEFAULT_CONNECT_TIMEOUT = 3000;

  /** How long a call waits for the answer to its own cancel, and close for its goodbye. */
  static final long CANCEL_WAIT = 1000;

  /** How long the release at the end of a scope may take. */
  static final long RELEASE_WAIT = 5000;

  private Limits() {}
}
