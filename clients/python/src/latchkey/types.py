"""What a broker tells about keys, and what a request may ask for.

Durations are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from latchkey.errors import FencingUnknown

__all__ = [
    "FOREVER",
    "Event",
    "ForceResult",
    "Holder",
    "KeyState",
    "Listing",
    "Mode",
    "Queued",
    "ServerInfo",
    "Ttl",
    "Wait",
    "Waiter",
]

Mode = Literal["exclusive", "shared", "counted"]
"""Who may hold a key at a time: one; any number of shared holders; up to ``max``."""


class _Forever:
    """The type of FOREVER."""

    def __repr__(self) -> str:
        return "FOREVER"


FOREVER: Final = _Forever()
"""A ttl without end: the lease lasts until its release, a force, or its session's end."""

Duration = float | timedelta
Ttl = float | timedelta | _Forever
"""A time to live: seconds, a timedelta, or FOREVER."""


@dataclass(frozen=True)
class Holder:
    """Who holds a key.

    Attributes:
        session, host, pid, label: who it is, as they named themselves.
        mode, max: as asked.
        token: the fencing token; None if the broker told none.
        since: for how long it holds.
        ttl: the time to live; None is for ever.
        remaining: what is left; None if it has no end of its own.
        detached: it outlives its session.
        broken: its session has no connection just now.
    """

    session: str = ""
    host: str = ""
    pid: int = 0
    label: str = ""
    mode: str = ""
    max: int = 0
    token: int | None = None
    since: float = 0.0
    ttl: float | None = None
    remaining: float | None = None
    detached: bool = False
    broken: bool = False

    def __str__(self) -> str:
        who = self.session or "an unnamed session"
        if self.label:
            who += f" ({self.label})"
        if self.host:
            who += f" on {self.host}"
        if self.pid:
            who += f" pid {self.pid}"
        left = "never expires" if self.remaining is None else f"{self.remaining:.3f} s left"
        return f"{who} for {self.since:.3f} s ({left})"


@dataclass(frozen=True)
class Waiter:
    """Who waits for a key.

    Attributes:
        session, host, pid, label: who it is.
        mode, max: as asked.
        keys: how many keys the request is for.
        age: for how long it has waited.
        left: time until its bound; None if it has none.
        broken: its session has no connection just now.
    """

    session: str = ""
    host: str = ""
    pid: int = 0
    label: str = ""
    mode: str = ""
    max: int = 0
    keys: int = 0
    age: float = 0.0
    left: float | None = None
    broken: bool = False


@dataclass(frozen=True)
class KeyState:
    """One key of a listing.

    Attributes:
        key: its name.
        holders: in the order of their grants.
        waiters: in the order of arrival; the first ones when there are many.
        waiting: how many wait.
        delay: what is left of a lock-delay.
    """

    key: str
    holders: tuple[Holder, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    waiting: int = 0
    delay: float = 0.0


@dataclass(frozen=True)
class Listing:
    """A page of keys; ``more`` says that there are more after the last one."""

    keys: tuple[KeyState, ...] = ()
    more: bool = False


@dataclass(frozen=True)
class ServerInfo:
    """What a broker says of itself.

    Attributes:
        server: product and version, for people.
        durability: ``memory``, or how what is acknowledged survives a crash.
        fencing: where tokens come from; ``journal``: they rise for ever, ``clock``: as long
            as the broker's clock is not set back between two starts.
    """

    server: str = ""
    durability: str = ""
    fencing: str = ""


@dataclass(frozen=True)
class Queued:
    """Where a request stands that has to wait.

    Attributes:
        key: the first key in the way.
        position: the number of requests ahead of it there.
        ahead: up to eight holders of that key.
    """

    key: str = ""
    position: int = 0
    ahead: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Wait:
    """One step of a deadlock: ``who`` waits for ``key``."""

    who: str
    key: str

    def __str__(self) -> str:
        return f"{self.who} waits for {self.key!r}"


@dataclass(frozen=True)
class Event:
    """Something that happened to a key that is watched.

    Attributes:
        event: ``granted``, ``released``, ``expired``, ``forced``, ``ended``, ``queued``,
            ``dequeued``, ``detached``; or ``gap``: events are missing here, list again.
        key: the key; empty for a gap.
        holder: who, with mode and token.
        after: time waited (granted, dequeued) or held (the ends).
        code: why, of ``dequeued``.
        by: who forced it.
    """

    event: str
    key: str = ""
    holder: Holder = field(default_factory=Holder)
    after: float = 0.0
    code: str = ""
    by: str = ""

    @property
    def token(self) -> int | None:
        """The fencing token, if there is one."""
        return self.holder.token


class ForceResult:
    """What a force ended.

    Attributes:
        tokens: the keys with the tokens that were ended; None where the broker told none.
    """

    def __init__(self, tokens: Mapping[str, int | None], fence: int | None) -> None:
        self.tokens = tokens
        self._fence = fence

    @property
    def fence(self) -> int:
        """A fresh token above all of them: tell it to the resource, and the old holders are shut out at once.

        Raises:
            FencingUnknown: the broker gave none that can be trusted.
        """
        if self._fence is None:
            key = next(iter(self.tokens), "")
            raise FencingUnknown("the broker gave no token that can be trusted", op="force", key=key)
        return self._fence

    def __repr__(self) -> str:
        return f"<ForceResult {dict(self.tokens)!r}, fence {self._fence}>"


Stats = Mapping[str, Any]
