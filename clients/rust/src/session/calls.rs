//! Calls: made, sent, sent again, given up.

use super::*;
use crate::clock::from_ms;
use crate::error::Code;
use crate::limits::{CANCEL_WAIT, MAX_IN_FLIGHT, MAX_UNSENT_BYTES, MAX_WATCHES};
use crate::request::{aged, check, check_frame, encode};

impl Session {
    /// Asks for a lease, and says under which number.
    pub fn acquire(&mut self, fields: Fields, asks: Asks, tx: oneshot::Sender<Result<Granted>>) -> Result<u64> {
        if let Err(error) = self.check_acquire(&fields) {
            self.effects.push(Effect::Discard(asks));
            return Err(error);
        }
        let id = fields.id.clone().unwrap_or_default();
        let mut call = self.new_call(Op::Acquire, fields, Sink::Acquire(tx));
        call.asks = asks;
        let n = self.submit(call)?;
        self.waiting.insert(id);
        Ok(n)
    }

    fn check_acquire(&self, fields: &Fields) -> Result<()> {
        check(Op::Acquire, fields)?;
        let key = fields.first_key().unwrap_or_default().to_owned();
        let id = fields.id.clone().unwrap_or_default();
        if self.by_id.contains_key(&*id) || self.waiting.contains(&id) {
            let reason = "this client holds, or waits, under the same id; leave it out for one of its own";
            return Err(Error::refused(reason).about("acquire", Some(&key)));
        }
        Ok(())
    }

    /// Takes a request back whose caller gave up, and who may still wait for how that ends. Says
    /// whether there was such a request.
    pub fn abandon(&mut self, n: u64) -> bool {
        let Some(call) = self.calls.get_mut(&n).filter(|call| !call.abandoned) else {
            return self.calls.contains_key(&n);
        };
        if call.sent.is_none() {
            self.reject(n, cancelled());
            return true;
        }
        call.abandoned = true;
        let id = call.fields.id.clone();
        self.alarms.set(Alarm::Cancel(n), self.now.saturating_add(crate::clock::micros(CANCEL_WAIT)));
        self.ours(Op::Cancel, Fields { id, ..Fields::default() }, Sink::Cancel(n));
        true
    }

    /// Whoever gave a request up does not wait for the answer of its cancel any more, which stays on
    /// its way.
    pub(super) fn cancel_overdue(&mut self, n: u64) {
        if let Some(call) = self.calls.get_mut(&n) {
            let key = call.fields.first_key().map(str::to_owned);
            if let Sink::Acquire(tx) = std::mem::replace(&mut call.sink, Sink::Nothing) {
                let error = never_answered("the cancel was not answered").about("acquire", key.as_deref());
                self.effects.push(Effect::Acquired(tx, Err(error)));
            }
        }
    }

    /// Runs one command; its answer is the line that came.
    pub fn command(&mut self, op: Op, fields: Fields, tx: oneshot::Sender<Result<String>>) -> Result<()> {
        check(op, &fields)?;
        let call = self.new_call(op, fields, Sink::Line(tx));
        self.submit(call).map(|_| ())
    }

    /// Begins a watch.
    pub fn watch(&mut self, fields: Fields, buffer: Arc<Buffer>, tx: oneshot::Sender<Result<u64>>) -> Result<u64> {
        check(Op::Watch, &fields)?;
        if self.watches.len() >= MAX_WATCHES {
            let reason = format!("at most {MAX_WATCHES} watches of a client (MaxWatches)");
            return Err(Error::refused(reason).about("watch", None));
        }
        let call = self.new_call(Op::Watch, fields.clone(), Sink::Watch(tx));
        let n = self.submit(call)?;
        self.watches.insert(n, Watching { fields, buffer });
        Ok(n)
    }

    /// Ends a watch.
    pub fn unwatch(&mut self, n: u64) {
        if self.watches.remove(&n).is_none() {
            return;
        }
        let pending = self.calls.remove(&n);
        // The next connection does not begin it.
        if self.link == Link::Ready && !self.closing && pending.is_none_or(|call| call.sent.is_some()) {
            let fields = Fields { watch: Some(n), ..Fields::default() };
            self.ours(Op::Unwatch, fields, Sink::Nothing);
        }
    }

    pub(super) fn new_call(&mut self, op: Op, fields: Fields, sink: Sink) -> Call {
        self.last_n += 1;
        Call {
            n: self.last_n,
            op,
            fields,
            start: self.now,
            sent: None,
            again: false,
            told: false,
            fouls: 0,
            ours: false,
            abandoned: false,
            hold: None,
            asks: Asks::default(),
            sink,
        }
    }

    /// Sends a call that is the session's own.
    pub(super) fn ours(&mut self, op: Op, fields: Fields, sink: Sink) {
        let mut call = self.new_call(op, fields, sink);
        call.ours = true;
        let n = call.n;
        self.calls.insert(n, call);
        if self.link == Link::Ready {
            self.transmit(n);
        }
    }

    /// Sends a call, or keeps it for the next connection.
    pub(super) fn submit(&mut self, call: Call) -> Result<u64> {
        if let Err(error) = self.admit(&call) {
            let error = error.about(call.op.name(), call.fields.first_key());
            self.effects.push(Effect::Discard(call.asks));
            return Err(error);
        }
        let n = call.n;
        let due = self.due(&call);
        self.calls.insert(n, call);
        if self.link == Link::Ready {
            self.transmit(n);
        } else {
            self.alarms.hasten(Alarm::Overdue, due);
        }
        Ok(n)
    }

    fn admit(&mut self, call: &Call) -> Result<()> {
        if self.closing {
            return Err(Error::closed());
        }
        if self.calls.len() >= MAX_IN_FLIGHT {
            let reason = "requests have no answer yet, no more are allowed (MaxInFlight)";
            return Err(Error::refused(format!("{} {reason}", self.calls.len())));
        }
        let ready = self.link == Link::Ready;
        if !ready && !call.waits() && call.start >= self.patient {
            return Err(Error::unavailable(self.away()).with_cause(self.trouble.clone()));
        }
        if ready && self.out.len() + self.in_write > MAX_UNSENT_BYTES {
            return Err(Error::unavailable("the broker does not read what is sent (MaxUnsent)"));
        }
        // Nothing else can grow beyond a frame.
        if call.fields.keys.is_some() || call.fields.declared.is_some() {
            check_frame(call.op, &call.fields)?;
        }
        Ok(())
    }

    fn away(&self) -> String {
        format!("the broker at {} cannot be reached", self.o.address)
    }

    pub(super) fn transmit(&mut self, n: u64) {
        let Some(call) = self.calls.get_mut(&n) else { return };
        call.sent = Some(self.now);
        let age = self.now.saturating_sub(call.start);
        if call.op == Op::Acquire && age >= 1000 {
            encode(&mut self.out, n, call.op, &aged(&call.fields, age));
        } else {
            encode(&mut self.out, n, call.op, &call.fields);
        }
    }

    /// Sends everything that has no answer, in the old order.
    pub(super) fn send_again(&mut self, fresh: bool) {
        let idle: Vec<u64> = self.watches.keys().copied().filter(|n| !self.calls.contains_key(n)).collect();
        for n in idle {
            let fields = self.watches[&n].fields.clone();
            let mut call = self.new_call(Op::Watch, fields, Sink::WatchAgain);
            call.n = n;
            call.ours = true;
            self.calls.insert(n, call);
        }
        for n in self.numbers() {
            let call = &self.calls[&n];
            if call.abandoned {
                continue; // its cancel follows
            }
            if fresh && call.again && call.op == Op::Acquire && call.fields.detach {
                // A grant that nobody was told of would be in the way until its ttl.
                let id = call.fields.id.clone();
                self.last_n += 1;
                encode(&mut self.out, self.last_n, Op::Release, &Fields { id, ..Fields::default() });
            }
            self.transmit(n);
        }
    }

    /// Numbers of the calls that have no answer, in the order of their making.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.calls.keys().copied().collect()
    }

    /// Until when a call is kept without a connection.
    pub(super) fn due(&self, call: &Call) -> Micros {
        if call.ours {
            NEVER
        } else if !call.waits() {
            self.patient
        } else {
            call.fields.wait.map_or(NEVER, |wait| call.start.saturating_add(from_ms(wait)))
        }
    }

    pub(super) fn give_up_overdue(&mut self) {
        if self.link == Link::Ready {
            return;
        }
        for n in self.numbers() {
            if self.calls.get(&n).is_some_and(|call| self.due(call) <= self.now) {
                self.give_up(n);
            }
        }
        for n in self.numbers() {
            let due = self.due(&self.calls[&n]);
            self.alarms.hasten(Alarm::Overdue, due);
        }
    }

    /// Answers a call while there is no connection. What was sent has an outcome that cannot be known.
    pub(super) fn give_up(&mut self, n: u64) {
        let Some(call) = self.calls.get(&n).filter(|call| !call.ours) else { return };
        let foul = self.trouble.as_ref().filter(|trouble| *trouble.code() == Code::Protocol);
        let mut reason = self.away();
        if let Some(foul) = foul {
            reason = format!("{reason}: {foul}");
        }
        let code = match call.sent {
            Some(_) => Code::Unknown,
            None if foul.is_some() => Code::Protocol,
            None if call.waits() => Code::Timeout,
            None => Code::Unavailable,
        };
        // The next connection undoes it.
        let id = (code == Code::Unknown && call.op == Op::Acquire && !call.abandoned).then(|| call.fields.id.clone());
        let error = Error::new(code, reason).with_cause(self.trouble.clone());
        self.reject(n, error);
        if let Some(id) = id {
            self.ours(Op::Cancel, Fields { id, ..Fields::default() }, Sink::Nothing);
        }
    }
}

pub(super) fn cancelled() -> Error {
    Error::new(Code::Cancelled, "the caller gave up; nothing is held or queued")
}

pub(super) fn never_answered(reason: &str) -> Error {
    Error::new(Code::Unknown, format!("{reason}; a grant ends with its ttl"))
}
