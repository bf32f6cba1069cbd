"""The client without input and output.

:class:`Core` is fed with what arrives and what time it is, and leaves what is to
be sent in :meth:`Core.take` and what is to be told in ``effects``. It reads no
clock, opens no socket and starts no task, so that every order of events can be
tested by hand. Times and durations are milliseconds.
"""

from __future__ import annotations

import heapq
from typing import Any

from latchkey import _frames
from latchkey._base import GOODBYE_WAIT
from latchkey._frames import Frame
from latchkey._parts import Call, HoldSink, Lease, Phase, Sink, State
from latchkey._request import Acquire
from latchkey._session import Session
from latchkey.errors import (
    Cancelled,
    Closed,
    Expired,
    Forced,
    LatchkeyError,
    ProtocolError,
    Refused,
    Unavailable,
    loss_by_code,
)
from latchkey.types import Event

__all__ = ["Core"]


class Core(Session):
    """One client: its session, its requests, its leases. See the module."""

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
        if sink is not None:
            lease.releasing.append(sink)
        if lease.asked:
            return  # the answer that is on its way is for this one too
        lease.asked = True
        call = Call("release", {"id": lease.id}, None, now)
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
        if not self._session:
            self._end(None)
            return
        # Without a connection, the next one says goodbye if it comes in time.
        self._goodbye = Call("close", {}, None, now)
        self._goodbye.ours = True
        self._goodbye_until = now + GOODBYE_WAIT
        self._send(self._goodbye, now)

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
        missing = set(call.spec.keys) - grant.tokens.keys()
        other = grant.tokens.keys() - set(call.spec.keys)
        if grant.id != call.id or other or (missing and not call.again):
            raise ProtocolError("a grant is of something else than was asked for")
        if call.abandoned:
            return  # the cancel, or the goodbye, is behind it and gives it back
        if missing:
            self._ours("release", {"id": grant.id}, now)
            reason = "a key was taken away before the grant was heard; the others were given back"
            self._answer(call, None, call.fail(Forced, reason))
            return
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
