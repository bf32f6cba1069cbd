//! The end of a client.

use super::*;
use crate::clock::micros;
use crate::error::Code;
use crate::limits::CANCEL_WAIT;

impl Session {
    /// Says goodbye, which releases what is not detached, and ends everything else. A second call is
    /// harmless.
    pub fn close(&mut self) {
        if self.closing {
            return;
        }
        self.settle();
        if self.id.is_empty() {
            self.finish(); // there is nobody to say goodbye to
            return;
        }
        self.alarms.set(Alarm::Goodbye, self.now.saturating_add(micros(CANCEL_WAIT)));
        self.ours(Op::Close, Fields::default(), Sink::Goodbye);
        // Without a connection, the next one says it if it comes in time: others may wait for what was held.
        if self.link == Link::Down {
            self.alarms.set(Alarm::Attempt, self.now);
        }
    }

    /// Ends everything without a word to the broker.
    pub fn abort(&mut self) {
        self.settle();
        self.finish();
    }

    /// Ends every hold, call and watch on this side.
    fn settle(&mut self) {
        self.closing = true;
        self.alarms.clear_all();
        if let Some(first) = self.first.take() {
            self.effects.push(Effect::Done(first, Err(Error::closed().about("connect", None))));
        }
        for n in self.active() {
            let key = self.holds[&n].keys[0].clone();
            self.lose(n, Error::closed().about("hold", Some(&key)));
        }
        for n in self.numbers() {
            let Some(call) = self.calls.get(&n) else { continue };
            let lasting = call.sent.is_some() && call.op == Op::Acquire && call.fields.detach;
            let error = if lasting {
                Error::new(Code::Unknown, "the client was closed before the answer; a grant lasts until its ttl")
            } else {
                Error::closed()
            };
            self.reject(n, error);
        }
        for watching in std::mem::take(&mut self.watches).into_values() {
            self.effects.extend(watching.buffer.end(Error::closed().about("watch", None)).map(Effect::Wake));
        }
        self.alarms.clear_all();
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
        self.link = Link::Down;
        self.generation += 1;
        self.calls.clear();
        self.alarms.clear_all();
    }
}
