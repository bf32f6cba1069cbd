//! Limits of the protocol (section 11) and of this client.

use std::time::Duration;

pub(crate) const MAX_KEY_BYTES: usize = 512;
pub(crate) const MAX_KEYS: usize = 64;
pub(crate) const MAX_ID_BYTES: usize = 128;
pub(crate) const MAX_LABEL_BYTES: usize = 256;
pub(crate) const MAX_DECLARED: usize = 64;
pub(crate) const MAX_HOLDERS: u32 = 1000;
pub(crate) const MAX_LISTED: u32 = 10_000;

/// Integers of the protocol are below this.
pub(crate) const TWO_TO_53: u64 = 1 << 53;
/// Bytes of a frame that a client sends, and that a server sends.
pub(crate) const MAX_REQUEST_BYTES: usize = 65_536;
pub(crate) const MAX_REPLY_BYTES: usize = 1_048_576;

/// Unanswered requests of one client; a few more are kept for what it sends by itself.
pub(crate) const MAX_IN_FLIGHT: usize = 10_000 - 16;
/// Bytes that may wait to be written before requests are refused.
pub(crate) const MAX_UNSENT_BYTES: usize = 16 * 1024 * 1024;
/// Watches of one client.
pub(crate) const MAX_WATCHES: usize = 1000;
/// Events that a watch keeps for a reader that is slow, unless asked otherwise.
pub(crate) const DEFAULT_WATCH_BUFFER: usize = 1024;

pub(crate) const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 3600);
pub(crate) const MAX_HOUR: Duration = Duration::from_secs(3600);
pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(30);
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(3);
pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a call waits for the answer to its own cancel, and close for its goodbye.
pub(crate) const CANCEL_WAIT: Duration = Duration::from_secs(1);
/// How long the release at the end of `run` may take.
pub(crate) const RELEASE_WAIT: Duration = Duration::from_secs(5);
