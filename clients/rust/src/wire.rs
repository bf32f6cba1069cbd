//! Frames of a server: lines cut from a stream, and what they mean.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::Deserialize;

use crate::clock::{from_ms, Micros, NEVER};
use crate::error::{Code, Error, Waits};
use crate::limits::TWO_TO_53;
use crate::sight::Holder;
use crate::Result;

/// Cuts a stream of bytes into lines. What is left of an unfinished line is kept, up to the limit.
pub(crate) struct Lines {
    limit: usize,
    kept: Vec<u8>,
}

impl Lines {
    pub fn new(limit: usize) -> Lines {
        Lines { limit, kept: Vec::new() }
    }

    /// Calls `take` for each line that is complete now; fails when one is longer than the limit.
    pub fn push(&mut self, mut chunk: &[u8], mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            if self.kept.len() + line.len() > self.limit {
                return Err(self.too_long());
            }
            if self.kept.is_empty() {
                take(line)?;
            } else {
                self.kept.extend_from_slice(line);
                let whole = std::mem::take(&mut self.kept);
                take(&whole)?;
            }
            chunk = rest;
        }
        if self.kept.len() + chunk.len() > self.limit {
            return Err(self.too_long());
        }
        self.kept.extend_from_slice(chunk);
        Ok(())
    }

    fn too_long(&mut self) -> Error {
        self.kept = Vec::new();
        Error::breach(format!("the broker sent a line that is too long: over {} bytes", self.limit))
    }
}

/// What a server says of itself in its first line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Product and version, for people.
    pub server: String,
    /// `memory`, or how what is acknowledged survives a crash.
    pub durability: String,
    /// Where tokens come from. `journal`: they rise for ever; `clock`: as long as the broker's clock
    /// is not set back between two starts.
    pub fencing: String,
    /// Optional parts that the broker knows.
    pub features: Vec<String>,
}

/// What a frame of a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Ok,
    Failed,
    Queued,
    Part,
    Event,
    Lost,
}

/// A frame of a server whose kind and number are checked; the rest is read by who knows what it asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub what: What,
    /// The request that it is about; 0 when it is about the connection.
    pub n: u64,
    pub line: &'a str,
}

/// Reads a field that is there; `null` is no value.
pub(crate) fn there<'de, D: Deserializer<'de>, T: Deserialize<'de>>(d: D) -> std::result::Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// An integer from 0 and below 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole(pub u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Whole, D::Error> {
        let value = u64::deserialize(d)?;
        if value >= TWO_TO_53 {
            return Err(de::Error::custom("an integer must be below 2^53"));
        }
        Ok(Whole(value))
    }
}

/// A token as it came: anything but an integer between 0 and 2^53 is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Token(pub Option<u64>);

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Token, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Token;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_u64<E>(self, v: u64) -> std::result::Result<Token, E> {
                Ok(Token(Some(v).filter(|v| (1..TWO_TO_53).contains(v))))
            }
            fn visit_i64<E>(self, _: i64) -> std::result::Result<Token, E> {
                Ok(Token(None))
            }
            fn visit_f64<E>(self, _: f64) -> std::result::Result<Token, E> {
                Ok(Token(None))
            }
            fn visit_bool<E>(self, _: bool) -> std::result::Result<Token, E> {
                Ok(Token(None))
            }
            fn visit_str<E>(self, _: &str) -> std::result::Result<Token, E> {
                Ok(Token(None))
            }
            fn visit_unit<E>(self) -> std::result::Result<Token, E> {
                Ok(Token(None))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut a: A) -> std::result::Result<Token, A::Error> {
                while a.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(Token(None))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut a: A) -> std::result::Result<Token, A::Error> {
                while a.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
                Ok(Token(None))
            }
        }
        d.deserialize_any(Any)
    }
}

/// A grant, a renewal, or an entry of what a resumed session holds. Times are microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub id: String,
    pub keys: Arc<[String]>,
    /// None where the broker sent no token that is a safe integer.
    pub tokens: Arc<[Option<u64>]>,
    /// `NEVER`: without end, as is `remaining`.
    pub ttl: Micros,
    pub elapsed: Micros,
    pub remaining: Micros,
    pub waited: Micros,
    pub detached: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Head {
    #[serde(deserialize_with = "there")]
    n: Option<Whole>,
    #[serde(deserialize_with = "there")]
    ok: Option<bool>,
    #[serde(deserialize_with = "there")]
    code: Option<String>,
    queued: bool,
    event: Option<de::IgnoredAny>,
    leases: Option<de::IgnoredAny>,
    #[serde(deserialize_with = "there")]
    lost: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GrantBody {
    id: String,
    #[serde(deserialize_with = "there")]
    key: Option<String>,
    #[serde(deserialize_with = "there")]
    keys: Option<Vec<String>>,
    token: Token,
    tokens: Vec<Token>,
    #[serde(deserialize_with = "there")]
    ttl: Option<Whole>,
    forever: bool,
    elapsed: Whole,
    #[serde(deserialize_with = "there")]
    remaining: Option<Whole>,
    waited: Whole,
    detached: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OpenBody {
    session: String,
    #[serde(deserialize_with = "there")]
    grace: Option<Whole>,
    elapsed: Whole,
    leases: Vec<GrantBody>,
}

/// The answer to an open.
pub(crate) struct Opened {
    pub session: String,
    pub grace: Option<Micros>,
    pub elapsed: Micros,
    pub leases: Vec<Grant>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FailureBody {
    code: String,
    op: String,
    key: String,
    reason: String,
    holders: Vec<Holder>,
    cycle: Vec<Waits>,
}

/// A notice that a hold, or without `id` the session, ended.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(crate) struct Notice {
    pub lost: String,
    pub id: String,
    pub key: String,
    pub token: Token,
    pub by: String,
}

/// What a force ended.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct ForcedBody {
    token: Token,
    tokens: Vec<Token>,
    pub fence: Token,
}

impl ForcedBody {
    /// The tokens that are known.
    pub fn known(&self) -> Vec<u64> {
        self.tokens.iter().chain([&self.token]).filter_map(|token| token.0).collect()
    }
}

/// Decodes a part of a line, where fields that are not asked for are ignored.
pub(crate) fn decode<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).map_err(|e| Error::breach(format!("{e}, in {}", excerpt(line))))
}

/// Sees that a line is a JSON object in UTF-8.
fn object(line: &[u8]) -> Result<&str> {
    let Ok(text) = std::str::from_utf8(line) else {
        return Err(Error::breach("a line is not valid UTF-8"));
    };
    if text.trim_start().starts_with('{') {
        return Ok(text);
    }
    Err(Error::breach(format!("not JSON; each line must be a JSON object, got {}", excerpt(text))))
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}", format!("{}…", &text[..end])),
        None => format!("{text:?}"),
    }
}

/// Decodes a server's first line. Fails with what the server answered instead, or as a breach.
pub(crate) fn decode_hello(line: &[u8]) -> Result<Server> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Hello {
        ok: Option<bool>,
        latchkey: Option<serde_json::Value>,
        features: Vec<String>,
        server: String,
        durability: String,
        fencing: String,
    }
    let text = object(line)?;
    let hello: Hello = decode(text)?;
    if hello.ok == Some(false) {
        return Err(decode_failure(text)?.about("connect", None));
    }
    match hello.latchkey {
        None => Err(Error::breach("what answers is no broker: its first line has no latchkey")),
        Some(version) if version != 1 => {
            Err(Error::breach(format!("the broker speaks version {version}, this client version 1")))
        }
        Some(_) => Ok(Server {
            server: hello.server,
            durability: hello.durability,
            fencing: hello.fencing,
            features: hello.features,
        }),
    }
}

/// Decodes any frame of a server after the first.
pub(crate) fn decode_reply(line: &[u8]) -> Result<Reply<'_>> {
    let text = object(line)?;
    let head: Head = decode(text)?;
    let reply = |what, n: Option<Whole>| Ok(Reply { what, n: n.map_or(0, |n| n.0), line: text });
    if head.n == Some(Whole(0)) {
        return Err(Error::breach("n must be an integer from 1"));
    }
    match (head.ok, head.n) {
        (Some(true), None) => Err(Error::breach("an answer has no n")),
        (Some(true), n) => reply(What::Ok, n),
        (Some(false), _) if head.code.as_deref().unwrap_or_default().is_empty() => {
            Err(Error::breach("a failure has no code"))
        }
        (Some(false), n) => reply(What::Failed, n),
        (None, None) if head.lost.as_deref().is_some_and(|lost| !lost.is_empty()) => reply(What::Lost, None),
        (None, None) => Err(Error::breach("a frame has neither n nor lost nor ok")),
        (None, n) if head.queued => reply(What::Queued, n),
        (None, n) if head.event.is_some() => reply(What::Event, n),
        (None, n) if head.leases.is_some() => reply(What::Part, n),
        (None, _) => Err(Error::breach("a frame is neither an answer nor a notice")),
    }
}

fn grant(body: GrantBody, elapsed: Option<Micros>) -> Result<Grant> {
    let (keys, tokens) = match (body.keys, body.key) {
        (Some(keys), _) => {
            let at = |i: usize| body.tokens.get(i).and_then(|token| token.0);
            let tokens = (0..keys.len()).map(at).collect();
            (keys, tokens)
        }
        (None, Some(key)) => (vec![key], vec![body.token.0]),
        (None, None) => (Vec::new(), Vec::new()),
    };
    if keys.is_empty() {
        return Err(Error::breach("a grant names no key"));
    }
    // A missing end must not be taken for no end.
    if !body.forever && (body.ttl.is_none() || body.remaining.is_none()) {
        return Err(Error::breach("a grant has no ttl or no remaining"));
    }
    Ok(Grant {
        id: body.id,
        keys: keys.into(),
        tokens: tokens.into(),
        ttl: if body.forever { NEVER } else { body.ttl.map_or(NEVER, |ttl| from_ms(ttl.0)) },
        elapsed: elapsed.unwrap_or(from_ms(body.elapsed.0)),
        remaining: body.remaining.map_or(NEVER, |left| from_ms(left.0)),
        waited: from_ms(body.waited.0),
        detached: body.detached,
    })
}

/// Decodes the answer to an acquire, renew or detach.
pub(crate) fn decode_grant(line: &str) -> Result<Grant> {
    grant(decode(line)?, None)
}

/// Decodes the answer to an open, or a part of it.
pub(crate) fn decode_open(line: &str) -> Result<Opened> {
    let body: OpenBody = decode(line)?;
    let elapsed = from_ms(body.elapsed.0);
    Ok(Opened {
        session: body.session,
        grace: body.grace.map(|grace| from_ms(grace.0)),
        elapsed,
        leases: body.leases.into_iter().map(|entry| grant(entry, Some(elapsed))).collect::<Result<_>>()?,
    })
}

/// Makes the error of a failure frame.
pub(crate) fn decode_failure(line: &str) -> Result<Error> {
    let body: FailureBody = decode(line)?;
    let code = if body.code.is_empty() { Code::Internal } else { Code::from_name(&body.code) };
    let mut error = Error::new(code, body.reason).with_holders(body.holders, body.cycle);
    if let Some(op) = crate::request::Op::from_name(&body.op) {
        error = error.about(op.name(), Some(&body.key).filter(|key| !key.is_empty()).map(String::as_str));
    }
    Ok(error)
}

/// A code that is told with a loss.
pub(crate) fn loss(notice: &Notice) -> Error {
    let reason = match &*notice.lost {
        "expired" => "its time ran out",
        "forced" => "an administrator took it away",
        "not_held" => "it was released by its id from elsewhere",
        "session_lost" => "the broker ended the session",
        _ => "the broker ended it",
    };
    let by = if notice.by.is_empty() { String::new() } else { format!(": {}", notice.by) };
    Error::new(Code::from_name(&notice.lost), format!("{reason}{by}"))
}
