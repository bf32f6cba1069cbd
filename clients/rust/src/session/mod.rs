//! The session of a client over connections that break: section 7 of the protocol.
//!
//! Nothing here does input or output, waits, or reads a clock: it is told the time, what came, and when
//! alarms are due; it leaves bytes to send, and effects that are to be carried out without its lock.

mod answers;
mod calls;
mod connect;
mod end;
mod holds;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::clock::{Alarm, Alarms, Micros, NEVER};
use crate::error::Error;
use crate::request::{Fields, Op};
use crate::sight::Queued;
use crate::watch::Buffer;
use crate::wire::{Grant, Lines, Server};
use crate::{Level, Logger, OnQueued, OnTroubled, Result, Trouble};

pub(crate) use holds::{Granted, View};

/// Pauses before another attempt to connect.
const FIRST_PAUSE: Micros = 20_000;
const LONGEST_PAUSE: Micros = 1_000_000;
/// What a connection must live for the pauses to start small again.
const SETTLED_LIFE: Micros = 100_000;
/// Breaches of the protocol in a row after which callers are told rather than kept waiting.
const FOULS: u8 = 3;
/// Between pings when there is no grace that would say.
const IDLE_PING: Micros = 5_000_000;
/// Between two looks for a sign of life, so that a process that stood still reads first.
const SECOND_LOOK: Micros = 20_000;

/// How a session is set up.
pub(crate) struct Setup {
    /// As the user wrote it, for errors.
    pub address: String,
    pub name: Option<String>,
    pub host: Option<String>,
    pub pid: Option<u64>,
    pub grace: Micros,
    pub connect_timeout: Micros,
    pub logger: Option<Logger>,
    pub on_troubled: Option<OnTroubled>,
}

/// What is to be done without the lock, since it may come back: callbacks, wakers, and what they own.
pub(crate) enum Effect {
    /// A hold is lost.
    Lost(CancellationToken),
    Wake(Waker),
    Queued(OnQueued, Queued),
    /// How an acquire ended: an effect, so that it comes after `queued`.
    Acquired(oneshot::Sender<Result<Granted>>, Result<Granted>),
    Line(oneshot::Sender<Result<String>>, Result<String>),
    Done(oneshot::Sender<Result<()>>, Result<()>),
    Watching(oneshot::Sender<Result<u64>>, Result<u64>),
    Troubled(OnTroubled, Trouble),
    /// Callbacks that are needed no more.
    Discard(Asks),
    Log(Logger, Level, String),
}

/// Who waits for an answer.
pub(crate) enum Sink {
    /// Nobody.
    Nothing,
    Acquire(oneshot::Sender<Result<Granted>>),
    /// Whoever reads the line of the answer.
    Line(oneshot::Sender<Result<String>>),
    /// The renewal that a hold does by itself.
    Renewal,
    /// A renewal or detachment that was asked for.
    Extend(oneshot::Sender<Result<()>>),
    Release,
    /// The cancel of the acquire with this number.
    Cancel(u64),
    Watch(oneshot::Sender<Result<u64>>),
    /// A watch that is begun again on another connection.
    WatchAgain,
    Ping,
    Goodbye,
}

/// What an acquire asks of the client.
#[derive(Default)]
pub(crate) struct Asks {
    pub renews: bool,
    pub on_queued: Option<OnQueued>,
    pub on_troubled: Option<OnTroubled>,
}

/// One request, from when it is made to its answer. It keeps its `n` on every connection.
struct Call {
    n: u64,
    op: Op,
    fields: Fields,
    start: Micros,
    /// When it was last sent; none while the broker has certainly not seen it.
    sent: Option<Micros>,
    /// It was sent on an earlier connection, so that it may have been carried out.
    again: bool,
    /// `queued` was told.
    told: bool,
    /// Connections that ended in a breach of the protocol while it was on them.
    fouls: u8,
    /// Nobody waits for it; the session sent it.
    ours: bool,
    /// The caller gave up; its cancel is on the way.
    abandoned: bool,
    /// The hold that it is about.
    hold: Option<u64>,
    asks: Asks,
    sink: Sink,
}

impl Call {
    /// Whether it may wait for its turn, and so for a broker that is away.
    fn waits(&self) -> bool {
        self.op == Op::Acquire && !self.fields.attempt
    }
}

/// Where the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Down,
    /// The driver is to connect, or does.
    Dialing,
    /// Connected; the broker has not greeted yet, or the session is not open.
    Greeting,
    /// The session is open on it.
    Ready,
}

/// An open that is not answered.
struct Greeting {
    n: u64,
    sent: Micros,
    resume: bool,
    parts: Vec<Grant>,
}

/// A watch of the user.
struct Watching {
    fields: Fields,
    buffer: Arc<Buffer>,
}

pub(crate) struct Session {
    o: Setup,
    /// The time as of this call.
    pub now: Micros,
    pub alarms: Alarms,
    pub effects: Vec<Effect>,
    /// Frames for the driver to send.
    pub out: Vec<u8>,
    /// Bytes that the driver has taken and not written.
    pub in_write: usize,
    /// The driver may stop.
    pub finished: bool,

    calls: BTreeMap<u64, Call>,
    holds: HashMap<u64, holds::Held>,
    /// Holds that are not known to have ended, by id.
    by_id: HashMap<Arc<str>, u64>,
    /// Ids of acquires that are not answered.
    waiting: HashSet<String>,
    watches: BTreeMap<u64, Watching>,
    last_n: u64,
    last_hold: u64,

    link: Link,
    /// Counts connections, so that what belongs to an earlier one is recognized.
    generation: u64,
    lines: Lines,
    linked_at: Micros,
    greeted: bool,
    greeting: Option<Greeting>,
    greet_fouls: u8,
    /// Resumes that were sent and not answered.
    adrift: u32,
    pause_next: Micros,
    /// Why there is no connection.
    trouble: Option<Error>,
    /// Until when calls that cannot wait are kept without one.
    patient: Micros,

    /// Empty while there is no session at the broker.
    id: String,
    opened: bool,
    grace: Micros,
    /// The deadline of the session.
    until: Micros,

    /// When the ping was sent that is not answered.
    probe: Option<Micros>,
    /// Something came since the last ping was due.
    heard: bool,
    suspect: bool,

    first: Option<oneshot::Sender<Result<()>>>,
    closing: bool,
    /// What the broker said of itself.
    pub server: Server,
}

impl Session {
    /// Makes a session that connects as soon as it is driven, and the word of how that went.
    pub fn new(o: Setup, now: Micros) -> (Session, oneshot::Receiver<Result<()>>) {
        let (tx, rx) = oneshot::channel();
        let grace = o.grace;
        let mut session = Session {
            o,
            now,
            alarms: Alarms::default(),
            effects: Vec::new(),
            out: Vec::new(),
            in_write: 0,
            finished: false,
            calls: BTreeMap::new(),
            holds: HashMap::new(),
            by_id: HashMap::new(),
            waiting: HashSet::new(),
            watches: BTreeMap::new(),
            last_n: 0,
            last_hold: 0,
            link: Link::Down,
            generation: 0,
            lines: Lines::new(crate::limits::MAX_REPLY_BYTES),
            linked_at: 0,
            greeted: false,
            greeting: None,
            greet_fouls: 0,
            adrift: 0,
            pause_next: 0,
            trouble: None,
            patient: 0,
            id: String::new(),
            opened: false,
            grace,
            until: NEVER,
            probe: None,
            heard: false,
            suspect: false,
            first: Some(tx),
            closing: false,
            server: Server::default(),
        };
        session.dial();
        (session, rx)
    }

    /// Does what is due.
    pub fn tick(&mut self) {
        while let Some(alarm) = self.alarms.pop(self.now) {
            match alarm {
                Alarm::Attempt => self.attempt_due(),
                Alarm::Ping => self.ping(),
                Alarm::Session => self.session_due(),
                Alarm::Overdue => self.give_up_overdue(),
                Alarm::Hold(hold) => self.hold_due(hold),
                Alarm::Cancel(n) => self.cancel_overdue(n),
                Alarm::Goodbye => {
                    self.log(Level::Warn, "the goodbye was not answered; what was held ends with the grace");
                    self.finish();
                }
            }
        }
    }

    /// Whether there is a connection with an open session.
    pub fn connected(&self) -> bool {
        self.link == Link::Ready
    }

    /// Where the connection is, and which one it is.
    pub fn link(&self) -> (Link, u64) {
        (self.link, self.generation)
    }

    fn log(&mut self, level: Level, message: impl AsRef<str>) {
        if let Some(logger) = &self.o.logger {
            let text = format!("latchkey: {}: {}", self.o.address, message.as_ref());
            self.effects.push(Effect::Log(logger.clone(), level, text));
        }
    }
}
