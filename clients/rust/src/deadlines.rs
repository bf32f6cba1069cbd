//! When a holder must stop: section 6 of the protocol.

use crate::clock::{Micros, NEVER};
use crate::wire::Grant;

/// What is kept back from a time x, so that this side always stops first.
pub(crate) fn margin(x: Micros) -> Micros {
    (x / 50).clamp(10_000, 1_000_000)
}

/// Until when a lease is the holder's by its own time, when its request was sent at `sent`.
pub(crate) fn lease(sent: Micros, grant: &Grant) -> Micros {
    if grant.remaining == NEVER {
        return NEVER;
    }
    sent.saturating_add(grant.elapsed).saturating_add(grant.remaining).saturating_sub(margin(grant.ttl))
}

/// Until when the session lives for certain, after an answered sign of life sent at `sent`.
pub(crate) fn session(sent: Micros, grace: Micros) -> Micros {
    if grace == 0 {
        return NEVER;
    }
    sent.saturating_add(grace).saturating_sub(margin(grace))
}

/// The instant up to which the holder may act.
pub(crate) fn safe_until(lease: Micros, session: Micros, detached: bool) -> Micros {
    if detached {
        lease
    } else {
        lease.min(session)
    }
}
