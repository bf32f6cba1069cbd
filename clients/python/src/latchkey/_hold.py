"""What holds of both fronts have in common."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from latchkey import _request
from latchkey._parts import Lease, Phase
from latchkey._request import Acquire
from latchkey.errors import Expired, FencingUnknown, HoldClosed, LatchkeyError, LeaseLost, NotHeld, Refused
from latchkey.types import Mode, Queued, Ttl

if TYPE_CHECKING:
    from latchkey._driver import Driver


class AcquireOptions(TypedDict, total=False):
    """The options of ``acquire`` and ``hold``. Durations are seconds or timedeltas.

    Attributes:
        mode: ``exclusive`` (default), ``shared``, or ``counted`` with ``max``.
        max: for counted holds, how many may hold at a time: 1 to 1000.
        ttl: time to live, renewed each third of it; default 30 s, at least 0.1 s, or FOREVER.
        wait: how long to wait at most; 0 tries once, like ``timeout=0`` elsewhere in Python;
            None (default) waits without bound.
        label: shown to people, up to 256 bytes.
        prefer_readers: shared only: pass writers that wait. This may starve them.
        max_hold: the longest total time of the hold, renewals included.
        lock_delay: after an involuntary loss the keys stay unavailable that long.
        detach: the hold outlives its session, until its ttl.
        declared: ids of holds that are kept until this request is answered; only these
            are looked at for deadlocks. The holds of the scopes around, in the same task or
            thread, are added.
        id: names the request and the hold; random by default.
        renew: False leaves renewing to the caller; only the deadline is watched.
        on_queued: told once where the request stands, if it has to wait.
        on_troubled: told of every renewal that failed or is late, and of a broken connection,
            while the lease is still held.
        on_lost: told of the loss. Callbacks must not block.
    """

    mode: Mode
    max: int | None
    ttl: Ttl
    wait: float | timedelta | None
    label: str
    prefer_readers: bool
    max_hold: float | timedelta | None
    lock_delay: float | timedelta
    detach: bool
    declared: Iterable[str]
    id: str | None
    renew: bool
    on_queued: Callable[[Queued], object] | None
    on_troubled: Callable[[LatchkeyError], object] | None
    on_lost: Callable[[LeaseLost], object] | None


_Around = tuple[tuple["BaseHold", object], ...]
_around: contextvars.ContextVar[_Around] = contextvars.ContextVar("latchkey holds", default=())


def _runner() -> object:
    """Return the task, or else the thread, that runs this.

    A task that is started inside a scope has its context, but the scope need not wait for
    it, so only the scope's own runner declares the hold.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.get_ident()


def prepare(
    keys: str | Iterable[str],
    options: Mapping[str, Any],
    on_any_troubled: Callable[[Any, LatchkeyError], object] | None,
) -> tuple[Acquire, dict[str, Any]]:
    """Check a request; return it and the callbacks."""
    rest = dict(options)
    callbacks = {name: rest.pop(name, None) for name in ("on_queued", "on_troubled", "on_lost")}
    callbacks["on_any_troubled"] = on_any_troubled
    own = tuple(rest.pop("declared", ()))
    outer = _around.get()
    runner = _runner() if outer else None
    around = [h.id for h, by in outer if by == runner and h.id not in own and h.id != rest.get("id") and h._keeps()]
    room = max(_request.MAX_DECLARED - len(own), 0)
    return _request.acquire(keys, declared=(*own, *around[len(around) - min(room, len(around)) :]), **rest), callbacks


class BaseHold:
    """A lease that is held, seen by the front. Reading is safe from any thread."""

    def __init__(self, driver: Driver, spec: Acquire, callbacks: Mapping[str, Any]) -> None:
        self._driver = driver
        self._spec = spec
        self._callbacks = callbacks
        self._granted: Lease | None = None
        self._pid = os.getpid()

    @property
    def id(self) -> str:
        """The id of the hold. Whoever knows it can release the hold."""
        return self._spec.id

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that are held, as they were asked for."""
        return self._spec.keys

    @property
    def key(self) -> str:
        """The first key."""
        return self._spec.keys[0]

    @property
    def token(self) -> int:
        """The fencing token of the one key. It rises with every new hold of the key.

        Raises:
            FencingUnknown: the broker gave none that can be trusted.
            Refused: there are several keys; see :attr:`tokens`.
        """
        if len(self.keys) != 1:
            raise Refused(f"this hold has {len(self.keys)} keys, each with a token of its own: see tokens", op="token")
        return self.token_of(self.key)

    @property
    def tokens(self) -> dict[str, int]:
        """The keys with their fencing tokens.

        Raises:
            FencingUnknown: the broker gave none that can be trusted for one of them.
        """
        return {key: self.token_of(key) for key in self.keys}

    def token_of(self, key: str) -> int:
        """Return the fencing token of one of the keys; see :attr:`token`."""
        token = self._lease.tokens.get(key)
        if token is None:
            raise FencingUnknown("the broker gave no token that can be trusted", op="token", key=key)
        return token

    @property
    def safe_until(self) -> float | None:
        """Until when it is safe to act, by :func:`latchkey.clock`; None: no end.

        It moves ahead with every renewal and ping that the broker answers.
        """
        until = self._driver.core.safe_until(self._lease)
        return None if until is None else until / 1000

    @property
    def safe_for(self) -> float | None:
        """Seconds for which it is safe to act from now, 0 after a loss; None: no end."""
        if not self.is_safe:
            return 0.0
        until = self._driver.core.safe_until(self._lease)
        return None if until is None else max(until - self._driver.clock(), 0.0) / 1000

    @property
    def is_safe(self) -> bool:
        """Whether it is safe to act now. Looks at the clock, like :meth:`check`."""
        return not self._forked and self._lease.phase is not Phase.RELEASED and self._verdict() is None

    def check(self) -> None:
        """Raise unless it is safe to act now.

        This looks at the clock, so that the answer is right in a process that was
        stopped and whose timers have not run yet. Call it before each step that only
        the holder may take.

        Raises:
            LeaseLost: the lease was lost; the type and code say how.
            NotHeld: it was released.
        """
        self._refuse_fork("check")
        if self._lease.phase is Phase.RELEASED:
            raise NotHeld("it was released", op="check", key=self.key)
        loss = self._verdict()
        if loss is not None:
            raise loss

    @property
    def _forked(self) -> bool:
        return self._pid != os.getpid()

    def _refuse_fork(self, op: str) -> None:
        # The parent renews it and may release it, and this process would not be told.
        if self._forked:
            raise HoldClosed("the lease belongs to the parent process", op=op, key=self.key)

    @property
    def _lease(self) -> Lease:
        if self._granted is None:
            raise NotHeld("it is not granted yet", op="hold", key=self.key)
        return self._granted

    def _keeps(self) -> bool:
        return self._granted is not None and self._granted.phase is Phase.HELD

    def _verdict(self) -> LeaseLost | None:
        loss = self._driver.core.verdict(self._lease, self._driver.clock())
        if loss is not None and self._lease.phase is Phase.HELD:
            self._notice()
        return loss

    def _notice(self) -> None:
        """Let the core see what the clock says."""
        raise NotImplementedError

    def _queued(self, queued: Queued) -> None:
        callback = self._callbacks["on_queued"]
        if callback is not None:
            callback(queued)

    def _troubled(self, error: LatchkeyError) -> None:
        own, of_client = self._callbacks["on_troubled"], self._callbacks["on_any_troubled"]
        try:
            if own is not None:
                own(error)
        finally:
            if of_client is not None:
                of_client(self, error)

    def __repr__(self) -> str:
        phase = "waiting" if self._granted is None else self._granted.phase.value
        return f"<{type(self).__name__} of {', '.join(map(repr, self.keys))}, {phase}>"


def enter(hold: BaseHold) -> contextvars.Token[_Around]:
    """Declare a hold for the requests of a scope."""
    return _around.set((*_around.get(), (hold, _runner())))


def leave(token: contextvars.Token[_Around]) -> None:
    """Take that back."""
    try:
        _around.reset(token)
    except ValueError:
        pass  # the scope was left in another context than it was entered in


def ttl_change(ttl: Ttl | None) -> tuple[int | None, bool]:
    """Return the ttl of a renewal in ms, and whether it changes."""
    return (None, False) if ttl is None else (_request.ttl_ms(ttl), True)


def end_of_scope(loss: LeaseLost | None, error: LatchkeyError | None, key: str) -> LeaseLost | None:
    """Return what the end of a scope tells of: a loss, or a release that found nothing."""
    if loss is None and error is not None and error.code in ("not_held", "over"):
        return Expired("the broker did not know the hold any more when it was released", op="release", key=key)
    return loss


RELEASE_WAIT = 5.0  # bounds the release at the end of a scope
CANCEL_WAIT = 1.0  # bounds the wait for the answer to a cancel
WATCH_BUFFER = 1024
