"""Until when it is safe to act: deadlines, renewals and losses.

See section 6 of the protocol.
"""

from __future__ import annotations

import heapq

from latchkey import _frames
from latchkey._base import RENEWAL, SHORTEST_RENEWAL, Base
from latchkey._frames import Grant
from latchkey._parts import Call, Lease, Phase
from latchkey.errors import (
    Expired,
    LatchkeyError,
    LeaseLost,
    ServiceGone,
    Unavailable,
    loss_by_code,
)

__all__ = ["Deadlines"]


class Deadlines(Base):
    """The part of a core that looks after what is held."""

    def safe_until(self, lease: Lease) -> float | None:
        """Return until when it is, or was when it was lost, safe to act; None for without end."""
        if lease.detached or lease.phase is Phase.LOST:
            return lease.deadline
        return _frames.earlier(lease.deadline, self.session_until)

    def verdict(self, lease: Lease, now: float) -> LeaseLost | None:
        """Say why a lease is over by this side's own reckoning, or None. Changes nothing.

        The deadline is read before the phase: a new session's deadline never vouches
        for a lease of the old one, which is lost before the deadline moves. So this may
        be called from any thread.
        """
        until = self.safe_until(lease)
        if lease.phase is Phase.LOST:
            return lease.cause
        if until is None or now < until:
            return None
        own = lease.deadline
        if lease.failures or lease.renew_sent is not None or own is None or now < own:
            reason = "not confirmed by the broker up to its deadline"
            if lease.trouble is not None:
                reason += f": {lease.trouble}"
            return ServiceGone(reason, op="hold", key=lease.key)
        return Expired(
            "its deadline passed; it was not renewed, reached its longest hold, or this process stood still",
            op="hold",
            key=lease.key,
        )

    def _lose_if_passed(self, lease: Lease, now: float) -> bool:
        cause = self.verdict(lease, now)
        if cause is not None:
            self._lose(lease, cause)
        return cause is not None

    def _lose(self, lease: Lease, cause: LeaseLost) -> None:
        if lease.phase is not Phase.HELD:
            return
        lease.cause = cause
        # The session's deadline moves on, for other leases.
        lease.deadline = self.safe_until(lease)
        lease.phase = Phase.LOST
        # The session's end released what it held, and a closed client cannot ask.
        lease.given = cause.code in ("session_lost", "closed")
        self._forget(lease)
        self._tell(lease.sink._lost, cause)

    def _forget(self, lease: Lease) -> None:
        lease.timer = 0
        if self.holds.get(lease.id) is lease:
            del self.holds[lease.id]

    def _arm(self, lease: Lease) -> None:
        """Set the lease's timer to what comes first: its deadline, a renewal, its being late."""
        at = lease.deadline
        if lease.renew_sent is None:
            at = _frames.earlier(at, lease.renew_at)
        elif not lease.overdue:
            at = _frames.earlier(at, lease.renew_sent + _patience(lease.ttl))
        if at is None:
            lease.timer = 0
            return
        lease.timer = next(self._stamp)
        heapq.heappush(self._heap, (at, lease.timer, lease))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self.holds):
            self._heap = [e for e in self._heap if e[2].timer == e[1]]
            heapq.heapify(self._heap)

    def _look_after(self, lease: Lease, now: float) -> None:
        if self._lose_if_passed(lease, now):
            return
        if lease.renew_sent is None and lease.renew_at is not None and now >= lease.renew_at:
            lease.renew_sent, lease.overdue = now, False
            call = Call("renew", {"id": lease.id}, RENEWAL, now)
            call.lease = lease
            self._send(call, now)
        elif lease.renew_sent is not None and not lease.overdue and now - lease.renew_sent >= _patience(lease.ttl):
            lease.overdue = True
            self._trouble(lease, Unavailable("no answer yet", op="renew", key=lease.key))
        self._arm(lease)

    def _trouble(self, lease: Lease, error: LatchkeyError) -> None:
        lease.trouble = error
        self.log.warning("renewal failed, trying again until the deadline: %s", error)
        self._tell(lease.sink._troubled, error)

    def _fresh(self, lease: Lease, grant: Grant, sent: float) -> None:
        """Start the watch anew after a renewal sent at that time."""
        lease.failures, lease.trouble, lease.renew_sent = 0, None, None
        lease.ttl, lease.detached = grant.ttl, grant.detached
        lease.deadline = grant.deadline(sent)
        lease.renew_at = None
        if lease.renew and lease.ttl is not None:
            lease.renew_at = sent + max(lease.ttl / 3, SHORTEST_RENEWAL)
        self._arm(lease)

    def _renewed(self, call: Call, grant: Grant | None, error: LatchkeyError | None, now: float) -> None:
        """Take the answer to a renewal, of the core's own or a caller's."""
        lease = call.lease
        if lease is None or lease.phase is not Phase.HELD:
            return
        if grant is not None and call.sent is not None:
            self._fresh(lease, grant, call.sent)
            return
        assert error is not None
        code = {"not_held": "expired", "over": "expired"}.get(error.code, error.code)
        if code in ("expired", "forced", "session_lost"):
            reason = f"the broker does not know the hold any more: {error}"
            self._lose(lease, loss_by_code(code, reason, key=lease.key))
            return
        if call.sink is not RENEWAL:
            return
        until = self.safe_until(lease)
        lease.renew_sent = None
        lease.renew_at = now + self._retry_pause(lease, None if until is None else until - now)
        lease.failures += 1
        self._arm(lease)
        self._trouble(lease, error)

    def _retry_pause(self, lease: Lease, left: float | None) -> float:
        """Return the pause before a renewal is tried again.

        It doubles from a thirtieth of the ttl to a sixth, at most half of what is left,
        so that a broker that comes back shortly before the deadline is still in time.
        Half of it is random, so that many holders do not come back at one moment.
        """
        ttl = 30_000.0 if lease.ttl is None else float(lease.ttl)
        pause = min(min(ttl / 30, 1000.0) * (1 << min(lease.failures, 10)), ttl / 6, 5000.0)
        if left is not None:
            pause = min(pause, left / 2)
        pause = max(pause, 10.0)
        return pause / 2 + self._rand() * pause / 2


def _patience(ttl: int | None) -> float:
    """Return how long a renewal may stay unanswered before that is reported."""
    return 5000.0 if ttl is None else min(ttl / 6, 5000.0)
