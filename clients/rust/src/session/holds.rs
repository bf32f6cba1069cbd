//! Holds: kept, renewed, watched, lost.

use super::connect::jitter;
use super::*;
use crate::deadlines;
use crate::error::Code;
use crate::request::Ttl;
use crate::wire::decode_grant;

/// A hold that was granted, as far as it does not change.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub n: u64,
    pub id: Arc<str>,
    pub keys: Arc<[String]>,
    pub tokens: Arc<[Option<u64>]>,
    pub waited: Micros,
    pub lost: CancellationToken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Held,
    Lost,
    Released,
}

/// What is known of a hold now.
pub(crate) struct View {
    /// Why it has ended, if it has.
    pub ended: Option<Error>,
    pub safe_until: Micros,
    pub ttl: Micros,
    pub detached: bool,
}

pub(super) struct Held {
    pub id: Arc<str>,
    pub keys: Arc<[String]>,
    tokens: Arc<[Option<u64>]>,
    renews: bool,
    on_troubled: Option<OnTroubled>,
    lost: CancellationToken,
    phase: Phase,
    pub cause: Option<Error>,
    /// Of the lease, or what was safe when it was lost.
    until: Micros,
    ttl: Micros,
    pub detached: bool,
    renew_at: Micros,
    /// When the renewal was sent that is not answered.
    asked_at: Option<Micros>,
    overdue: bool,
    failures: u32,
    trouble: Option<Error>,
    /// The broker does not have it any more.
    given: bool,
    /// Who waits for the release.
    releasing: Vec<oneshot::Sender<Result<()>>>,
}

impl Held {
    /// Whether a notice or an entry of the broker is about what is held here.
    pub fn has(&self, key: &str, token: Option<u64>) -> bool {
        let own = self.keys.iter().zip(self.tokens.iter()).find(|(own, _)| *own == key);
        own.is_some_and(|(_, own)| own.is_none() || token.is_none() || *own == token)
    }

    fn take(&mut self, grant: &Grant, sent: Micros) {
        self.until = deadlines::lease(sent, grant);
        self.ttl = grant.ttl;
        self.detached |= grant.detached;
    }
}

impl Session {
    /// Begins to hold what was granted to a request that was sent then.
    pub(super) fn hold(&mut self, grant: Grant, sent: Micros, asks: &mut Asks) -> Result<Granted> {
        let until = deadlines::lease(sent, &grant);
        if self.now >= deadlines::safe_until(until, self.until, grant.detached) {
            let reason = "the grant arrived when its time was already up; it was given back";
            return Err(Error::new(Code::Expired, reason));
        }
        // From the deadline, not from now: the answer may be late.
        let renew_at = if asks.renews && grant.ttl != NEVER && grant.remaining != NEVER {
            sent.saturating_add(grant.elapsed).saturating_add(grant.remaining).saturating_sub(grant.ttl / 3 * 2)
        } else {
            NEVER
        };
        self.last_hold += 1;
        let granted = Granted {
            n: self.last_hold,
            id: grant.id.clone().into(),
            keys: grant.keys.clone(),
            tokens: grant.tokens.clone(),
            waited: grant.waited,
            lost: CancellationToken::new(),
        };
        let mut held = Held {
            id: granted.id.clone(),
            keys: granted.keys.clone(),
            tokens: granted.tokens.clone(),
            renews: asks.renews,
            on_troubled: asks.on_troubled.take(),
            lost: granted.lost.clone(),
            phase: Phase::Held,
            cause: None,
            until: 0,
            ttl: 0,
            detached: false,
            renew_at,
            asked_at: None,
            overdue: false,
            failures: 0,
            trouble: None,
            given: false,
            releasing: Vec::new(),
        };
        held.take(&grant, sent);
        self.by_id.insert(granted.id.clone(), granted.n);
        self.holds.insert(granted.n, held);
        self.arm(granted.n);
        self.alarms.hasten(Alarm::Session, self.until);
        Ok(granted)
    }

    /// The holds that are not known to have ended, oldest first.
    pub(super) fn active(&self) -> Vec<u64> {
        let mut active: Vec<u64> = self.by_id.values().copied().collect();
        active.sort_unstable();
        active
    }

    fn safe_until(&self, held: &Held) -> Micros {
        match held.phase {
            Phase::Lost => held.until,
            Phase::Held | Phase::Released => deadlines::safe_until(held.until, self.until, held.detached),
        }
    }

    /// Looks at a hold; a deadline that has passed ends it.
    pub fn look(&mut self, n: u64) -> View {
        self.sweep_hold(n);
        let Some(held) = self.holds.get(&n) else {
            return View { ended: Some(Error::closed()), safe_until: 0, ttl: 0, detached: false };
        };
        let ended = match held.phase {
            Phase::Held => None,
            Phase::Lost | Phase::Released => Some(held.cause.clone().unwrap_or_else(|| {
                Error::new(Code::NotHeld, "it was released").about("hold", held.keys.first().map(String::as_str))
            })),
        };
        View { ended, safe_until: self.safe_until(held), ttl: held.ttl, detached: held.detached }
    }

    /// Why the hold was lost, without a look at the clock.
    pub fn loss(&self, n: u64) -> Option<Error> {
        self.holds.get(&n)?.cause.clone()
    }

    /// Starts the watch over a hold.
    fn arm(&mut self, n: u64) {
        let Some(held) = self.holds.get(&n).filter(|held| held.phase == Phase::Held) else { return };
        let next = match held.asked_at {
            None => held.renew_at,
            Some(asked) if !held.overdue => asked.saturating_add(patience(held.ttl)),
            Some(_) => NEVER,
        };
        let next = next.min(held.until);
        self.alarms.set(Alarm::Hold(n), next);
    }

    pub(super) fn hold_due(&mut self, n: u64) {
        self.sweep_hold(n);
        let Some(held) = self.holds.get_mut(&n).filter(|held| held.phase == Phase::Held) else { return };
        match held.asked_at {
            None if self.now >= held.renew_at => self.renew_by_itself(n),
            Some(asked) if !held.overdue && self.now >= asked.saturating_add(patience(held.ttl)) => {
                held.overdue = true;
                let key = held.keys[0].clone();
                self.tell(n, Error::unavailable("no answer yet").about("renew", Some(&key)));
            }
            _ => {}
        }
        self.arm(n);
    }

    fn renew_by_itself(&mut self, n: u64) {
        let Some(held) = self.holds.get_mut(&n) else { return };
        held.asked_at = Some(self.now);
        held.overdue = false;
        let fields = Fields::of_hold(&held.id);
        let mut call = self.new_call(Op::Renew, fields, Sink::Renewal);
        call.hold = Some(n);
        if let Err(error) = self.submit(call) {
            self.renewal_failed(Some(n), error);
        }
    }

    pub(super) fn renewed(&mut self, hold: Option<u64>, line: &str, sent: Micros) {
        let Some(n) = hold else { return };
        if let Some(held) = self.holds.get_mut(&n) {
            held.asked_at = None;
        }
        let _ = self.extended(hold, line, sent); // the line was read before
    }

    pub(super) fn renewal_failed(&mut self, hold: Option<u64>, error: Error) {
        let Some(n) = hold else { return };
        if let Some(held) = self.holds.get_mut(&n) {
            held.asked_at = None;
        }
        let error = self.judged(hold, error);
        let Some(held) = self.holds.get(&n).filter(|held| held.phase == Phase::Held) else { return };
        let left = self.safe_until(held).saturating_sub(self.now);
        let pause = pause(held.ttl, left, held.failures);
        if let Some(held) = self.holds.get_mut(&n) {
            held.renew_at = self.now.saturating_add(pause);
            held.failures += 1;
        }
        self.tell(n, error);
        self.arm(n);
    }

    /// Takes a renewal, and says whether the hold is still held.
    pub(super) fn extended(&mut self, hold: Option<u64>, line: &str, sent: Micros) -> Result<()> {
        let grant = decode_grant(line)?;
        let Some(n) = hold else { return Ok(()) };
        // What has passed is over, whatever the broker says now: nobody knows who held it meanwhile.
        self.sweep_hold(n);
        let Some(held) = self.holds.get_mut(&n) else { return Ok(()) };
        if held.phase == Phase::Held {
            held.failures = 0;
            held.trouble = None;
            held.take(&grant, sent);
            // A broker that grants no time is not asked without a pause.
            let next = sent.saturating_add(held.ttl / 3).max(self.now.saturating_add(LEAST_PAUSE));
            held.renew_at = if held.renews && held.ttl != NEVER { next } else { NEVER };
            self.arm(n);
        }
        self.loss(n).map_or(Ok(()), Err)
    }

    /// Ends the hold when an answer about it proves that it is lost; says with what a caller is told.
    pub(super) fn judged(&mut self, hold: Option<u64>, error: Error) -> Error {
        let Some(n) = hold else { return error };
        let code = match error.code() {
            Code::NotHeld | Code::Over | Code::Expired => Some(Code::Expired),
            Code::Forced => Some(Code::Forced),
            Code::SessionLost => Some(Code::SessionLost),
            _ => None,
        };
        if let (Some(code), Some(held)) = (code, self.holds.get(&n)) {
            let cause = Error::new(code, "the broker does not know the hold any more").with_cause(Some(error.clone()));
            let cause = cause.about("hold", held.keys.first().map(String::as_str));
            self.lose(n, cause);
        }
        self.loss(n).unwrap_or(error)
    }

    /// Renews or detaches as asked.
    pub fn extend(&mut self, n: u64, op: Op, ttl: Option<Ttl>, tx: oneshot::Sender<Result<()>>) -> Result<()> {
        if let Some(ended) = self.look(n).ended {
            return Err(ended);
        }
        let Some(held) = self.holds.get(&n) else { return Err(Error::closed()) };
        let key = held.keys[0].clone();
        let mut fields = Fields::of_hold(&held.id);
        if let Some(ttl) = ttl {
            fields.set_ttl(ttl).map_err(|e| e.about(op.name(), Some(&key)))?;
        }
        let mut call = self.new_call(op, fields, Sink::Extend(tx));
        call.hold = Some(n);
        self.submit(call).map(|_| ()).map_err(|e| e.about(op.name(), Some(&key)))
    }

    /// Ends a hold from this side. `tx` is told how that went.
    pub fn release(&mut self, n: u64, tx: oneshot::Sender<Result<()>>) {
        self.sweep_hold(n);
        let Some(held) = self.holds.get_mut(&n) else {
            self.effects.push(Effect::Done(tx, Err(Error::closed())));
            return;
        };
        held.releasing.push(tx);
        if held.releasing.len() > 1 {
            return;
        }
        if held.phase == Phase::Held {
            held.phase = Phase::Released;
        }
        if held.given {
            self.released(Some(n), Ok(()));
            return;
        }
        let (id, fields, key) = (held.id.clone(), Fields::of_hold(&held.id), held.keys[0].clone());
        self.forget(n, &id);
        let mut call = self.new_call(Op::Release, fields, Sink::Release);
        call.hold = Some(n);
        if let Err(error) = self.submit(call) {
            self.released(Some(n), Err(error.about("release", Some(&key))));
        }
    }

    pub(super) fn released(&mut self, hold: Option<u64>, result: Result<()>) {
        let Some(held) = hold.and_then(|n| self.holds.get_mut(&n)) else { return };
        match &result {
            Ok(()) => held.given = true,
            Err(error) if matches!(error.code(), Code::NotHeld | Code::Over) => held.given = true,
            Err(_) => {}
        }
        let told = held.cause.clone().map_or(result, Err);
        for tx in std::mem::take(&mut held.releasing) {
            self.effects.push(Effect::Done(tx, told.clone()));
        }
    }

    /// Nobody has the hold any more: it is released in the background, but for a detached one.
    pub fn abandon_hold(&mut self, n: u64) {
        let Some(mut held) = self.holds.remove(&n) else { return };
        let on_troubled = held.on_troubled.take();
        self.effects.push(Effect::Discard(Asks { on_troubled, ..Asks::default() }));
        self.forget(n, &held.id.clone());
        if held.given || held.detached || self.closing {
            return;
        }
        if held.releasing.is_empty() {
            self.ours(Op::Release, Fields::of_hold(&held.id), Sink::Nothing);
            return;
        }
        // It is on its way; nobody waits for it, so that it is not given up either.
        for call in self.calls.values_mut().filter(|call| call.op == Op::Release && call.hold == Some(n)) {
            call.ours = true;
        }
    }

    fn forget(&mut self, n: u64, id: &str) {
        self.alarms.clear(Alarm::Hold(n));
        if self.by_id.get(id) == Some(&n) {
            self.by_id.remove(id);
        }
    }

    /// Ends a hold from the broker's side, or by the clock.
    pub(super) fn lose(&mut self, n: u64, cause: Error) {
        let Some(held) = self.holds.get(&n).filter(|held| held.phase == Phase::Held) else { return };
        let until = self.safe_until(held);
        let Some(held) = self.holds.get_mut(&n) else { return };
        held.until = until;
        held.phase = Phase::Lost;
        // The session's end released it, and a closed client cannot ask.
        held.given = matches!(cause.code(), Code::SessionLost | Code::Closed);
        held.cause = Some(cause.into_loss());
        let (id, lost) = (held.id.clone(), held.lost.clone());
        self.forget(n, &id);
        self.effects.push(Effect::Lost(lost));
    }

    /// Ends a hold if its time has passed.
    fn sweep_hold(&mut self, n: u64) {
        let Some(held) = self.holds.get(&n).filter(|held| held.phase == Phase::Held) else { return };
        if self.now < self.safe_until(held) {
            return;
        }
        let unconfirmed = held.failures > 0 || held.asked_at.is_some() || self.now < held.until;
        let cause = if unconfirmed {
            let cause = Error::new(Code::ServiceGone, "not confirmed by the broker up to its deadline");
            cause.with_cause(held.trouble.clone())
        } else {
            let why = "it was not renewed, reached its longest hold, or this process stood still";
            Error::new(Code::Expired, format!("its deadline passed: {why}"))
        };
        let cause = cause.about("hold", held.keys.first().map(String::as_str));
        self.lose(n, cause);
    }

    /// Ends all holds whose time has passed.
    pub(super) fn sweep(&mut self) {
        for n in self.active() {
            self.sweep_hold(n);
        }
        if !self.by_id.is_empty() && self.until > self.now {
            self.alarms.hasten(Alarm::Session, self.until);
        }
    }

    pub(super) fn session_due(&mut self) {
        if self.now >= self.until {
            self.sweep();
        } else if !self.by_id.is_empty() {
            self.alarms.set(Alarm::Session, self.until);
        }
    }

    /// Compares what is held here with what the broker says after a resume.
    pub(super) fn reconcile(&mut self, leases: &[Grant], sent: Micros) {
        let listed: HashMap<&str, &Grant> = leases.iter().map(|grant| (&*grant.id, grant)).collect();
        // What a call that is not answered is about is that call's matter.
        let mut wanted: HashSet<String> = self.calls.values().filter_map(|call| call.fields.id.clone()).collect();
        for n in self.active() {
            self.sweep_hold(n);
            let held = &self.holds[&n];
            if held.phase != Phase::Held {
                continue; // given up, so that it is given back
            }
            wanted.insert(held.id.to_string());
            let whole = listed.get(&*held.id).copied().filter(|grant| {
                held.keys.iter().all(|key| {
                    let entry = grant.keys.iter().zip(grant.tokens.iter()).find(|(listed, _)| *listed == key);
                    entry.is_some_and(|(_, token)| held.has(key, *token))
                })
            });
            let Some(grant) = whole else {
                let cause = Error::new(Code::Forced, "it ended while the connection was broken");
                let cause = cause.about("hold", held.keys.first().map(String::as_str));
                self.lose(n, cause);
                continue;
            };
            if let Some(held) = self.holds.get_mut(&n) {
                held.take(grant, sent);
            }
            self.arm(n);
        }
        for grant in leases.iter().filter(|grant| !wanted.contains(&grant.id)) {
            self.ours_later(Op::Release, Fields::of_hold(&grant.id));
        }
    }

    /// Keeps a call that is sent along with what is sent again.
    fn ours_later(&mut self, op: Op, fields: Fields) {
        let mut call = self.new_call(op, fields, Sink::Nothing);
        call.ours = true;
        self.calls.insert(call.n, call);
    }

    fn tell(&mut self, n: u64, error: Error) {
        if let Some(held) = self.holds.get_mut(&n) {
            held.trouble = Some(error.clone());
        }
        self.troubled(n, error);
    }

    /// Tells of a hold that is not confirmed while it is still held.
    pub(super) fn troubled(&mut self, n: u64, error: Error) {
        let Some(held) = self.holds.get(&n) else { return };
        let trouble = Trouble {
            id: held.id.to_string(),
            keys: held.keys.to_vec(),
            left: std::time::Duration::from_micros(self.safe_until(held).saturating_sub(self.now)),
            error,
        };
        let own = held.on_troubled.clone();
        let message = format!("the lease on {:?} is not confirmed: {}", trouble.keys[0], trouble.error);
        for f in [own, self.o.on_troubled.clone()].into_iter().flatten() {
            self.effects.push(Effect::Troubled(f, trouble.clone()));
        }
        self.log(Level::Warn, format!("{message}; trying again until its deadline"));
    }
}

/// The shortest time between an answer to a renewal and the next one.
const LEAST_PAUSE: Micros = 10_000;

/// How long a renewal may stay unanswered before that is told.
fn patience(ttl: Micros) -> Micros {
    (ttl / 6).min(5_000_000)
}

/// The pause before the next try of a failed renewal: doubling from a thirtieth of the ttl to a sixth,
/// at most 5 s and half of what is left, at least 10 ms; half of it is random.
fn pause(ttl: Micros, left: Micros, failures: u32) -> Micros {
    let wanted = (ttl / 30).min(1_000_000) << failures.min(10);
    jitter(wanted.min(ttl / 6).min(5_000_000).min(left / 2).max(LEAST_PAUSE))
}
