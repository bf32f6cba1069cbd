//! Answers and notices: to whom they go, and what they change.

use super::calls::{cancelled, never_answered};
use super::*;
use crate::error::Code;
use crate::sight::WatchEvent;
use crate::wire::{decode, decode_failure, decode_grant, loss, Notice, Reply, What};

/// The line of an answer that nobody sent.
const NO_ANSWER: &str = "{}";

impl Session {
    pub(super) fn take(&mut self, reply: Reply<'_>) -> Result<()> {
        let n = reply.n;
        match reply.what {
            What::Lost => return self.noticed(&decode(reply.line)?),
            What::Event => {
                let event: WatchEvent = decode(reply.line)?;
                self.tell_watch(n, event);
            }
            What::Queued => self.queued(n, decode(reply.line)?),
            What::Ok if self.calls.contains_key(&n) => return self.succeeded(n, reply.line),
            What::Failed if self.calls.contains_key(&n) => return self.failed(n, decode_failure(reply.line)?),
            What::Ok | What::Failed | What::Part => {} // of a call that was given up
        }
        Ok(())
    }

    fn tell_watch(&mut self, n: u64, event: WatchEvent) {
        if let Some(watching) = self.watches.get(&n) {
            self.effects.extend(watching.buffer.push(event).map(Effect::Wake));
        }
    }

    fn queued(&mut self, n: u64, queued: Queued) {
        let Some(call) = self.calls.get_mut(&n) else { return };
        if call.told {
            return; // what is sent again is queued again
        }
        call.told = true;
        if call.abandoned {
            return;
        }
        if let Some(f) = call.asks.on_queued.take() {
            self.effects.push(Effect::Queued(f, queued));
        }
    }

    /// Removes a call that has its answer.
    fn take_call(&mut self, n: u64) -> Option<Call> {
        let call = self.calls.remove(&n)?;
        if call.op == Op::Acquire {
            if let Some(id) = &call.fields.id {
                self.waiting.remove(id);
            }
            self.alarms.clear(Alarm::Cancel(n));
        }
        Some(call)
    }

    fn succeeded(&mut self, n: u64, line: &str) -> Result<()> {
        if self.calls[&n].op == Op::Acquire {
            return self.granted(n, line);
        }
        if matches!(self.calls[&n].op, Op::Renew | Op::Detach) {
            decode_grant(line)?; // a breach leaves the call to be asked again
        }
        if self.calls[&n].op == Op::Ping {
            self.probe = None;
            let sent = self.calls[&n].sent.unwrap_or(0);
            self.proof(sent);
        }
        self.resolve(n, line);
        Ok(())
    }

    fn granted(&mut self, n: u64, line: &str) -> Result<()> {
        let grant = decode_grant(line)?; // a breach leaves the call to be asked again
        let call = &self.calls[&n];
        if call.fields.id.as_deref() != Some(&*grant.id) {
            return Err(Error::breach("a grant names another id than the request"));
        }
        let missing = call.fields.missing(&grant.keys);
        if missing.is_none_or(|missing| missing > 0 && !call.again) {
            return Err(Error::breach("a grant names other keys than the request"));
        }
        if call.abandoned {
            return Ok(()); // it crossed the cancel, which releases it
        }
        let Some(mut call) = self.take_call(n) else { return Ok(()) };
        let Sink::Acquire(tx) = call.sink else { return Ok(()) };
        let id = grant.id.clone();
        let granted = if missing == Some(0) {
            self.hold(grant, call.sent.unwrap_or(call.start), &mut call.asks)
        } else {
            let reason = "a key was taken away before the grant was heard; the others were given back";
            Err(Error::new(Code::Forced, reason))
        };
        let told = match granted {
            Ok(granted) => Ok(granted),
            Err(error) => {
                // Giving it back is kinder than letting the key idle until the broker ends it.
                self.ours(Op::Release, Fields::of_hold(&id), Sink::Nothing);
                Err(error.about("acquire", call.fields.first_key()))
            }
        };
        self.effects.push(Effect::Acquired(tx, told));
        self.effects.push(Effect::Discard(call.asks));
        Ok(())
    }

    fn failed(&mut self, n: u64, error: Error) -> Result<()> {
        let gone = *error.code() == Code::SessionLost;
        let call = &self.calls[&n];
        let asks_again = gone || (*error.code() == Code::Closed && call.waits());
        if call.op == Op::Ping {
            self.calls.remove(&n);
            self.probe = None;
            if !gone {
                return Err(error); // a broker that closes; the next one will say
            }
        } else if call.op == Op::Acquire && !call.abandoned && asks_again {
            // Nothing was done, and nothing is lost by asking again once there is a connection.
            if let Some(call) = self.calls.get_mut(&n) {
                call.sent = None;
            }
        } else if self.is_done(call, &error) {
            self.resolve(n, NO_ANSWER);
        } else if call.abandoned && *error.code() != Code::Unknown {
            self.reject(n, cancelled());
        } else {
            self.reject(n, error);
        }
        if gone {
            return self.lost_session();
        }
        Ok(())
    }

    /// Whether a failure says that the first sending had done it.
    fn is_done(&self, call: &Call, error: &Error) -> bool {
        if !matches!(error.code(), Code::NotHeld | Code::Over) {
            return false;
        }
        let lost = call.hold.and_then(|hold| self.holds.get(&hold)).is_some_and(|hold| hold.cause.is_some());
        call.op == Op::Cancel || (call.op == Op::Release && call.again && !lost)
    }

    pub(super) fn resolve(&mut self, n: u64, line: &str) {
        let Some(call) = self.take_call(n) else { return };
        self.effects.push(Effect::Discard(call.asks));
        match call.sink {
            Sink::Line(tx) => {
                self.effects.push(Effect::Line(tx, Ok(line.to_owned())));
            }
            Sink::Renewal => self.renewed(call.hold, line, call.sent.unwrap_or(call.start)),
            Sink::Extend(tx) => {
                let result = self.extended(call.hold, line, call.sent.unwrap_or(call.start));
                self.effects.push(Effect::Done(tx, result));
            }
            Sink::Release => self.released(call.hold, Ok(())),
            Sink::Cancel(other) => self.reject(other, cancelled()),
            Sink::Watch(tx) => {
                self.effects.push(Effect::Watching(tx, Ok(n)));
            }
            Sink::WatchAgain => self.tell_watch(n, WatchEvent::gap()),
            Sink::Goodbye => self.finish(),
            Sink::Nothing | Sink::Ping | Sink::Acquire(_) => {}
        }
    }

    pub(super) fn reject(&mut self, n: u64, error: Error) {
        let Some(call) = self.take_call(n) else { return };
        let key = call.hold.and_then(|hold| self.holds.get(&hold)).and_then(|hold| hold.keys.first().cloned());
        let error = error.about(call.op.name(), key.as_deref().or_else(|| call.fields.first_key()));
        self.effects.push(Effect::Discard(call.asks));
        match call.sink {
            Sink::Acquire(tx) => self.effects.push(Effect::Acquired(tx, Err(error))),
            Sink::Line(tx) => self.effects.push(Effect::Line(tx, Err(error))),
            Sink::Renewal => self.renewal_failed(call.hold, error),
            Sink::Extend(tx) => {
                let error = self.judged(call.hold, error);
                self.effects.push(Effect::Done(tx, Err(error)));
            }
            Sink::Release => self.released(call.hold, Err(error)),
            Sink::Cancel(other) => self.reject(other, never_answered(&format!("the cancel failed: {error}"))),
            Sink::Watch(tx) => {
                self.watches.remove(&n);
                self.effects.push(Effect::Watching(tx, Err(error)));
            }
            Sink::WatchAgain => {
                if let Some(watching) = self.watches.remove(&n) {
                    self.effects.extend(watching.buffer.end(error).map(Effect::Wake));
                }
            }
            Sink::Goodbye => self.finish(),
            Sink::Nothing | Sink::Ping => {}
        }
    }

    fn noticed(&mut self, notice: &Notice) -> Result<()> {
        if notice.id.is_empty() {
            return self.lost_session();
        }
        let Some(&n) = self.by_id.get(&*notice.id) else { return Ok(()) };
        let hold = &self.holds[&n];
        if !notice.key.is_empty() && !hold.has(&notice.key, notice.token.0) {
            return Ok(());
        }
        let key = if notice.key.is_empty() { hold.keys[0].clone() } else { notice.key.clone() };
        self.lose(n, loss(notice).about("hold", Some(&key)));
        Ok(())
    }

    /// The broker's word that the session is gone; the next one gets a connection of its own.
    fn lost_session(&mut self) -> Result<()> {
        self.lose_session();
        Err(Error::new(Code::SessionLost, "the broker ended the session"))
    }

    /// Takes the end of the session at the broker: holds are lost, what waits stays for the next one.
    pub(super) fn lose_session(&mut self) {
        if self.id.is_empty() {
            return;
        }
        self.id.clear();
        let held = self.by_id.len();
        self.log(Level::Warn, format!("the broker ended the session; {held} holds were in it"));
        for n in self.numbers() {
            self.lose_call(n);
        }
        for n in self.active() {
            let hold = &self.holds[&n];
            if !hold.detached {
                let key = hold.keys[0].clone();
                let cause = Error::new(Code::SessionLost, "the broker ended the session");
                self.lose(n, cause.about("hold", Some(&key)));
            }
        }
    }

    /// Settles a call about a hold of the session that is gone.
    fn lose_call(&mut self, n: u64) {
        let Some(call) = self.calls.get(&n) else { return };
        match call.op {
            Op::Acquire if call.abandoned => {
                // The end released it, but for a grant that outlives it.
                let lasts = (call.again && call.fields.detach).then(|| call.fields.id.clone()).flatten();
                self.reject(n, cancelled());
                if let Some(id) = lasts {
                    self.ours(Op::Release, Fields::of_hold(&id), Sink::Nothing);
                }
            }
            Op::Cancel | Op::Unwatch => self.resolve(n, NO_ANSWER),
            Op::Release | Op::Renew | Op::Detach => {
                let Some(hold) = call.hold.and_then(|hold| self.holds.get(&hold)) else { return };
                if hold.detached {
                    return; // it outlives this session
                }
                if call.op == Op::Release && hold.cause.is_none() {
                    self.resolve(n, NO_ANSWER); // if it was not carried out, the end did the same
                    return;
                }
                self.reject(n, Error::new(Code::SessionLost, "the session ended, and the hold with it"));
            }
            _ => {}
        }
    }
}
