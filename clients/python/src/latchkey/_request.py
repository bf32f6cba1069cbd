"""What a caller asks for, checked and in the units of the wire."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from latchkey.errors import Refused
from latchkey.types import FOREVER, Ttl

DEFAULT_ADDRESS = "127.0.0.1:6970"
MIN_TTL = 100
DAYS_366 = 366 * 24 * 3600 * 1000
HOUR = 3600 * 1000
MAX_KEYS, MAX_KEY, MAX_ID, MAX_TEXT, MAX_COUNT, MAX_DECLARED = 64, 512, 128, 256, 1000, 64

Address = tuple[str, int] | str
"""Host and port, or the path of a unix socket."""


def parse_address(address: str | None) -> Address:
    """Take ``host:port``, ``[v6]:port`` or ``unix:PATH``; None asks the environment."""
    if not address:
        address = os.environ.get("LATCHKEY_SERVER") or DEFAULT_ADDRESS
    if address.startswith("unix:"):
        path = address[len("unix:") :]
        if path:
            return path
    elif "/" not in address:
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
        if colon and port.isascii() and port.isdigit() and int(port) <= 65535:
            return (host or "127.0.0.1", int(port))
    hint = ", without a scheme in front" if "://" in address else ""
    raise Refused(f"address {address!r} must be host:port or unix:PATH{hint}", op="connect")


def milliseconds(what: str, value: float | timedelta, least: int, most: int, low: int | None = None) -> int:
    """Turn seconds or a timedelta into whole milliseconds, never fewer than asked."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise Refused(f"{what} must be seconds or a timedelta, got {type(value).__name__}")
    if not -1e15 < seconds < 1e15:  # not a number too
        raise Refused(f"{what} {seconds!r} is not a duration")
    ms = round(seconds * 1_000_000)
    ms = -(-ms // 1000)
    if not least <= ms <= most:
        low = least if low is None else low  # what is said to be the least
        raise Refused(f"{what} {seconds:.12g} s is out of range: from {low / 1000:g} s to {most / 1000:.12g} s")
    return ms


def ttl_ms(ttl: Ttl) -> int | None:
    """Turn a ttl into milliseconds; None is for ever."""
    if ttl is FOREVER:
        return None
    ms = milliseconds("ttl", ttl, -(1 << 60), DAYS_366, low=MIN_TTL)  # type: ignore[arg-type]
    if ms < MIN_TTL:
        why = "the safety margin and a scheduling delay would use it up"
        raise Refused(f"ttl {ms / 1000:.12g} s is under {MIN_TTL / 1000:g} s: {why}")
    return ms


def check_text(what: str, value: str, most: int, *, empty: bool = True) -> str:
    """Refuse a text that no frame can carry or that the broker would refuse."""
    if not isinstance(value, str):
        raise Refused(f"{what} must be a str, got {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Refused(f"{what} is not valid UTF-8: it has half of a surrogate pair") from None
    if size > most:
        raise Refused(f"{what} is {size} bytes, at most {most} are allowed")
    if size == 0 and not empty:
        raise Refused(f"{what} must not be empty")
    return value


def check_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """Take one key or several different ones."""
    if isinstance(keys, bytes | bytearray) or not isinstance(keys, Iterable):
        raise Refused(f"key must be a str, or several, got {type(keys).__name__}")
    result = (keys,) if isinstance(keys, str) else tuple(keys)
    if not 1 <= len(result) <= MAX_KEYS:
        raise Refused(f"{len(result)} keys; a request has 1 to {MAX_KEYS}")
    for key in result:
        check_text("key", key, MAX_KEY, empty=False)
    if len(set(result)) != len(result):
        raise Refused("a key occurs twice")
    return result


def new_id() -> str:
    """Make an id that cannot be guessed: whoever knows it can release the hold."""
    return secrets.token_hex(16)


@dataclass
class Acquire:
    """A checked acquire, durations in milliseconds."""

    keys: tuple[str, ...]
    id: str
    ttl: int | None
    wait: int | None  # None: without bound; 0: a try
    fields: dict[str, Any]  # everything that does not change when it is sent again
    detach: bool
    renew: bool
    named: bool = False  # the id is the caller's, so it may be in use

    @property
    def tries(self) -> bool:
        return self.wait == 0

    def frame(self, age: float) -> dict[str, Any]:
        """Return the fields to send when the request is that old."""
        fields = self.fields
        if self.wait is None and age < 1:
            return fields
        fields = dict(fields)
        if self.wait:
            fields["wait"] = max(int(self.wait - age), 1)
        if age >= 1:
            fields["waited"] = min(int(age), DAYS_366)
        return fields


def acquire(
    keys: str | Iterable[str],
    *,
    mode: str = "exclusive",
    max: int | None = None,  # noqa: A002
    ttl: Ttl = 30.0,
    wait: float | timedelta | None = None,
    label: str = "",
    prefer_readers: bool = False,
    max_hold: float | timedelta | None = None,
    lock_delay: float | timedelta = 0,
    detach: bool = False,
    declared: Iterable[str] = (),
    id: str | None = None,  # noqa: A002
    renew: bool = True,
) -> Acquire:
    """Check a request and complete it."""
    names = check_keys(keys)
    wait_ms = None if wait is None else milliseconds("wait", wait, 0, DAYS_366)
    request_id = new_id() if id is None else check_text("id", id, MAX_ID, empty=False)
    life = ttl_ms(ttl)
    fields: dict[str, Any] = {"id": request_id}
    fields.update({"key": names[0]} if len(names) == 1 else {"keys": list(names)})
    if mode not in ("exclusive", "shared", "counted"):
        raise Refused(f"mode {mode!r} must be exclusive, shared or counted")
    if mode != "exclusive":
        fields["mode"] = mode
    if mode == "counted":
        if isinstance(max, bool) or not isinstance(max, int) or not 1 <= max <= MAX_COUNT:
            raise Refused(f"max must be 1 to {MAX_COUNT} for a counted hold, got {max!r}")
        fields["max"] = max
    elif max is not None:
        raise Refused(f"max is for counted holds only, this one is {mode}")
    fields.update({"forever": True} if life is None else {"ttl": life})
    if wait_ms == 0:
        fields["try"] = True
    if prefer_readers:
        if mode != "shared":
            raise Refused("prefer_readers is for shared holds only")
        fields["prefer_readers"] = True
    if max_hold is not None:
        fields["max_hold"] = milliseconds("max_hold", max_hold, 1, DAYS_366)
    delay = milliseconds("lock_delay", lock_delay, 0, HOUR)
    if delay:
        fields["lock_delay"] = delay
    if detach:
        fields["detach"] = True
    if check_text("label", label, MAX_TEXT):
        fields["label"] = label
    others = list(dict.fromkeys(check_text("declared id", d, MAX_ID, empty=False) for d in declared))
    if len(others) > MAX_DECLARED:
        raise Refused(f"{len(others)} declared holds, at most {MAX_DECLARED} are allowed")
    if others:
        fields["declared"] = others
    return Acquire(names, request_id, life, wait_ms, fields, detach, renew, id is not None)


@dataclass(frozen=True)
class SessionOptions:
    """How a client introduces itself, durations in milliseconds."""

    name: str = ""
    host: str = ""
    pid: int = 0
    grace: int = 3000
    connect_timeout: int = 3000

    def fields(self) -> dict[str, Any]:
        """Return the fields of an open."""
        fields: dict[str, Any] = {}
        if self.name:
            fields["name"] = self.name
        if self.host:
            fields["host"] = self.host
        if self.pid:
            fields["pid"] = self.pid
        if self.grace != 3000:
            fields["grace"] = self.grace
        return fields


def session_options(name: str, grace: float | timedelta, connect_timeout: float | timedelta) -> SessionOptions:
    """Check the options of a client and fill in host and pid."""
    host = socket.gethostname().encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore")
    return SessionOptions(
        check_text("name", name, MAX_TEXT),
        host,
        os.getpid(),
        milliseconds("grace", grace, 0, HOUR),
        milliseconds("connect_timeout", connect_timeout, 1, HOUR),
    )


def selector(key: str | None, prefix: str | None) -> dict[str, Any]:
    """Return the fields that select one key, those with a prefix, or all."""
    if key is not None and prefix is not None:
        raise Refused("give a key or a prefix, not both")
    if key is not None:
        return {"key": check_text("key", key, MAX_KEY, empty=False)}
    return {"prefix": check_text("prefix", prefix, MAX_KEY)} if prefix else {}


def check_buffer(buffer: int) -> None:
    """Refuse a buffer of a watch that holds nothing."""
    if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
        raise Refused(f"buffer must be an integer from 1, got {buffer!r}", op="watch")


def listing(
    key: str | None, prefix: str | None, after: str | None, limit: int | None, contended: bool, brief: bool
) -> dict[str, Any]:
    """Return the fields of a list."""
    fields = selector(key, prefix)
    if after:
        fields["after"] = check_text("after", after, MAX_KEY)
    if limit is not None:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= 10_000:
            raise Refused(f"limit must be 1 to 10000, got {limit!r}")
        fields["limit"] = limit
    if contended:
        fields["contended"] = True
    if brief:
        fields["brief"] = True
    return fields


def force(key: str, token: int | None, by: str, reason: str) -> dict[str, Any]:
    """Return the fields of a force."""
    fields: dict[str, Any] = {"key": check_text("key", key, MAX_KEY, empty=False)}
    if token is not None:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 < token < 1 << 53:
            raise Refused(f"token must be 1 to 2^53 - 1, got {token!r}")
        fields["token"] = token
    if check_text("by", by, MAX_TEXT):
        fields["by"] = by
    if check_text("reason", reason, MAX_TEXT):
        fields["reason"] = reason
    return fields
