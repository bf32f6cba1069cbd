//! Connections: made, greeted, put to use, broken.

use super::*;
use crate::deadlines;
use crate::error::Code;
use crate::limits::{DEFAULT_GRACE, MAX_REPLY_BYTES};
use crate::request::{encode, HELLO};
use crate::wire::{decode_failure, decode_hello, decode_open, decode_reply, Opened, Reply, What};

impl Session {
    pub(super) fn dial(&mut self) {
        self.greeted = false;
        self.greeting = None;
        self.generation += 1;
        self.link = Link::Dialing;
        let mut patience = self.o.connect_timeout;
        // Time for more than one attempt while the session lives.
        if self.opened && self.grace > 0 {
            patience = patience.min((self.grace / 3).max(250_000));
        }
        self.alarms.set(Alarm::Attempt, self.now.saturating_add(patience));
    }

    pub(super) fn attempt_due(&mut self) {
        match self.link {
            Link::Down => self.dial(),
            Link::Dialing | Link::Greeting => {
                let reason = format!("no answer from {} in time", self.o.address);
                self.link_down(Error::unavailable(reason));
            }
            Link::Ready => {}
        }
    }

    /// The connection of this generation stands.
    pub fn link_up(&mut self, generation: u64) {
        if generation != self.generation || self.link != Link::Dialing {
            return;
        }
        self.link = Link::Greeting;
        self.lines = Lines::new(MAX_REPLY_BYTES);
        self.out = HELLO.to_vec();
        self.in_write = 0;
        self.greet();
    }

    fn greet(&mut self) {
        self.last_n += 1;
        let (n, resume) = (self.last_n, !self.id.is_empty());
        let fields = if resume {
            Fields { resume: Some(self.id.clone()), ..Fields::default() }
        } else {
            Fields {
                name: self.o.name.clone(),
                host: self.o.host.clone(),
                pid: self.o.pid,
                grace: Some(self.grace / 1000),
                ..Fields::default()
            }
        };
        self.greeting = Some(Greeting { n, sent: self.now, resume, parts: Vec::new() });
        encode(&mut self.out, n, Op::Open, &fields);
    }

    /// Takes bytes that came on the connection of this generation.
    pub fn received(&mut self, generation: u64, bytes: &[u8]) {
        if !self.is_up(generation) {
            return;
        }
        let mut lines = std::mem::replace(&mut self.lines, Lines::new(0));
        let result = lines.push(bytes, |line| {
            // A line before this one may have ended the connection.
            if self.is_up(generation) {
                self.line(line)
            } else {
                Ok(())
            }
        });
        if self.is_up(generation) {
            self.lines = lines;
            if let Err(error) = result {
                self.link_down(error);
            }
        }
    }

    fn is_up(&self, generation: u64) -> bool {
        generation == self.generation && matches!(self.link, Link::Greeting | Link::Ready)
    }

    /// The connection of this generation is of no use any more.
    pub fn broke(&mut self, generation: u64, error: Error) {
        if generation == self.generation && self.link != Link::Down {
            self.link_down(error);
        }
    }

    /// Takes one line. A failure breaks the connection.
    fn line(&mut self, line: &[u8]) -> Result<()> {
        self.heard = true;
        if !self.greeted {
            self.server = decode_hello(line)?;
            self.greeted = true;
            return Ok(());
        }
        let reply = decode_reply(line)?;
        if reply.what == What::Failed && reply.n == 0 {
            return Err(decode_failure(reply.line)?); // the last frame of a connection
        }
        if self.link == Link::Ready {
            self.take(reply)
        } else {
            self.greeting_reply(reply)
        }
    }

    fn greeting_reply(&mut self, reply: Reply<'_>) -> Result<()> {
        let Some(mut greeting) = self.greeting.take_if(|greeting| greeting.n == reply.n) else {
            return Ok(());
        };
        match reply.what {
            What::Ok => return self.install(greeting, decode_open(reply.line)?),
            What::Failed => {
                let error = decode_failure(reply.line)?;
                if !greeting.resume || *error.code() != Code::SessionLost {
                    return Err(error);
                }
                self.lose_session();
                if self.closing {
                    self.finish();
                } else {
                    self.greet();
                }
                return Ok(());
            }
            What::Part => greeting.parts.extend(decode_open(reply.line)?.leases),
            What::Queued | What::Event | What::Lost => {}
        }
        self.greeting = Some(greeting);
        Ok(())
    }

    /// Puts a connection with an open session to use.
    fn install(&mut self, greeting: Greeting, opened: Opened) -> Result<()> {
        if opened.session.is_empty() {
            return Err(Error::breach("the answer to open names no session"));
        }
        if greeting.resume && opened.session != self.id {
            return Err(Error::breach("the answer to a resume names another session"));
        }
        let mut leases = greeting.parts;
        for part in &mut leases {
            part.elapsed = opened.elapsed;
        }
        leases.extend(opened.leases);
        let fresh = !greeting.resume;
        if fresh {
            self.adrift = 0;
            self.grace = opened.grace.unwrap_or(self.grace);
        }
        let first = !self.opened;
        self.id = opened.session;
        self.opened = true;
        self.link = Link::Ready;
        self.linked_at = self.now;
        self.greet_fouls = 0;
        self.trouble = None;
        self.alarms.clear(Alarm::Attempt);
        self.alarms.clear(Alarm::Overdue);
        // Losses are told before the deadline moves, so that no hold of before looks safe for a moment.
        if fresh {
            self.until = deadlines::session(greeting.sent, self.grace);
        } else {
            self.reconcile(&leases, greeting.sent);
            self.proof(greeting.sent);
        }
        if !first {
            let how = if fresh { "in a new session" } else { "and resumed the session" };
            self.log(Level::Info, format!("connected to the broker again {how}"));
        }
        self.send_again(fresh);
        self.probe = None;
        self.suspect = false;
        self.alarms.set(Alarm::Ping, self.now.saturating_add(self.ping_every()));
        if let Some(first) = self.first.take() {
            self.effects.push(Effect::Done(first, Ok(())));
        }
        Ok(())
    }

    /// Ends the connection, and begins what leads to another.
    pub(super) fn link_down(&mut self, error: Error) {
        let was_ready = self.link == Link::Ready;
        self.link = Link::Down;
        self.generation += 1;
        self.out = Vec::new();
        self.in_write = 0;
        let taken = *error.code() == Code::SessionLost && !self.id.is_empty();
        // A part of the answer tells that the broker came to it.
        if self.greeting.take().is_some_and(|greeting| greeting.resume && greeting.parts.is_empty() && !taken) {
            self.adrift = self.adrift.saturating_add(1);
        }
        self.alarms.clear(Alarm::Ping);
        self.alarms.clear(Alarm::Attempt);
        if self.closing && (was_ready || self.id.is_empty() || taken && !self.excuse()) {
            self.finish();
            return;
        }
        if self.closing {
            self.try_again();
            return;
        }
        if self.first.is_some() {
            self.refuse_open(error);
            return;
        }
        self.trouble = Some(error.clone());
        let foul = *error.code() == Code::Protocol;
        // A takeover may also be told in place of the answer to the open.
        if was_ready || taken {
            if was_ready && self.now.saturating_sub(self.linked_at) >= SETTLED_LIFE {
                self.pause_next = 0;
            }
            self.broken(&error, foul, taken);
        } else if foul {
            self.greet_fouls += 1;
            if self.greet_fouls >= FOULS {
                self.greet_fouls = 0;
                for n in self.numbers() {
                    self.give_up(n);
                }
            }
        }
        self.try_again();
    }

    fn try_again(&mut self) {
        let pause = self.pause_next;
        self.pause_next = (2 * pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        // Between half of a pause and all of it, so that many clients do not come back in step.
        self.alarms.set(Alarm::Attempt, self.now.saturating_add(jitter(pause)));
    }

    fn refuse_open(&mut self, error: Error) {
        let told = match error.code() {
            Code::Unavailable if error.op().is_none() => {
                let why = error.reason().unwrap_or("no reason was given").to_owned();
                Error::unavailable(format!("no broker reached at {}: {why}", self.o.address))
            }
            _ => error,
        };
        if let Some(first) = self.first.take() {
            self.effects.push(Effect::Done(first, Err(told.about("connect", None))));
        }
        self.abort();
    }

    /// Adjusts everything to having no connection.
    fn broken(&mut self, error: &Error, foul: bool, taken: bool) {
        self.probe = None;
        let grace = crate::clock::micros(DEFAULT_GRACE);
        self.patient = if self.until == NEVER { self.now.saturating_add(grace) } else { self.until };
        if taken && !self.excuse() {
            // Another connection resumed it: its holds are that one's now, and are not taken back.
            for n in self.numbers() {
                if !matches!(self.calls[&n].op, Op::List | Op::Stats | Op::Watch) {
                    self.reject(n, Error::new(Code::SessionLost, "another connection resumed the session"));
                }
            }
            self.lose_session();
        }
        for n in self.numbers() {
            let Some(call) = self.calls.get_mut(&n) else { continue };
            if call.op == Op::Ping {
                self.calls.remove(&n);
                continue;
            }
            if call.sent.is_none() {
                continue;
            }
            call.again = true;
            if foul && !call.told {
                call.fouls += 1;
                if call.fouls >= FOULS {
                    self.give_up(n);
                }
            }
        }
        if self.grace == 0 {
            self.lose_session(); // it ended with its connection
        }
        self.log(Level::Warn, format!("the connection to the broker broke: {error}"));
        let lost = Error::unavailable("the connection to the broker broke").with_cause(Some(error.clone()));
        for hold in self.active() {
            if !self.holds[&hold].detached {
                self.troubled(hold, lost.clone());
            }
        }
        for n in self.numbers() {
            let due = self.due(&self.calls[&n]);
            self.alarms.hasten(Alarm::Overdue, due);
        }
    }

    /// Whether a takeover of the session may be of this side's own making: an open on a connection that
    /// was given up, to which the broker came after a newer one. Each such open excuses one takeover, so
    /// that somebody else who has the id prevails in the end.
    fn excuse(&mut self) -> bool {
        let own = self.adrift > 0;
        self.adrift = self.adrift.saturating_sub(1);
        own
    }

    /// The broker had a sign of life that was sent then.
    pub(super) fn proof(&mut self, sent: Micros) {
        let until = deadlines::session(sent, self.grace);
        if until <= self.until && self.until != NEVER {
            return;
        }
        self.sweep();
        self.until = until;
    }

    fn ping_every(&self) -> Micros {
        if self.grace > 0 {
            (self.grace / 3).max(1000)
        } else {
            IDLE_PING
        }
    }

    pub(super) fn ping(&mut self) {
        if self.link != Link::Ready || self.closing {
            return;
        }
        self.sweep(); // also after a sleep of the machine, in which no alarm rings
        match self.probe {
            None => {
                self.probe = Some(self.now);
                self.ours(Op::Ping, Fields::default(), Sink::Ping);
            }
            Some(sent) if !self.heard || (self.grace > 0 && self.now.saturating_sub(sent) >= self.grace) => {
                if self.suspect {
                    self.link_down(Error::unavailable("the broker answers no ping"));
                    return;
                }
                self.suspect = true;
                self.alarms.set(Alarm::Ping, self.now + SECOND_LOOK.min(self.ping_every() / 2));
                return;
            }
            Some(_) => {}
        }
        self.suspect = false;
        self.heard = false;
        self.alarms.set(Alarm::Ping, self.now.saturating_add(self.ping_every()));
    }
}

/// Between half of a time and all of it.
pub(super) fn jitter(d: Micros) -> Micros {
    if d == 0 {
        return 0;
    }
    // Without randomness there is the same jitter each time, which is no reason to fail.
    d / 2 + getrandom::u64().unwrap_or(0) % (d / 2 + 1)
}
