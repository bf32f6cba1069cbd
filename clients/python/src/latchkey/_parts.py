"""What the core keeps: requests, leases, and who is told of them."""

from __future__ import annotations

import enum
from typing import Any, Protocol

from latchkey._frames import Grant
from latchkey._request import Acquire
from latchkey.errors import LatchkeyError, LeaseLost
from latchkey.types import Event, Queued

__all__ = ["Call", "HoldSink", "Lease", "Owner", "Phase", "Sink", "State", "WatchSink"]


class State(enum.Enum):
    """Where the connection is."""

    IDLE = "not started"
    PAUSE = "waits to connect"
    CONNECTING = "the front connects"
    GREETING = "hello and open are sent"
    UP = "has a session"
    OVER = "closed"


class Phase(enum.Enum):
    """Where a lease is."""

    HELD = "held"
    LOST = "lost"
    RELEASED = "released"


class Sink(Protocol):
    """Who is told the outcome of a request."""

    def _done(self, value: Any, error: LatchkeyError | None) -> None: ...


class HoldSink(Sink, Protocol):
    """Who is told of an acquire and of what becomes of its lease."""

    def _queued(self, queued: Queued) -> None: ...

    def _lost(self, error: LeaseLost) -> None: ...

    def _troubled(self, error: LatchkeyError) -> None: ...


class WatchSink(Sink, Protocol):
    """Who is told the events of a watch."""

    def _event(self, event: Event) -> None: ...

    def _ended(self, error: LatchkeyError) -> None: ...


class Owner(Protocol):
    """Who is told what concerns the client as a whole."""

    def _opened(self) -> None: ...

    def _over(self, error: LatchkeyError | None) -> None: ...


class Call:
    """One request from the moment it is made to its one outcome."""

    __slots__ = (
        "abandoned",
        "again",
        "do",
        "fields",
        "fouls",
        "lease",
        "n",
        "ours",
        "parked",
        "sent",
        "sink",
        "spec",
        "start",
        "told",
    )

    def __init__(self, do: str, fields: dict[str, Any], sink: Any, start: float) -> None:
        self.do = do
        self.fields = fields
        self.sink = sink
        self.start = start
        self.n = 0
        self.sent: float | None = None  # when it was last handed to a connection
        self.spec: Acquire | None = None
        self.lease: Lease | None = None  # that it is about, or that it was granted
        self.told = False  # that it is queued
        self.again = False  # it was on an earlier connection, so it may have been carried out
        self.parked = False  # a closing broker sent it back
        self.ours = False  # nobody waits for it
        self.abandoned = False  # its caller has gone, and a cancel follows it
        self.fouls = 0

    @property
    def id(self) -> str:
        value = self.fields.get("id", "")
        return value if isinstance(value, str) else ""

    @property
    def key(self) -> str:
        if self.spec is not None:
            return self.spec.keys[0]
        if self.lease is not None:
            return self.lease.key
        value = self.fields.get("key", "")
        return value if isinstance(value, str) else ""

    @property
    def waits(self) -> bool:
        return self.spec is not None and not self.spec.tries

    @property
    def ends(self) -> bool:
        return self.do in ("release", "cancel")

    def fail(self, kind: type[LatchkeyError], reason: str = "") -> LatchkeyError:
        return kind(reason, op=self.do, key=self.key)


class Lease:
    """What is held under one id."""

    __slots__ = (
        "asked",
        "cause",
        "deadline",
        "detached",
        "failures",
        "given",
        "id",
        "key",
        "overdue",
        "phase",
        "releasing",
        "renew",
        "renew_at",
        "renew_sent",
        "sink",
        "timer",
        "tokens",
        "trouble",
        "ttl",
    )

    def __init__(self, grant: Grant, spec: Acquire, sink: Any, sent: float) -> None:
        self.id = spec.id
        self.key = spec.keys[0]
        self.tokens = grant.tokens or dict.fromkeys(spec.keys)
        self.ttl = grant.ttl
        self.deadline = grant.deadline(sent)
        self.detached = grant.detached
        self.renew = spec.renew
        self.sink = sink
        self.phase = Phase.HELD
        self.cause: LeaseLost | None = None
        self.given = False  # nothing is left to give back
        self.asked = False  # a release is on its way
        self.releasing: list[Sink] = []  # who waits for its answer
        self.timer = 0  # the entry of the core's heap that counts
        self.renew_at: float | None = None
        self.renew_sent: float | None = None  # of the renewal in flight
        self.overdue = False  # it was reported as late
        self.failures = 0
        self.trouble: LatchkeyError | None = None
