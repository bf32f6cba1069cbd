//! Time: one monotonic clock, and alarms on it that tests can ring by hand.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// An instant in microseconds of the clock, or a length of time. Nothing here goes below zero.
pub(crate) type Micros = u64;

/// Never, and without end.
pub(crate) const NEVER: Micros = u64::MAX;

/// A length of time, in microseconds.
pub(crate) const fn micros(d: Duration) -> Micros {
    let us = d.as_micros();
    if us >= NEVER as u128 {
        NEVER
    } else {
        us as Micros
    }
}

pub(crate) const fn from_ms(ms: u64) -> Micros {
    ms.saturating_mul(1000)
}

/// The time now. It goes on while the process is stopped and, on Linux and Apple's systems, while the
/// machine sleeps, so that a lease is over after a suspend although no timer has run.
#[cfg(unix)]
#[allow(unsafe_code)]
pub(crate) fn now() -> Micros {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a timespec that the call may write to, and nobody else has it.
    let mut failed = unsafe { libc::clock_gettime(CLOCK, &mut t) };
    if failed != 0 {
        // Not every sandbox has the first one. A process has the same one each time.
        // SAFETY: as above.
        failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    }
    assert_eq!(failed, 0, "this system has no monotonic clock");
    // Neither is negative, and a nanosecond part is below a second.
    (t.tv_sec as u64).saturating_mul(1_000_000).saturating_add(t.tv_nsec as u64 / 1000)
}

/// The time now.
#[cfg(not(unix))]
pub(crate) fn now() -> Micros {
    use std::sync::OnceLock;
    use std::time::Instant;
    static BASE: OnceLock<Instant> = OnceLock::new();
    // Away from zero, where subtractions would be cut off.
    micros(BASE.get_or_init(Instant::now).elapsed()).saturating_add(3_600_000_000)
}

/// What there is to be done at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Alarm {
    /// Bounds an attempt to connect, and the pause before it.
    Attempt,
    /// The next ping.
    Ping,
    /// The session's deadline.
    Session,
    /// Calls without a connection that are to be given up.
    Overdue,
    /// A hold's renewal or deadline.
    Hold(u64),
    /// The cancel of a call is not answered.
    Cancel(u64),
    /// The goodbye is not answered.
    Goodbye,
}

/// The alarms that are set, each for one time.
#[derive(Default)]
pub(crate) struct Alarms {
    set: HashMap<Alarm, Micros>,
    order: BTreeSet<(Micros, Alarm)>,
}

impl Alarms {
    /// Rings at `at`, and at no other time that was set before. `NEVER` clears it.
    pub fn set(&mut self, alarm: Alarm, at: Micros) {
        self.clear(alarm);
        if at != NEVER {
            self.set.insert(alarm, at);
            self.order.insert((at, alarm));
        }
    }

    /// Rings at `at`, or when it would have rung if that is earlier.
    pub fn hasten(&mut self, alarm: Alarm, at: Micros) {
        if self.set.get(&alarm).is_none_or(|&old| at < old) {
            self.set(alarm, at);
        }
    }

    pub fn clear(&mut self, alarm: Alarm) {
        if let Some(at) = self.set.remove(&alarm) {
            self.order.remove(&(at, alarm));
        }
    }

    pub fn clear_all(&mut self) {
        self.set.clear();
        self.order.clear();
    }

    /// When the next one rings.
    pub fn next(&self) -> Micros {
        self.order.first().map_or(NEVER, |&(at, _)| at)
    }

    /// Takes one that is due.
    pub fn pop(&mut self, now: Micros) -> Option<Alarm> {
        let &(at, alarm) = self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(alarm);
        Some(alarm)
    }
}
