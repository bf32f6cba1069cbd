"""What can go wrong, one type for each code of the protocol.

Every error is a :class:`LatchkeyError`. Between it and the types of the codes are
the kinds, by which a program usually decides:

=====================  ======================================================
:class:`OutcomeError`  the request ended without a lease; nothing is held
:class:`MistakeError`  the request is wrong; do not repeat it unchanged
:class:`LeaseLost`     a lease that was held is not held any more: stop
:class:`RetryError`    nothing was changed; it may succeed later
:class:`UnknownError`  the outcome, or the token, cannot be known
:class:`DefectError`   a defect of the broker
=====================  ======================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from latchkey.types import Holder, Wait

__all__ = [
    "Busy",
    "Cancelled",
    "Closed",
    "Deadlock",
    "DefectError",
    "Expired",
    "FencingUnknown",
    "Forced",
    "HoldClosed",
    "HoldReleased",
    "InternalError",
    "LatchkeyError",
    "LeaseLost",
    "MistakeError",
    "NotHeld",
    "OutcomeError",
    "Over",
    "ProtocolError",
    "Refused",
    "RetryError",
    "ServiceGone",
    "SessionLost",
    "Unavailable",
    "UnknownError",
    "UnknownOutcome",
    "WaitTimeout",
]


class LatchkeyError(Exception):
    """The base of all errors of this package.

    Attributes:
        code: the code of the protocol, for programs. An :class:`InternalError`
            for a code that this client does not know keeps that code.
        op: what was attempted: ``acquire``, ``renew``, ``release``, ...
        key: the key it is about, or ``""``.
        reason: for people: what is wrong and what to do.
        holders: who is in the way, for :class:`Busy` and :class:`WaitTimeout`.
        cycle: who waits for whom, for :class:`Deadlock`; the last waits for the first.
    """

    default_code: ClassVar[str] = "internal"
    kind: ClassVar[str] = "defect"

    def __init__(
        self,
        reason: str = "",
        *,
        code: str = "",
        op: str = "",
        key: str = "",
        holders: Sequence[Holder] = (),
        cycle: Sequence[Wait] = (),
    ) -> None:
        super().__init__(reason)
        self.code = code or self.default_code
        self.op = op
        self.key = key
        self.reason = reason
        self.holders = tuple(holders)
        self.cycle = tuple(cycle)

    def __str__(self) -> str:
        text = self.op
        if self.key:
            text += (" " if text else "") + repr(self.key)
        text += (": " if text else "") + self.code.replace("_", " ")
        if self.reason:
            text += ": " + self.reason
        if self.holders:
            text += ": held by " + "; ".join(str(h) for h in self.holders)
        if len(self.cycle) == 1:
            text += f": you already hold this key: {self.cycle[0].key!r}, as {self.cycle[0].who}"
        elif self.cycle:
            text += ": " + ", ".join(str(w) for w in self.cycle)
        return text


class OutcomeError(LatchkeyError):
    """The request ended without what it asked for. Nothing is held by it."""

    kind = "outcome"


class MistakeError(LatchkeyError):
    """The request is wrong. Repeating it unchanged cannot succeed."""

    kind = "mistake"


class LeaseLost(LatchkeyError):
    """A lease was lost: stop, and leave what it protects as it is."""

    kind = "loss"
    default_code = "expired"


class RetryError(LatchkeyError):
    """Nothing was changed. It may succeed later."""

    kind = "retry"


class UnknownError(LatchkeyError):
    """What happened, or which token it has, cannot be known."""

    kind = "unknown"


class DefectError(LatchkeyError):
    """The broker has a defect."""

    kind = "defect"


class Busy(OutcomeError):
    """A try found a holder, a lock-delay, or someone queued ahead; see ``holders``."""

    default_code = "busy"


class WaitTimeout(OutcomeError):
    """The bound on waiting passed. Nothing is held."""

    default_code = "timeout"


class Cancelled(OutcomeError):
    """The request was taken back while it waited. Nothing is held."""

    default_code = "cancelled"


class Deadlock(OutcomeError):
    """The request would wait for itself through declared holds; see ``cycle``."""

    default_code = "deadlock"


class NotHeld(OutcomeError):
    """There is no such hold, or not any more."""

    default_code = "not_held"


class Refused(MistakeError):
    """The request breaks a rule or a limit, which ``reason`` names."""

    default_code = "refused"


class Over(MistakeError):
    """The request with this id has ended; use a new id."""

    default_code = "over"


class ProtocolError(MistakeError):
    """The peer does not speak the protocol."""

    default_code = "protocol"


class UnknownOutcome(UnknownError):
    """The answer was lost. A lease may be held until its ttl."""

    default_code = "unknown"


class Expired(LeaseLost):
    """Lost: its time ran out, or this process stood still."""

    default_code = "expired"


class Forced(LeaseLost):
    """Lost: an administrator took it."""

    default_code = "forced"


class SessionLost(LeaseLost):
    """Lost: the broker ended the session, or does not know it any more."""

    default_code = "session_lost"


class ServiceGone(LeaseLost):
    """Lost: nothing was confirmed by the broker up to the deadline."""

    default_code = "service_gone"


class Unavailable(RetryError):
    """The broker cannot be reached, or cannot serve this now."""

    default_code = "unavailable"


class Closed(RetryError):
    """The broker shuts down, or this client was closed."""

    default_code = "closed"


class InternalError(DefectError):
    """A defect in the broker; its log has the details."""

    default_code = "internal"


class HoldReleased(LeaseLost, NotHeld):
    """Lost: another session released the hold by its id."""

    kind = "loss"
    default_code = "not_held"


class HoldClosed(LeaseLost, Closed):
    """Lost: this client was closed while the lease was held."""

    kind = "loss"
    default_code = "closed"


class FencingUnknown(UnknownError):
    """The broker gave no token that can be trusted for this key.

    Raised on reading the token, so that a missing one never turns into a number
    that would be compared with others.
    """

    default_code = "fencing_unknown"


BY_CODE: dict[str, type[LatchkeyError]] = {
    t.default_code: t
    for t in (
        Busy,
        WaitTimeout,
        Cancelled,
        Refused,
        Deadlock,
        UnknownOutcome,
        Over,
        NotHeld,
        Expired,
        Forced,
        SessionLost,
        ServiceGone,
        Unavailable,
        Closed,
        ProtocolError,
        InternalError,
    )
}


def by_code(
    code: str,
    reason: str = "",
    *,
    op: str = "",
    key: str = "",
    holders: Sequence[Holder] = (),
    cycle: Sequence[Wait] = (),
) -> LatchkeyError:
    """Make the error of a code; of an unknown one, an InternalError that keeps it."""
    kind = BY_CODE.get(code, InternalError)
    return kind(reason, code=code, op=op, key=key, holders=holders, cycle=cycle)


def loss_by_code(code: str, reason: str, *, key: str) -> LeaseLost:
    """Make the error of the loss of a hold."""
    kind: type[LatchkeyError] | None = {"not_held": HoldReleased, "closed": HoldClosed}.get(code, BY_CODE.get(code))
    if kind is None or not issubclass(kind, LeaseLost):
        kind = LeaseLost
    error = kind(reason, code=code, op="hold", key=key)
    assert isinstance(error, LeaseLost)
    return error
