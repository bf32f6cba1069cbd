"""The session and its connections: open, ping, break, resume, end.

See sections 4 and 7 of the protocol.
"""

from __future__ import annotations

from latchkey import _frames
from latchkey._base import FIRST_PAUSE, FOULS, IDLE_PING, LONGEST_PAUSE, SETTLED
from latchkey._deadlines import Deadlines
from latchkey._frames import Frame, Grant
from latchkey._parts import Call, State
from latchkey.errors import (
    LatchkeyError,
    ProtocolError,
    SessionLost,
    Unavailable,
    UnknownOutcome,
    WaitTimeout,
    loss_by_code,
)

__all__ = ["Session"]


class Session(Deadlines):
    """The part of a core that keeps a session over connections that may break."""

    def _open(self, now: float) -> None:
        self._open_n = next(self._n)
        self._open_sent = now
        self._parts = []
        fields = {"resume": self._session} if self._session else self.options.fields()
        self._out.append(_frames.encode(self._open_n, "open", fields))

    def _take_open(self, frame: Frame, error: LatchkeyError | None, now: float) -> None:
        self._open_n = 0
        if error is not None:
            if error.code == "session_lost" and self._session:
                self._lose_session()
                if not self._closing:
                    self._open(now)
                return
            raise error
        session = _frames.text(frame, "session")
        if not session:
            raise ProtocolError("the broker opened a session without an id")
        listed = self._parts + _frames.objects(frame, "leases")
        elapsed, sent = _frames.integer(frame, "elapsed"), self._open_sent
        grants = [_frames.grant(entry, elapsed) for entry in listed]
        if self._session and session != self._session:
            raise ProtocolError("the broker answered a resume with another session")
        resumed, first = bool(self._session), not self._opened
        if not resumed:
            self._adrift = 0
            self._grace = float(_frames.integer(frame, "grace", int(self._grace)))
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
        self._ping_at = now + self._ping_every()
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
        partly: set[str] = set()  # of several keys some are left, which the holder gives back
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
            if got is not None and not passed:
                partly.add(lease.id)
            self._lose(lease, loss_by_code(code, reason + " while the connection was broken", key=lease.key))
        return [i for i in listed if i not in self.holds and i not in wanted and i not in partly]

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
        elif not self._heard or (self._grace and now - self._probe.start >= self._grace):
            # What is left of the grace is better spent on another connection.
            self._break(Unavailable("the broker answers no ping", op="ping"), now)
            return
        self._heard = False
        self._ping_at = now + self._ping_every()

    def _ping_every(self) -> float:
        return max(self._grace / 3, 1.0) if self._grace else IDLE_PING

    def _session_gone(self, now: float) -> None:
        """Act on the broker's word that the session is over."""
        if not self._session or self.state is not State.UP:
            return
        self._lose_session()
        self._break(Unavailable("the broker ended the session", op="session"), now)

    def _lose_session(self) -> None:
        """Lose what the session held. Requests that wait stay for the next one."""
        self.log.warning("the broker ended the session; holds: %d", len(self.holds))
        self._session = ""
        if self._closing:
            self._end(None)  # there is nobody to say goodbye to
            return
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
            error = call.fail(UnknownOutcome, away)
            if call.do == "acquire" and not call.abandoned:
                self._ours("cancel", {"id": call.id}, now)
        else:
            error = call.fail(WaitTimeout if call.waits else Unavailable, away)
        if call.do == "renew":
            self._renewed(call, None, error, now)
        self._answer(call, None, error)

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
        if not self._opened:
            self._end(None if self._closing else error)
            return
        taken = error.code == "session_lost" and was is not State.CONNECTING and self._session
        if taken and not self._excuse():
            self._taken()
            if self._closing:
                return
        if was is State.GREETING and self._session and self._open_n and not self._parts and not taken:
            self._adrift += 1
        if was is State.UP:
            self._cut_up(error, now)
        if self._closing and not self._session:
            return
        self._connect_at = now + self._pause / 2 + self._rand() * self._pause / 2
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)

    def _excuse(self) -> bool:
        """Tell whether a takeover may be of this side's own making.

        The broker may come to an open on a connection that was given up after it came
        to a newer one. Each such open excuses one takeover, so that somebody else who
        has the id prevails in the end.
        """
        if not self._adrift:
            return False
        self._adrift -= 1
        return True

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
        lost = f"the connection to the broker broke: {error.reason}"
        for lease in self.holds.values():
            if not lease.detached:  # its deadline may come before any renewal is due
                self._tell(lease.sink._troubled, Unavailable(lost, op="hold", key=lease.key))
        self._overdue_at = None
        for call in self._calls.values():
            self._overdue_at = _frames.earlier(self._overdue_at, self._due(call))

    def _taken(self) -> None:
        """Leave the session to the other connection that has it now, and go on with another.

        Its holds and its places in queues are that one's, and are not taken back.
        """
        reason = "another connection resumed the session"
        self.log.warning(reason)
        for call in list(self._calls.values()):
            if call.do == "acquire":
                del self._calls[call.n]
                self._answer(call, None, call.fail(SessionLost, reason))
        self._lose_session()

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
