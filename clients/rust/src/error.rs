//! Errors: one type, with a code for programs and a text for people.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sight::Holder;

/// What happened, for programs. These are the codes of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// A try found a holder, a lock-delay, or someone queued ahead; see [`Error::holders`].
    Busy,
    /// The request's own bound on waiting passed. Nothing is held.
    Timeout,
    /// The request was taken back. Nothing is held or queued.
    Cancelled,
    /// The request breaks a rule or a limit, named in [`Error::reason`].
    Refused,
    /// The request waits for itself through declared holds; see [`Error::cycle`]. Nothing is queued.
    Deadlock,
    /// The outcome cannot be known: the lease may be held until its ttl.
    Unknown,
    /// The request with this id has ended; use a new id.
    Over,
    /// There is no such hold, or not any more.
    NotHeld,
    /// Loss: the ttl or the longest hold ran out, or this process stood still.
    Expired,
    /// Loss: an administrator took the hold.
    Forced,
    /// Loss: the broker ended the session, and its holds with it.
    SessionLost,
    /// Loss: nothing was confirmed by the broker up to this client's own deadline.
    ServiceGone,
    /// The broker cannot serve this now, or cannot be reached. Nothing was changed.
    Unavailable,
    /// The client was closed, or the broker shuts down. Nothing was changed.
    Closed,
    /// The peer sent what the protocol does not allow.
    Protocol,
    /// A defect of the broker.
    Internal,
    /// The broker sent no fencing token that is a safe integer; see [`FencingUnknown`].
    FencingUnknown,
    /// A code that this client does not know. It is treated as [`Code::Internal`].
    Other(String),
}

/// What an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// How a request ended without a lease, or that there is no such hold.
    Outcome,
    /// The request, or the peer, breaks a rule. Repeating it unchanged does not help.
    Mistake,
    /// A hold was lost. Whoever has it must stop.
    Loss,
    /// Nothing was changed; the same may succeed later.
    Retry,
    /// What happened cannot be known.
    Unknown,
    /// A defect of the broker, or a code that this client does not know.
    Defect,
}

const NAMES: [(Code, &str); 17] = [
    (Code::Busy, "busy"),
    (Code::Timeout, "timeout"),
    (Code::Cancelled, "cancelled"),
    (Code::Refused, "refused"),
    (Code::Deadlock, "deadlock"),
    (Code::Unknown, "unknown"),
    (Code::Over, "over"),
    (Code::NotHeld, "not_held"),
    (Code::Expired, "expired"),
    (Code::Forced, "forced"),
    (Code::SessionLost, "session_lost"),
    (Code::ServiceGone, "service_gone"),
    (Code::Unavailable, "unavailable"),
    (Code::Closed, "closed"),
    (Code::Protocol, "protocol"),
    (Code::Internal, "internal"),
    (Code::FencingUnknown, "fencing_unknown"),
];

impl Code {
    /// The code with this name on the wire; a name that is not known is kept.
    pub fn from_name(name: &str) -> Code {
        let known = NAMES.iter().find(|(code, known)| *known == name && *code != Code::FencingUnknown);
        known.map_or_else(|| Code::Other(name.to_owned()), |(code, _)| code.clone())
    }

    /// The name on the wire.
    pub fn name(&self) -> &str {
        if let Code::Other(name) = self {
            return name;
        }
        NAMES.iter().find(|(code, _)| code == self).map_or("internal", |(_, name)| name)
    }

    /// What the code is about.
    pub fn kind(&self) -> Kind {
        match self {
            Code::Busy | Code::Timeout | Code::Cancelled | Code::Deadlock | Code::NotHeld => Kind::Outcome,
            Code::Refused | Code::Over | Code::Protocol => Kind::Mistake,
            Code::Expired | Code::Forced | Code::SessionLost | Code::ServiceGone => Kind::Loss,
            Code::Unavailable | Code::Closed => Kind::Retry,
            Code::Unknown | Code::FencingUnknown => Kind::Unknown,
            Code::Internal | Code::Other(_) => Kind::Defect,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One edge of a deadlock: `who` holds something and waits for `key`. The last waits for the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Waits {
    /// Who waits.
    pub who: String,
    /// The key that it waits for.
    pub key: String,
}

/// The error of every call of this crate. It is cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    code: Code,
    op: Option<&'static str>,
    key: Option<String>,
    reason: Option<String>,
    holders: Vec<Holder>,
    cycle: Vec<Waits>,
    cause: Option<Error>,
    /// It ended a hold, whatever its code says by itself.
    loss: bool,
}

/// The result of the calls of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(code: Code, reason: impl Into<String>) -> Error {
        let reason = Some(reason.into()).filter(|reason| !reason.is_empty());
        Error(Arc::new(Inner {
            code,
            op: None,
            key: None,
            reason,
            holders: Vec::new(),
            cycle: Vec::new(),
            cause: None,
            loss: false,
        }))
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Error {
        Error::new(Code::Refused, reason)
    }

    pub(crate) fn breach(reason: impl Into<String>) -> Error {
        Error::new(Code::Protocol, reason)
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Error {
        Error::new(Code::Unavailable, reason)
    }

    pub(crate) fn closed() -> Error {
        Error::new(Code::Closed, "the client was closed")
    }

    fn edit(mut self, change: impl FnOnce(&mut Inner)) -> Error {
        change(Arc::make_mut(&mut self.0));
        self
    }

    pub(crate) fn with_holders(self, holders: Vec<Holder>, cycle: Vec<Waits>) -> Error {
        self.edit(|inner| {
            inner.holders = holders;
            inner.cycle = cycle;
        })
    }

    pub(crate) fn with_cause(self, cause: Option<Error>) -> Error {
        self.edit(|inner| inner.cause = cause)
    }

    /// Makes it the end of a hold.
    pub(crate) fn into_loss(self) -> Error {
        self.edit(|inner| inner.loss = true)
    }

    /// Says who attempted what, where that is not said yet.
    pub(crate) fn about(self, op: &'static str, key: Option<&str>) -> Error {
        if self.0.op.is_some() && (self.0.key.is_some() || key.is_none()) {
            return self;
        }
        self.edit(|inner| {
            inner.op.get_or_insert(op);
            if inner.key.is_none() {
                inner.key = key.map(str::to_owned);
            }
        })
    }

    /// What happened, for programs.
    pub fn code(&self) -> &Code {
        &self.0.code
    }

    /// What it is about: an outcome, a loss, something worth another try … It is that of the code,
    /// but for what ended a hold, which is a loss also with [`Code::NotHeld`], released by its id from
    /// elsewhere, and [`Code::Closed`], when its client was closed.
    pub fn kind(&self) -> Kind {
        if self.0.loss {
            Kind::Loss
        } else {
            self.0.code.kind()
        }
    }

    /// Whether a hold was lost, so that whoever has it must stop.
    pub fn is_loss(&self) -> bool {
        self.kind() == Kind::Loss
    }

    /// What was attempted: acquire, renew, release, hold …
    pub fn op(&self) -> Option<&str> {
        self.0.op
    }

    /// The key that it is about, when there is one.
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// For people: what is wrong and what to do. It is not stable.
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    /// Who is in the way, for `busy` and `timeout`; at most eight.
    pub fn holders(&self) -> &[Holder] {
        &self.0.holders
    }

    /// Who waits for whom, for `deadlock`.
    pub fn cycle(&self) -> &[Waits] {
        &self.0.cycle
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = &*self.0;
        match (e.op, &e.key) {
            (Some(op), Some(key)) => write!(f, "{op} {key:?}: ")?,
            (Some(op), None) => write!(f, "{op}: ")?,
            (None, Some(key)) => write!(f, "{key:?}: ")?,
            (None, None) => {}
        }
        f.write_str(&e.code.name().replace('_', " "))?;
        if let Some(reason) = &e.reason {
            write!(f, ": {reason}")?;
        }
        for (i, holder) in e.holders.iter().enumerate() {
            f.write_str(if i == 0 { ": held by " } else { "; " })?;
            show_holder(holder, f)?;
        }
        if let [alone] = &*e.cycle {
            return write!(f, ": you already hold this key: {:?}, as {}", alone.key, alone.who);
        }
        for (i, edge) in e.cycle.iter().enumerate() {
            f.write_str(if i == 0 { ": " } else { ", " })?;
            write!(f, "{} waits for {:?}", edge.who, edge.key)?;
        }
        Ok(())
    }
}

fn show_holder(h: &Holder, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let named = h.session.as_deref().filter(|name| !name.is_empty());
    f.write_str(named.unwrap_or("an unnamed session"))?;
    if let Some(label) = h.label.as_deref().filter(|label| !label.is_empty()) {
        write!(f, " ({label})")?;
    }
    if let Some(host) = h.host.as_deref().filter(|host| !host.is_empty()) {
        write!(f, " on {host}")?;
    }
    if let Some(pid) = h.pid.filter(|&pid| pid > 0) {
        write!(f, " pid {pid}")?;
    }
    if h.since > Duration::ZERO {
        write!(f, " for {} ms", h.since.as_millis())?;
    }
    match h.remaining {
        Some(left) => write!(f, ", {} ms left", left.as_millis()),
        None => f.write_str(", never expires"),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "latchkey::Error({self})")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_ref().map(|cause| cause as &(dyn StdError + 'static))
    }
}

/// The broker granted the lease, but its fencing token is absent or no safe integer. Reading the token
/// fails with this, so that no made-up number ever reaches the protected resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencingUnknown {
    pub(crate) key: String,
    pub(crate) several: bool,
}

impl FencingUnknown {
    /// The key whose token is not known.
    pub fn key(&self) -> &str {
        &self.key
    }

    fn reason(&self) -> &'static str {
        if self.several {
            "a hold of several keys has several tokens: read tokens"
        } else {
            "the broker sent no token that can be represented; do not write what needs fencing"
        }
    }
}

impl fmt::Display for FencingUnknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {:?}: fencing unknown: {}", self.key, self.reason())
    }
}

impl StdError for FencingUnknown {}

impl From<FencingUnknown> for Error {
    fn from(unknown: FencingUnknown) -> Error {
        Error::new(Code::FencingUnknown, unknown.reason()).about("token", Some(&unknown.key))
    }
}
