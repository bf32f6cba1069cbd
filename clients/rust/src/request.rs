//! Frames of a client, and what it never sends.

use std::time::Duration;

use serde::Serialize;

use crate::clock::Micros;
use crate::error::Error;
use crate::limits::*;
use crate::Result;

/// Operations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Op {
    Open,
    Acquire,
    Renew,
    Release,
    Detach,
    Cancel,
    Ping,
    Close,
    List,
    Watch,
    Unwatch,
    Force,
    Stats,
}

impl Op {
    pub fn name(self) -> &'static str {
        match self {
            Op::Open => "open",
            Op::Acquire => "acquire",
            Op::Renew => "renew",
            Op::Release => "release",
            Op::Detach => "detach",
            Op::Cancel => "cancel",
            Op::Ping => "ping",
            Op::Close => "close",
            Op::List => "list",
            Op::Watch => "watch",
            Op::Unwatch => "unwatch",
            Op::Force => "force",
            Op::Stats => "stats",
        }
    }

    pub fn from_name(name: &str) -> Option<Op> {
        use Op::*;
        let all = [Open, Acquire, Renew, Release, Detach, Cancel, Ping, Close, List, Watch, Unwatch, Force, Stats];
        all.into_iter().find(|op| op.name() == name)
    }
}

/// How a key is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    #[default]
    Exclusive,
    /// Together with other shared holds.
    Shared,
    /// Together with others, up to so many holds at a time: 1 to 1000.
    Counted(u32),
}

/// The longest time that a hold lasts unless it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// So long; at least 100 ms, at most 366 days. The default is 30 s.
    Time(Duration),
    /// Until it is released or its session ends.
    Forever,
}

impl Default for Ttl {
    fn default() -> Ttl {
        Ttl::Time(DEFAULT_TTL)
    }
}

impl From<Duration> for Ttl {
    fn from(ttl: Duration) -> Ttl {
        Ttl::Time(ttl)
    }
}

/// How long a request waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Without bound.
    #[default]
    Unbounded,
    /// At most so long; then it fails with `timeout`. From 1 ms to 366 days.
    AtMost(Duration),
    /// Not at all; it fails with `busy` at once.
    Try,
}

fn is_false(b: &bool) -> bool {
    !b
}

/// The fields of a request, in the order of the vectors, so that frames are the same from every client.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    pub contended: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub brief: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub forever: bool,
    #[serde(rename = "try", skip_serializing_if = "is_false")]
    pub attempt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub prefer_readers: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hold: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_delay: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    pub detach: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
}

impl Fields {
    /// The fields of a request that names a hold.
    pub fn of_hold(id: &str) -> Fields {
        Fields { id: Some(id.to_owned()), ..Fields::default() }
    }

    /// The first key.
    pub fn first_key(&self) -> Option<&str> {
        self.key.as_deref().or_else(|| self.keys.as_ref()?.first().map(String::as_str))
    }

    /// How many of the keys are not among these; none if others are, or one twice.
    pub fn missing(&self, keys: &[String]) -> Option<usize> {
        let asked = self.keys.as_deref().or_else(|| self.key.as_ref().map(std::slice::from_ref)).unwrap_or_default();
        let own = |(i, key): (usize, &String)| asked.contains(key) && !keys[..i].contains(key);
        keys.iter().enumerate().all(own).then(|| asked.len() - keys.len())
    }

    pub fn set_mode(&mut self, mode: Mode) {
        (self.mode, self.max) = match mode {
            Mode::Exclusive => (None, None),
            Mode::Shared => (Some("shared"), None),
            Mode::Counted(max) => (Some("counted"), Some(max)),
        };
    }

    /// Sets a ttl; the default is spelled out, so that sending again means the same.
    pub fn set_ttl(&mut self, ttl: Ttl) -> Result<()> {
        match ttl {
            Ttl::Forever => self.forever = true,
            Ttl::Time(ttl) => {
                if ttl < MIN_TTL {
                    let reason = "the safety margin and a scheduling delay would use it up";
                    return Err(Error::refused(format!(
                        "ttl is {ttl:?}, under {} ms: {reason}; for a hold without end use Ttl::Forever",
                        MIN_TTL.as_millis()
                    )));
                }
                self.ttl = Some(span("ttl", ttl, MAX_TTL, "MaxTTL")?);
            }
        }
        Ok(())
    }
}

/// A length of time in whole milliseconds, rounded up, so that what is not zero stays so.
pub(crate) fn span(name: &str, d: Duration, most: Duration, limit: &str) -> Result<u64> {
    if d > most {
        return Err(Error::refused(format!("{name} is {d:?}, at most {most:?} is allowed ({limit})")));
    }
    Ok(u64::try_from(d.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
}

#[derive(Serialize)]
struct Frame<'a> {
    n: u64,
    #[serde(rename = "do")]
    op: Op,
    #[serde(flatten)]
    fields: &'a Fields,
}

/// Appends a request as one line.
pub(crate) fn encode(out: &mut Vec<u8>, n: u64, op: Op, fields: &Fields) {
    let frame = Frame { n, op, fields };
    // Writing strings and integers to memory cannot fail.
    if serde_json::to_writer(&mut *out, &frame).is_ok() {
        out.push(b'\n');
    }
}

/// The line that a client begins with.
pub(crate) const HELLO: &[u8] = b"{\"latchkey\":1,\"features\":[]}\n";

/// Refuses what a server would refuse.
pub(crate) fn check(op: Op, f: &Fields) -> Result<()> {
    checked(op, f).map_err(|e| e.about(op.name(), None))
}

fn checked(op: Op, f: &Fields) -> Result<()> {
    if op == Op::Acquire && f.key.is_none() && f.keys.is_none() {
        return Err(Error::refused("key is missing"));
    }
    if let Some(key) = &f.key {
        check_key(key)?;
        if f.prefix.is_some() {
            return Err(Error::refused("key and prefix exclude each other"));
        }
    }
    if let Some(keys) = &f.keys {
        check_keys(keys)?;
    }
    if f.id.as_deref() == Some("") {
        return Err(Error::refused("id is empty: leave it out for a random one"));
    }
    for (name, value, most, limit) in [
        ("id", &f.id, MAX_ID_BYTES, "MaxIDLength"),
        ("name", &f.name, MAX_LABEL_BYTES, "MaxLabelLength"),
        ("host", &f.host, MAX_LABEL_BYTES, "MaxLabelLength"),
        ("label", &f.label, MAX_LABEL_BYTES, "MaxLabelLength"),
        ("by", &f.by, MAX_LABEL_BYTES, "MaxLabelLength"),
        ("reason", &f.reason, MAX_LABEL_BYTES, "MaxLabelLength"),
        ("prefix", &f.prefix, MAX_KEY_BYTES, "MaxKeyLength"),
        ("after", &f.after, MAX_KEY_BYTES, "MaxKeyLength"),
    ] {
        if let Some(value) = value {
            check_bytes(name, value, most, limit)?;
        }
    }
    check_number("max", f.max, MAX_HOLDERS, "MaxHolders")?;
    check_number("limit", f.limit, MAX_LISTED, "MaxListed")?;
    if f.token.is_some_and(|token| token == 0 || token >= TWO_TO_53) {
        return Err(Error::refused("token must be an integer from 1 and below 2^53"));
    }
    if f.wait == Some(0) {
        return Err(Error::refused("wait is 0: use Wait::Try to not wait, or Wait::Unbounded"));
    }
    if f.max_hold == Some(0) {
        return Err(Error::refused("max_hold is 0, it must be at least 1 ms; leave it out for no cap"));
    }
    if f.prefer_readers && f.mode != Some("shared") {
        return Err(Error::refused("prefer_readers: only a shared request has it"));
    }
    if let Some(ids) = &f.declared {
        check_declared(ids)?;
    }
    Ok(())
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() {
        return Err(Error::refused("key is empty"));
    }
    check_bytes("key", key, MAX_KEY_BYTES, "MaxKeyLength")
}

fn check_keys(keys: &[String]) -> Result<()> {
    if keys.is_empty() {
        return Err(Error::refused("keys is empty: at least one key is needed"));
    }
    if keys.len() > MAX_KEYS {
        return Err(Error::refused(format!("{} keys, at most {MAX_KEYS} are allowed (MaxKeys)", keys.len())));
    }
    for (i, key) in keys.iter().enumerate() {
        check_key(key)?;
        if keys[..i].contains(key) {
            return Err(Error::refused(format!("key {key:?} appears twice")));
        }
    }
    Ok(())
}

fn check_declared(ids: &[String]) -> Result<()> {
    if ids.len() > MAX_DECLARED {
        return Err(Error::refused(format!("{} declared, at most {MAX_DECLARED} (MaxDeclared)", ids.len())));
    }
    for id in ids {
        if id.is_empty() {
            return Err(Error::refused("declared must be ids of holds, none empty"));
        }
        check_bytes("a declared id", id, MAX_ID_BYTES, "MaxIDLength")?;
    }
    Ok(())
}

fn check_bytes(name: &str, value: &str, most: usize, limit: &str) -> Result<()> {
    if value.len() > most {
        return Err(Error::refused(format!("{name} is {} bytes, at most {most} are allowed ({limit})", value.len())));
    }
    Ok(())
}

fn check_number(name: &str, value: Option<u32>, most: u32, limit: &str) -> Result<()> {
    match value {
        Some(0) => Err(Error::refused(format!("{name} is 0, it must be at least 1"))),
        Some(value) if value > most => {
            Err(Error::refused(format!("{name} is {value}, at most {most} is allowed ({limit})")))
        }
        _ => Ok(()),
    }
}

/// Refuses a frame that a server would close the connection for.
pub(crate) fn check_frame(op: Op, fields: &Fields) -> Result<()> {
    let mut frame = Vec::new();
    encode(&mut frame, TWO_TO_53, op, fields);
    // The rest is for the age that it has when it is sent again.
    let most = MAX_REQUEST_BYTES - 64;
    if frame.len() > most {
        let reason = format!("the request is more than {most} bytes as a frame (MaxFrame)");
        return Err(Error::refused(reason).about(op.name(), None));
    }
    Ok(())
}

/// Fields of an acquire that is sent when it is so old already.
pub(crate) fn aged(fields: &Fields, age: Micros) -> Fields {
    let mut fields = fields.clone();
    let age = age / 1000;
    if age >= 1 {
        fields.waited = Some(age.min(TWO_TO_53 - 1));
        fields.wait = fields.wait.map(|wait| wait.saturating_sub(age).max(1));
    }
    fields
}
