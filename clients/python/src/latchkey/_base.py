"""What every part of the core needs: its state, and requests on their way out."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

from latchkey import _frames
from latchkey._frames import Frame
from latchkey._parts import Call, Lease, Owner, State
from latchkey._request import SessionOptions
from latchkey.errors import (
    Closed,
    LatchkeyError,
    Refused,
    Unavailable,
)
from latchkey.types import ServerInfo

__all__ = [
    "FIRST_PAUSE",
    "FOULS",
    "GOODBYE_WAIT",
    "IDLE_PING",
    "LONGEST_PAUSE",
    "MAX_PENDING",
    "MAX_UNSENT",
    "RENEWAL",
    "SETTLED",
    "SHORTEST_RENEWAL",
    "Base",
]

MAX_PENDING = 10_000 - 16  # some of the broker's limit is kept for pings and for giving back
MAX_UNSENT = 16 << 20
FIRST_PAUSE, LONGEST_PAUSE, SETTLED = 20.0, 1000.0, 100.0
GOODBYE_WAIT = 1000.0
IDLE_PING = 5000.0  # between pings when there is no grace that would say
SHORTEST_RENEWAL = 10.0  # between renewals, whatever ttl the broker says
FOULS = 3  # connections that may end in a breach of protocol while a request is on them


class _Renewal:
    """Marks renewals that the core makes by itself."""


RENEWAL: Any = _Renewal()


class Base:
    """The state of a core, and the sending of requests."""

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
        self._adrift = 0  # resumes that were sent and not answered
        self._up_since = 0.0

        self._ping_at: float | None = None
        self._probe: Call | None = None
        self._heard = False

        self._patient = 0.0
        self._overdue_at: float | None = None
        self._closing = False
        self._goodbye: Call | None = None
        self._goodbye_until: float | None = None

    @property
    def server(self) -> ServerInfo:
        hello = self.hello
        return ServerInfo() if hello is None else ServerInfo(hello.server, hello.durability, hello.fencing)

    @property
    def has_output(self) -> bool:
        return bool(self._out)

    def take(self) -> bytes:
        """Return what is to be sent, and forget it."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _tell(self, what: Callable[..., None], *args: Any) -> None:
        self.effects.append((what, args))

    def _admit(self, call: Call, now: float) -> None:
        if self.state is State.OVER or self._closing:
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
                # Refuses what no frame can carry.
                _frames.encode(call.n, call.do, call.fields, _frames.MAX_REQUEST - _frames.ROOM)
            self._calls[call.n] = call
            self._overdue_at = _frames.earlier(self._overdue_at, self._due(call))
            return
        fields = call.fields
        if call.spec is not None and call.do == "acquire":
            fields = call.spec.frame(now - call.start)
        # A first sending leaves room for the later ones.
        limit = _frames.MAX_REQUEST - (_frames.ROOM if call.sent is None and call.start == now else 0)
        self._out.append(_frames.encode(call.n, call.do, fields, limit))
        call.sent = now
        self._calls[call.n] = call

    def _ours(self, do: str, fields: dict[str, Any], now: float) -> None:
        call = Call(do, fields, None, now)
        call.ours = True
        self._send(call, now)

    def _answer(self, call: Call, value: Any, error: LatchkeyError | None) -> None:
        if call.do == "release" and call.lease is not None:
            self._released(call.lease, error)
            return
        if call.ours or call.sink is None or call.sink is RENEWAL:
            return
        if call.do == "acquire" and call.abandoned:
            return
        self._tell(call.sink._done, value, error)

    def _released(self, lease: Lease, error: LatchkeyError | None) -> None:
        lease.asked = False
        lease.given = error is None or error.code in ("not_held", "over")
        sinks, lease.releasing = lease.releasing, []
        for sink in sinks:
            self._tell(sink._done, None, error)

    def _due(self, call: Call) -> float | None:
        """Return when a call is given up if there is no connection until then."""
        if call.ours or call.do in ("cancel", "watch"):
            return None
        if call.spec is None or call.spec.tries:
            return self._patient
        return None if call.spec.wait is None else call.start + call.spec.wait
