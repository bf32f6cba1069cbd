use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::limits::*;
use crate::request::{span, Fields, Mode, Ttl, Wait};
use crate::session::Asks;
use crate::sight::Queued;
use crate::Result;

/// How much a message for the logger matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something went well again.
    Info,
    /// Broken connections, lost sessions, failing renewals.
    Warn,
}

/// A lease that is not confirmed, and still held.
#[derive(Clone)]
#[non_exhaustive]
pub struct Trouble {
    /// The hold's id. Keep it to yourself: whoever knows it can release the hold.
    pub id: String,
    /// Its keys.
    pub keys: Vec<String>,
    /// How long it is still safe to act.
    pub left: Duration,
    /// Why it is not confirmed.
    pub error: Error,
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the id, which must not get into logs.
        f.debug_struct("Trouble")
            .field("keys", &self.keys)
            .field("left", &self.left)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

/// Gets what cannot be returned. Must not block.
pub type Logger = Arc<dyn Fn(Level, &str) + Send + Sync>;
/// Told once if a request has to wait. Must not block.
pub type OnQueued = Box<dyn FnOnce(Queued) + Send>;
/// Told of every renewal that failed or is late, and of a broken connection, while the lease is still
/// held. Must not block.
pub type OnTroubled = Arc<dyn Fn(&Trouble) + Send + Sync>;

/// Options of [`Client::connect`](crate::Client::connect). An address alone will do: `"host:port".into()`.
#[derive(Clone)]
pub struct ConnectOptions {
    /// `host:port` or `unix:PATH`; by default `LATCHKEY_SERVER`, or `127.0.0.1:6970`.
    pub address: Option<String>,
    /// Who this is, shown to people; up to 256 bytes.
    pub name: String,
    /// How long the session outlives the last sign of life; default 3 s, up to an hour. Zero: not at all.
    pub grace: Duration,
    /// Bounds each attempt to connect; default 3 s.
    pub connect_timeout: Duration,
    /// Gets what cannot be returned, such as broken connections.
    pub logger: Option<Logger>,
    /// Told of the trouble of every hold.
    pub on_troubled: Option<OnTroubled>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            address: None,
            name: String::new(),
            grace: DEFAULT_GRACE,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            logger: None,
            on_troubled: None,
        }
    }
}

impl From<&str> for ConnectOptions {
    fn from(address: &str) -> ConnectOptions {
        ConnectOptions { address: Some(address.to_owned()), ..ConnectOptions::default() }
    }
}

impl From<String> for ConnectOptions {
    fn from(address: String) -> ConnectOptions {
        ConnectOptions { address: Some(address), ..ConnectOptions::default() }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("address", &self.address)
            .field("name", &self.name)
            .field("grace", &self.grace)
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

/// Options of a request for a lease.
pub struct AcquireOptions {
    /// Alone (the default), shared, or counted.
    pub mode: Mode,
    /// Time to live; default 30 s, at least 100 ms.
    pub ttl: Ttl,
    /// Whether to wait for its turn, and how long; without bound by default.
    pub wait: Wait,
    /// Shown to people; up to 256 bytes.
    pub label: String,
    /// Shared only: passes writers that wait, which may starve them.
    pub prefer_readers: bool,
    /// The longest total time of the hold, renewals included.
    pub max_hold: Option<Duration>,
    /// After an involuntary loss the keys stay unavailable that long; up to an hour.
    pub lock_delay: Duration,
    /// The hold outlives its session, until its ttl.
    pub detach: bool,
    /// Ids of holds that will not be released before this request is answered, for finding deadlocks. Those
    /// of the calls of [`run`](crate::Client::run) around it, in the same task, are added.
    pub declared: Vec<String>,
    /// Names the request and the hold; random when absent. Whoever knows it can release the hold.
    pub id: Option<String>,
    /// Renews each third of the ttl (the default). If false, only the deadline is watched.
    pub renew: bool,
    /// Takes the request back: it fails with `cancelled`, and nothing stays behind. Dropping the future
    /// does the same, without waiting for the broker's word.
    pub cancel: Option<CancellationToken>,
    /// Told once if the request has to wait.
    pub on_queued: Option<OnQueued>,
    /// As [`ConnectOptions::on_troubled`], for this hold.
    pub on_troubled: Option<OnTroubled>,
}

impl Default for AcquireOptions {
    fn default() -> AcquireOptions {
        AcquireOptions {
            mode: Mode::default(),
            ttl: Ttl::default(),
            wait: Wait::default(),
            label: String::new(),
            prefer_readers: false,
            max_hold: None,
            lock_delay: Duration::ZERO,
            detach: false,
            declared: Vec::new(),
            id: None,
            renew: true,
            cancel: None,
            on_queued: None,
            on_troubled: None,
        }
    }
}

impl fmt::Debug for AcquireOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOptions")
            .field("mode", &self.mode)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("label", &self.label)
            .field("renew", &self.renew)
            .finish_non_exhaustive()
    }
}

impl AcquireOptions {
    /// What is asked of the broker, and what of the client.
    pub(crate) fn split(self, keys: Keys) -> Result<(Fields, Asks, Option<CancellationToken>)> {
        let mut fields = Fields::default();
        let mut keys = keys.0;
        if keys.len() == 1 {
            fields.key = keys.pop();
        } else {
            fields.keys = Some(keys);
        }
        fields.id = Some(match self.id {
            Some(id) => id,
            None => random_id()?,
        });
        fields.set_mode(self.mode);
        fields.set_ttl(self.ttl)?;
        match self.wait {
            Wait::Unbounded => {}
            Wait::AtMost(wait) => fields.wait = Some(span("wait", wait, MAX_TTL, "MaxWait")?),
            Wait::Try => fields.attempt = true,
        }
        fields.prefer_readers = self.prefer_readers;
        fields.max_hold = self.max_hold.map(|d| span("max_hold", d, MAX_TTL, "MaxTTL")).transpose()?;
        let delay = span("lock_delay", self.lock_delay, MAX_HOUR, "MaxLockDelay")?;
        fields.lock_delay = Some(delay).filter(|&delay| delay > 0);
        fields.detach = self.detach;
        fields.label = Some(self.label).filter(|label| !label.is_empty());
        fields.declared = Some(self.declared).filter(|ids| !ids.is_empty());
        let asks = Asks { renews: self.renew, on_queued: self.on_queued, on_troubled: self.on_troubled };
        Ok((fields, asks, self.cancel))
    }
}

/// 128 random bits, in hexadecimal.
fn random_id() -> Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::new(crate::Code::Internal, format!("no random id can be made: {e}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// One key or several, all or none: anything that is a string, or a list of strings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys(pub(crate) Vec<String>);

impl From<&str> for Keys {
    fn from(key: &str) -> Keys {
        Keys(vec![key.to_owned()])
    }
}

impl From<&String> for Keys {
    fn from(key: &String) -> Keys {
        Keys(vec![key.clone()])
    }
}

impl From<String> for Keys {
    fn from(key: String) -> Keys {
        Keys(vec![key])
    }
}

impl<S: Into<String>> From<Vec<S>> for Keys {
    fn from(keys: Vec<S>) -> Keys {
        Keys(keys.into_iter().map(Into::into).collect())
    }
}

impl<S: Into<String>, const N: usize> From<[S; N]> for Keys {
    fn from(keys: [S; N]) -> Keys {
        Keys(keys.into_iter().map(Into::into).collect())
    }
}

impl<S: AsRef<str>> From<&[S]> for Keys {
    fn from(keys: &[S]) -> Keys {
        Keys(keys.iter().map(|key| key.as_ref().to_owned()).collect())
    }
}

/// Options of [`Client::list`](crate::Client::list).
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// One key; excludes `prefix`.
    pub key: Option<String>,
    /// Keys that begin so.
    pub prefix: Option<String>,
    /// Keys that sort after this one, for the next page.
    pub after: Option<String>,
    /// 1 to 10 000; default 1000.
    pub limit: Option<u32>,
    /// Only keys with waiters, most first, in one page.
    pub contended: bool,
    /// Leaves the waiters out, and tells only how many there are.
    pub brief: bool,
}

/// Options of [`Client::watch`](crate::Client::watch): one key, a prefix, or all.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// One key; excludes `prefix`.
    pub key: Option<String>,
    /// Keys that begin so.
    pub prefix: Option<String>,
    /// Events that are kept for a slow reader before they are dropped with a `gap`; default 1024.
    pub buffer: usize,
}

impl Default for WatchOptions {
    fn default() -> WatchOptions {
        WatchOptions { key: None, prefix: None, buffer: DEFAULT_WATCH_BUFFER }
    }
}

/// Options of [`Client::force`](crate::Client::force).
#[derive(Clone, Debug, Default)]
pub struct ForceOptions {
    /// Only the hold with this token; otherwise all of the key.
    pub token: Option<u64>,
    /// Who does it; the holders are told.
    pub by: Option<String>,
    /// Why; the holders are told.
    pub reason: Option<String>,
}

/// What [`Client::force`](crate::Client::force) ended.
#[derive(Clone, Debug)]
pub struct Forced {
    pub(crate) key: String,
    pub(crate) tokens: Vec<u64>,
    pub(crate) fence: Option<u64>,
}

impl Forced {
    /// Tokens of the holds that were ended, as far as the broker told them.
    pub fn tokens(&self) -> &[u64] {
        &self.tokens
    }

    /// A fresh token above all of them: telling it to the resource shuts the old holders out at once.
    ///
    /// # Errors
    /// [`FencingUnknown`](crate::FencingUnknown) when the broker sent none that is a safe integer.
    pub fn fence(&self) -> Result<u64, crate::FencingUnknown> {
        self.fence.ok_or_else(|| crate::FencingUnknown { key: self.key.clone(), several: false })
    }
}
