"""The client without input and output.

:class:`Core` is fed with what arrives and what time it is, and leaves what is to
be sent in :meth:`Core.take` and what is to be told in ``effects``. It reads no
clock, opens no socket and starts no task, so that every order of events can be
tested by hand. Times and durations are milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

from latchkey import _frames
from latchkey._frames import Frame, Grant
from latchkey._parts import Call, HoldSink, Lease, Owner, Phase, Sink, State
from latchkey._request import Acquire, SessionOptions
from latchkey.errors import (
    Cancelled,
    Closed,
    Expired,
    LatchkeyError,
    LeaseLost,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    ServiceGone,
    SessionLost,
    Unavailable,
    WaitTimeout,
    loss_by_code,
)
from latchkey.types import Event

__all__ = ["Core"]

MAX_PENDING = 10_000 - 16  # some of the broker's limit is kept for pings and for giving back
MAX_UNSENT = 16 << 20
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 20.0, 1000.0, 100.0
GOODBYE_WAIT = 1000.0
FOULS = 3  # connections that may end in a breach of protocol while a request is on them


class Core:
    """One client: its session, its requests, its leases. See the module."""

    def __init__(
        self,
        options: SessionOptions,
        owner: Owner,
        log: logging.Logger,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.options = options
        self.owner = owner
        self.log = log
        self.effects: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.state = State.IDLE
        self.drop = False  # the front is to close the connection
        self.backlog = 0  # bytes that the front has not got rid of; it says so here
        self.hello: _frames.Hello | None = None
        self.session_until: float | None = None
        self.holds: dict[str, Lease] = {}
        self.trouble: LatchkeyError | None = None

        self._rand = rand
        self._n = itertools.count(1)
        self._out: list[bytes] = []
        self._lines = _frames.Lines()
        self._calls: dict[int, Call] = {}
        self._watches: dict[int, Call] = {}
        self._heap: list[tuple[float, int, Lease]] = []
        self._stamp = itertools.count(1)

        self._opened = False
        self._session = ""
        self._grace = float(options.grace)
        self._session_passed = False

        self._pause = 0.0
        self._connect_at: float | None = None
        self._attempt_until: float | None = None
        self._greeted = False
        self._open_n = 0
        self._open_sent = 0.0
        self._parts: list[Frame] = []
        self._up_since = 0.0

        self._ping_at: float | None = None
        self._probe: Call | None = None
        self._heard = False

        self._patient = 0.0
        self._overdue_at: float | None = None
        self._closing = False
        self._goodbye: Call | None = None
        self._goodbye_until: float | None = None

    # What the front says.

    def start(self, now: float) -> None:
        """Begin: the front is to connect at once."""
        self.state = State.PAUSE
        self._connect_at = now

    def connecting(self, now: float) -> None:
        """Note that the front begins to connect."""
        patience = float(self.options.connect_timeout)
        if self._opened and self._grace:
            # Time for more than one attempt while the session lives.
            patience = min(patience, max(self._grace / 3, 250.0))
        self.state = State.CONNECTING
        self._attempt_until = now + patience

    def connected(self, now: float) -> None:
        """Greet on a new connection."""
        self.state = State.GREETING
        self.drop = False
        self._lines = _frames.Lines()
        self._greeted = False
        self._out = [_frames.HELLO]
        self._open(now)

    def received(self, data: bytes, now: float) -> None:
        """Take bytes of the connection."""
        try:
            for line in self._lines.feed(data):
                if self.state is State.GREETING or self.state is State.UP:
                    self._take(_frames.decode(line), now)
        except LatchkeyError as e:
            self._break(e, now)

    def disconnected(self, reason: str, now: float) -> None:
        """Take the end of the connection, or of an attempt to make one."""
        if self.state in (State.CONNECTING, State.GREETING, State.UP):
            self._cut(Unavailable(reason, op="connect"), now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.state is State.OVER:
            return
        if self._goodbye_until is not None and now >= self._goodbye_until:
            self.log.warning("the goodbye was not answered; the session ends with its grace")
            self._end(None)
            return
        if self._attempt_until is not None and now >= self._attempt_until:
            self._break(Unavailable("the broker did not answer in time", op="connect"), now)
        if self._ping_at is not None and now >= self._ping_at:
            self._ping(now)
        if self.session_until is not None and not self._session_passed and now >= self.session_until:
            self._session_passed = True
            for lease in [h for h in self.holds.values() if not h.detached]:
                self._lose_if_passed(lease, now)
        while self._heap and self._heap[0][0] <= now:
            _, stamp, lease = heapq.heappop(self._heap)
            if lease.timer == stamp and lease.phase is Phase.HELD:
                self._look_after(lease, now)
        if self._overdue_at is not None and now >= self._overdue_at:
            self._give_up_overdue(now)

    def wake_at(self) -> float | None:
        """Return when tick is to be called, None for never."""
        if self.state is State.OVER:
            return None
        at = _frames.earlier(self._ping_at, self._attempt_until)
        at = _frames.earlier(at, self._overdue_at)
        at = _frames.earlier(at, self._goodbye_until)
        if self.state is State.PAUSE:
            at = _frames.earlier(at, self._connect_at)
        if self.holds and not self._session_passed:
            at = _frames.earlier(at, self.session_until)
        while self._heap and self._heap[0][2].timer != self._heap[0][1]:
            heapq.heappop(self._heap)
        return _frames.earlier(at, self._heap[0][0] if self._heap else None)

    def wants_connection(self, now: float) -> bool:
        """Tell whether the front is to connect now."""
        return self.state is State.PAUSE and self._connect_at is not None and now >= self._connect_at

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def take(self) -> bytes:
        """Return what is to be sent, and forget it."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    # What callers ask for.

    def acquire(self, spec: Acquire, sink: HoldSink, now: float) -> Call:
        """Ask for a lease. Raises what can be said at once."""
        call = Call("acquire", spec.fields, sink, now)
        call.spec = spec
        if spec.named and (spec.id in self.holds or any(c.id == spec.id for c in self._calls.values())):
            raise call.fail(Refused, "this client already holds, or waits, under the same id")
        self._admit(call, now)
        return call

    def cancel(self, call: Call, sink: Sink, now: float) -> None:
        """Take a request back, whatever became of it. The sink is told when nothing is left."""
        if call.lease is not None:  # it was granted, and nobody has it
            self.release(call.lease, sink, now)
            return
        if call.abandoned or call.n not in self._calls:
            self._tell(sink._done, None, None)
            return
        call.abandoned = True
        if call.sent is None or self.state is State.OVER or call.parked:
            self._calls.pop(call.n, None)
            self._tell(call.sink._done, None, call.fail(Cancelled))
            self._tell(sink._done, None, None)
            return
        cancel = Call("cancel", {"id": call.id}, sink, now)
        cancel.spec = call.spec
        self._send(cancel, now)

    def renew(self, lease: Lease, ttl: int | None, change: bool, sink: Sink, now: float) -> None:
        """Start the ttl of a lease anew, from now."""
        call = Call("renew", self._renewal(lease, ttl, change), sink, now)
        call.lease = lease
        self._admit(call, now)

    @staticmethod
    def _renewal(lease: Lease, ttl: int | None, change: bool) -> dict[str, Any]:
        if not change:
            return {"id": lease.id}
        return {"id": lease.id, "forever": True} if ttl is None else {"id": lease.id, "ttl": ttl}

    def detach(self, lease: Lease, sink: Sink, now: float) -> None:
        """Let a lease outlive its session."""
        call = Call("detach", {"id": lease.id}, sink, now)
        call.lease = lease
        self._admit(call, now)

    def release(self, lease: Lease, sink: Sink | None, now: float) -> None:
        """End a lease. The sink is told once the broker has done it."""
        if lease.phase is Phase.HELD:
            lease.phase = Phase.RELEASED
        self._forget(lease)
        if lease.given or self.state is State.OVER or self._closing:
            if sink is not None:
                self._tell(sink._done, None, None)
            return
        lease.given = True
        call = Call("release", {"id": lease.id}, sink, now)
        call.ours = sink is None
        call.lease = lease
        self._send(call, now)

    def ask(self, do: str, fields: dict[str, Any], sink: Sink, now: float) -> Call:
        """Ask for something that is about no lease of this client."""
        call = Call(do, fields, sink, now)
        self._admit(call, now)
        return call

    def unwatch(self, call: Call, now: float) -> None:
        """End a watch."""
        if self._watches.pop(call.n, None) is None and self._calls.pop(call.n, None) is None:
            return
        if self.state is State.UP and call.sent is not None:
            over = Call("unwatch", {"watch": call.n}, None, now)
            over.ours = True
            self._send(over, now)

    def close(self, now: float) -> None:
        """Say goodbye: leases that are not detached are released."""
        if self._closing or self.state is State.OVER:
            return
        self._closing = True
        for lease in list(self.holds.values()):
            self._lose(lease, loss_by_code("closed", "the client was closed", key=lease.key))
        for call in list(self._calls.values()):
            if call.spec is not None and call.do == "acquire" and call.spec.detach and call.sent is not None:
                self._ours("cancel", {"id": call.id}, now)  # the goodbye would leave its grant behind
            self._answer(call, None, call.fail(Closed, "the client was closed"))
        self._calls.clear()
        self._end_watches(Closed("the client was closed", op="watch"))
        if self.state is not State.UP:
            self._end(None)
            return
        self._goodbye = Call("close", {}, None, now)
        self._goodbye.ours = True
        self._goodbye_until = now + GOODBYE_WAIT
        self._send(self._goodbye, now)

    # Deadlines.

    def safe_until(self, lease: Lease) -> float | None:
        """Return until when it is safe to act, None for without end."""
        if lease.detached:
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
            call = Call("renew", {"id": lease.id}, _RENEWAL, now)
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
        lease.renew_at = sent + lease.ttl / 3 if lease.renew and lease.ttl is not None else None
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
        if call.sink is not _RENEWAL:
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

    # Requests.

    def _tell(self, what: Callable[..., None], *args: Any) -> None:
        self.effects.append((what, args))

    def _admit(self, call: Call, now: float) -> None:
        if self.state is State.OVER or self._closing:
            if isinstance(self.trouble, SessionLost):
                raise call.fail(SessionLost, self.trouble.reason)
            raise call.fail(Closed, "the client was closed")
        if len(self._calls) >= MAX_PENDING:
            raise call.fail(Refused, f"{len(self._calls)} requests have no answer yet, no more are allowed")
        if self.backlog > MAX_UNSENT:
            raise call.fail(Unavailable, "the broker does not read what is sent")
        if self.state is not State.UP and not call.waits and now >= self._patient:
            raise call.fail(Unavailable, f"no connection to the broker: {self.trouble}")
        self._send(call, now)

    def _send(self, call: Call, now: float) -> None:
        if call.n == 0:
            call.n = next(self._n)
        if self.state is not State.UP:
            if call.spec is not None and call.do == "acquire":
                _frames.encode(call.n, call.do, call.fields)  # refuses what no frame can carry
            self._calls[call.n] = call
            self._overdue_at = _frames.earlier(self._overdue_at, self._due(call))
            return
        fields = call.fields
        if call.spec is not None and call.do == "acquire":
            fields = call.spec.frame(now - call.start)
        self._out.append(_frames.encode(call.n, call.do, fields))
        call.sent = now
        self._calls[call.n] = call

    def _ours(self, do: str, fields: dict[str, Any], now: float) -> None:
        call = Call(do, fields, None, now)
        call.ours = True
        self._send(call, now)

    def _answer(self, call: Call, value: Any, error: LatchkeyError | None) -> None:
        if call.ours or call.sink is None or call.sink is _RENEWAL:
            return
        if call.do == "acquire" and call.abandoned:
            return
        self._tell(call.sink._done, value, error)

    def _due(self, call: Call) -> float | None:
        """Return when a call is given up if there is no connection until then."""
        if call.ours or call.do in ("cancel", "watch"):
            return None
        if call.spec is None or call.spec.tries:
            return self._patient
        return None if call.spec.wait is None else call.start + call.spec.wait

    def _give_up_overdue(self, now: float) -> None:
        self._overdue_at = None
        if self.state is State.UP:
            return
        for call in list(self._calls.values()):
            due = self._due(call)
            if due is not None and due <= now:
                self._give_up(call, now)
            else:
                self._overdue_at = _frames.earlier(self._overdue_at, due)

    def _give_up(self, call: Call, now: float) -> None:
        """Answer a call without the broker. What it may have done is undone later."""
        del self._calls[call.n]
        away = f"the broker cannot be reached: {self.trouble}"
        if call.sent is not None:
            error = call.fail(OutcomeUnknown, away)
            if call.do == "acquire" and not call.abandoned:
                self._ours("cancel", {"id": call.id}, now)
        else:
            error = call.fail(WaitTimeout if call.waits else Unavailable, away)
        if call.do == "renew":
            self._renewed(call, None, error, now)
        self._answer(call, None, error)

    # Frames of the broker.

    def _take(self, frame: Frame, now: float) -> None:
        if not self._greeted:
            self.hello = _frames.hello(frame)
            self._greeted = True
            return
        self._heard = True
        n = _frames.number(frame)
        if n is None:
            self._take_unasked(frame, now)
        elif "ok" in frame:
            self._take_answer(n, frame, now)
        elif frame.get("queued") is True:
            call = self._calls.get(n)
            if call is not None and call.do == "acquire" and not call.told and not call.abandoned:
                call.told = True  # a call that is sent again is queued again
                self._tell(call.sink._queued, _frames.queued(frame))
        elif "event" in frame:
            watch = self._watches.get(n)
            if watch is not None:
                self._tell(watch.sink._event, _frames.event(frame))
        elif "leases" in frame:
            if n == self._open_n:
                self._parts += _frames.objects(frame, "leases")
        else:
            raise ProtocolError("a frame of the broker is neither an answer nor a notice")

    def _take_unasked(self, frame: Frame, now: float) -> None:
        if "lost" in frame:
            self._noticed(frame, now)
        elif frame.get("ok") is False:
            raise _frames.failure(frame)  # the last frame of the connection
        else:
            raise ProtocolError("a frame of the broker has no n")

    def _take_answer(self, n: int, frame: Frame, now: float) -> None:
        ok = _frames.flag(frame, "ok")
        error = None if ok else _frames.failure(frame)
        if n == self._open_n and self.state is State.GREETING:
            self._take_open(frame, error, now)
            return
        call = self._calls.get(n)
        if call is None or call.parked:
            return
        try:
            self._settle(call, frame, error, now)
        except ProtocolError:
            if call is not self._probe:
                self._calls[n] = call  # the connection is given up, not the request
            raise

    def _settle(self, call: Call, frame: Frame, error: LatchkeyError | None, now: float) -> None:
        del self._calls[call.n]
        gone = error is not None and error.code == "session_lost"
        if call is self._probe:
            self._probe = None
            if error is None and call.sent is not None:
                self._proof(call.sent)
            elif not gone:
                assert error is not None
                raise error
        elif call is self._goodbye:
            self._end(None)
            return
        elif call.do == "acquire":
            self._take_acquire(call, frame, error, now)
        else:
            self._take_command(call, frame, error, now)
        if gone:
            self._session_gone(now)

    def _take_acquire(self, call: Call, frame: Frame, error: LatchkeyError | None, now: float) -> None:
        assert call.spec is not None
        if error is not None:
            if error.code == "session_lost" or (error.code == "closed" and call.waits):
                if not call.abandoned:
                    # Nothing was done, and nothing is lost by asking again once
                    # there is another connection.
                    call.sent, call.parked = None, True
                    self._calls[call.n] = call
                return
            self._answer(call, None, error)
            return
        grant = _frames.grant(frame)
        if call.abandoned:
            return  # the cancel, or the goodbye, is behind it and gives it back
        assert call.sent is not None
        lease = Lease(grant, call.spec, call.sink, call.sent)
        until = self.safe_until(lease)
        if until is not None and now >= until:
            # Giving it back is kinder than letting the key idle until its end.
            lease.phase = Phase.RELEASED
            self._ours("release", {"id": lease.id}, now)
            reason = "the grant arrived when its time was already up; it was given back"
            self._answer(call, None, call.fail(Expired, reason))
            return
        call.lease = lease
        self.holds[lease.id] = lease
        if lease.renew and lease.ttl is not None and grant.remaining is not None:
            lease.renew_at = call.sent + grant.elapsed + grant.remaining - 2 * lease.ttl / 3
        self._arm(lease)
        self._answer(call, lease, None)

    def _take_command(self, call: Call, frame: Frame, error: LatchkeyError | None, now: float) -> None:
        value: Any = None
        missing = error is not None and error.code in ("not_held", "over")
        if call.do == "renew":
            grant = None if error is not None else _frames.grant(frame)
            self._renewed(call, grant, error, now)
        elif call.do == "detach" and error is None and call.lease is not None:
            call.lease.detached = True
            if call.lease.phase is Phase.HELD:
                self._arm(call.lease)
        elif call.ends and missing and (call.again or call.do == "cancel"):
            error = None  # the first sending, or the end that came first, has done it
        elif call.do == "cancel" and error is not None and call.spec is not None and error.code != "session_lost":
            self.log.warning("cancel failed, a grant ends with its ttl: %s", error)
        elif error is None:
            value = self._value(call, frame)
        if call.do == "watch" and error is None:
            self._watches[call.n] = call
            if call.told:
                self._tell(call.sink._event, Event("gap"))
                return
            call.told = True
        elif call.do == "watch" and call.told and error is not None:
            self._tell(call.sink._ended, error)
            return
        self._answer(call, value, error)

    @staticmethod
    def _value(call: Call, frame: Frame) -> Any:
        if call.do == "list":
            return _frames.listing(frame)
        if call.do == "force":
            return _frames.forced(frame)
        if call.do == "stats":
            stats = frame.get("stats")
            return stats if isinstance(stats, dict) else {}
        return None

    def _noticed(self, frame: Frame, now: float) -> None:
        code = _frames.text(frame, "lost")
        if "id" not in frame:
            self._session_gone(now)
            return
        lease = self.holds.get(_frames.text(frame, "id"))
        if lease is None:
            return
        key, token = _frames.text(frame, "key"), _frames.token(frame.get("token"))
        if key and (key not in lease.tokens or (token is not None and lease.tokens[key] not in (None, token))):
            return  # about an earlier hold
        if code == "session_lost" and lease.detached:
            return
        reason = {
            "expired": "its time ran out",
            "forced": "an administrator took it away",
            "not_held": "it was released by its id from elsewhere",
            "session_lost": "the broker ended the session",
        }.get(code, code)
        by = _frames.text(frame, "by")
        self._lose(lease, loss_by_code(code, f"{reason}: {by}" if by else reason, key=key or lease.key))

    # The session.

    def _open(self, now: float) -> None:
        self._open_n = next(self._n)
        self._open_sent = now
        self._parts = []
        fields = {"resume": self._session} if self._session else self.options.fields()
        self._out.append(_frames.encode(self._open_n, "open", fields))

    def _take_open(self, frame: Frame, error: LatchkeyError | None, now: float) -> None:
        if error is not None:
            if error.code == "session_lost" and self._session:
                self._lose_session()
                self._open(now)
                return
            raise error
        session = _frames.text(frame, "session")
        if not session:
            raise ProtocolError("the broker opened a session without an id")
        listed = self._parts + _frames.objects(frame, "leases")
        elapsed, sent = _frames.integer(frame, "elapsed"), self._open_sent
        grants = [_frames.grant(entry, elapsed) for entry in listed]
        resumed, first = session == self._session, not self._opened
        if not resumed:
            self._grace = float(_frames.integer(frame, "grace"))
        self._session = session
        self._opened, self.state, self.trouble = True, State.UP, None
        self._attempt_until = self._overdue_at = None
        self._up_since = now
        strays = self._reconcile(grants, sent, now) if resumed else []
        # Losses come before the deadline moves, so that no lease of before looks
        # safe for a moment.
        self._proof(sent)
        self._send_again(not resumed, now)
        for lease_id in strays:
            self._ours("release", {"id": lease_id}, now)
        self._ping_at = now + max(self._grace / 3, 1.0) if self._grace else None
        self._heard = False
        if first:
            self._tell(self.owner._opened)
        else:
            self.log.info("connected to the broker again, session %s", "resumed" if resumed else "opened anew")

    def _reconcile(self, grants: list[Grant], sent: float, now: float) -> list[str]:
        """Compare what is held with what the broker says after a resume.

        Returns the ids of leases that nobody here wants.
        """
        listed = {g.id: g for g in grants}
        wanted = {c.id for c in self._calls.values() if c.do == "acquire" or c.ends}
        for lease in list(self.holds.values()):
            got = listed.get(lease.id)
            if got is not None and all(k in got.tokens and got.tokens[k] == t for k, t in lease.tokens.items()):
                waiting = lease.renew_sent
                lease.ttl, lease.detached, lease.deadline = got.ttl, got.detached, got.deadline(sent)
                if waiting is None and lease.renew and lease.ttl is not None and got.remaining is not None:
                    lease.renew_at = sent + max(got.remaining - 2 * lease.ttl / 3, 0.0)
                self._arm(lease)
                continue
            passed = lease.deadline is not None and now >= lease.deadline
            code, reason = ("expired", "its time ran out") if passed else ("forced", "taken away")
            self._lose(lease, loss_by_code(code, reason + " while the connection was broken", key=lease.key))
        return [i for i in listed if i not in self.holds and i not in wanted]

    def _send_again(self, fresh: bool, now: float) -> None:
        """Send everything that has no answer, in the old order."""
        for call in sorted(self._calls.values(), key=lambda c: c.n):
            call.parked = False
            if call.do == "acquire" and call.abandoned:
                del self._calls[call.n]  # its cancel is what is sent
                continue
            if fresh and call.again and call.spec is not None and call.spec.detach:
                # A grant that nobody was told of would be in the way until its ttl.
                self._ours("release", {"id": call.id}, now)
            self._send(call, now)
        for watch in list(self._watches.values()):
            self._send(watch, now)
        self._watches.clear()

    def _proof(self, sent: float) -> None:
        if not self._grace:
            self.session_until = None
            return
        until = sent + self._grace - _frames.margin(self._grace)
        if self.session_until is None or until > self.session_until:
            self.session_until = until
            self._session_passed = False

    def _ping(self, now: float) -> None:
        if self._probe is None:
            self._probe = Call("ping", {}, None, now)
            self._probe.ours = True
            self._send(self._probe, now)
        elif not self._heard or now - self._probe.start >= self._grace:
            # What is left of the grace is better spent on another connection.
            self._break(Unavailable("the broker answers no ping", op="ping"), now)
            return
        self._heard = False
        self._ping_at = now + max(self._grace / 3, 1.0)

    def _session_gone(self, now: float) -> None:
        """Act on the broker's word that the session is over."""
        if not self._session or self.state is not State.UP:
            return
        self._lose_session()
        self._pause = 0.0
        self._break(Unavailable("the broker ended the session", op="session"), now)

    def _lose_session(self) -> None:
        """Lose what the session held. Requests that wait stay for the next one."""
        self.log.warning("the broker ended the session; holds: %d", len(self.holds))
        self._session = ""
        for call in list(self._calls.values()):
            if call.do not in ("release", "renew", "detach") or call.lease is None or call.lease.detached:
                continue
            del self._calls[call.n]
            if call.do == "release":
                self._answer(call, None, None)  # the session's end did the same
            else:
                self._answer(call, None, call.fail(SessionLost, "the session ended, and the hold with it"))
        for lease in list(self.holds.values()):
            if not lease.detached:
                self._lose(lease, loss_by_code("session_lost", "the broker ended the session", key=lease.key))

    # The connection.

    def _break(self, error: LatchkeyError, now: float) -> None:
        self.drop = True
        self._cut(error, now)

    def _cut(self, error: LatchkeyError, now: float) -> None:
        """Adjust everything to having no connection."""
        was = self.state
        if was is State.OVER:
            return
        self.trouble = error
        self._out.clear()
        self.state = State.PAUSE
        self._attempt_until = self._ping_at = None
        if self._closing:
            self._end(None)
            return
        if not self._opened:
            self._end(error)
            return
        if error.code == "session_lost" and was is not State.CONNECTING and self._session:
            self._taken()
            return
        if was is State.UP:
            self._cut_up(error, now)
        self._connect_at = now + self._pause / 2 + self._rand() * self._pause / 2
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)

    def _cut_up(self, error: LatchkeyError, now: float) -> None:
        self.log.warning("the connection to the broker broke: %s", error)
        if now - self._up_since >= SETTLED:
            self._pause = 0.0
        if self._probe is not None:
            self._calls.pop(self._probe.n, None)
            self._probe = None
        self._patient = now + 3000.0 if self.session_until is None else self.session_until
        for call in list(self._calls.values()):
            if call.sent is None:
                continue
            call.again = True
            if call.do == "force":
                self._give_up(call, now)  # twice would be once too often
            elif error.code == "protocol" and not call.told:
                # It may be the reason, and others share the connection.
                call.fouls += 1
                if call.fouls >= FOULS and not call.ours:
                    self._give_up(call, now)
        if not self._grace and self._session:
            self._lose_session()  # a session without a grace ends with its connection
        self._overdue_at = None
        for call in self._calls.values():
            self._overdue_at = _frames.earlier(self._overdue_at, self._due(call))

    def _taken(self) -> None:
        """End this side of a session that another connection has now."""
        reason = "another connection resumed the session"
        self.log.warning(reason)
        self.trouble = SessionLost(reason, op="session")
        for lease in list(self.holds.values()):
            self._lose(lease, loss_by_code("session_lost", reason, key=lease.key))
        for call in self._calls.values():
            self._answer(call, None, call.fail(SessionLost, reason))
        self._end_watches(self.trouble)
        self._calls.clear()
        self._end(self.trouble)

    def _end_watches(self, error: LatchkeyError) -> None:
        for watch in self._watches.values():
            self._tell(watch.sink._ended, error)
        self._watches.clear()

    def _end(self, error: LatchkeyError | None) -> None:
        """Stop everything that goes on by itself."""
        self.state = State.OVER
        self.drop = True
        self._calls.clear()
        self._heap.clear()
        self.holds.clear()
        self._connect_at = self._attempt_until = self._ping_at = None
        self._overdue_at = self._goodbye_until = None
        self._tell(self.owner._over, error)


class _Renewal:
    """Marks renewals that the core makes by itself."""


_RENEWAL: Any = _Renewal()


def _patience(ttl: int | None) -> float:
    """Return how long a renewal may stay unanswered before that is reported."""
    return 5000.0 if ttl is None else min(ttl / 6, 5000.0)
