"""Lines into frames, frames into values, and back. Pure functions.

Durations are milliseconds here, as on the wire; what users see is in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from latchkey.errors import LatchkeyError, ProtocolError, Refused, by_code
from latchkey.types import Event, ForceResult, Holder, KeyState, Listing, Queued, Wait, Waiter

MAX_REQUEST = 65_536
ROOM = 64  # of a frame, for what an acquire gains when it is sent again: its age
MAX_REPLY = 1_048_576
MAX_SAFE = (1 << 53) - 1
VERSION = 1

HELLO = b'{"latchkey":1,"features":[]}\n'

Frame = dict[str, Any]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


class Lines:
    """Cuts a stream of bytes at newlines, with a limit on the length of a line."""

    def __init__(self, limit: int = MAX_REPLY) -> None:
        self._limit = limit
        self._rest = b""
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that data completes; raise ProtocolError at one over the limit."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            if self._size + end - start > self._limit:
                self._too_long()
            line = data[start:end]
            if self._pieces:
                self._pieces.append(line)
                line = b"".join(self._pieces)
                self._pieces.clear()
                self._size = 0
            start = end + 1
            yield line
        if start < len(data):
            # Many small pieces of one long line are joined once, at its end.
            self._pieces.append(data[start:])
            self._size += len(data) - start
            if self._size > self._limit:
                self._too_long()

    def _too_long(self) -> NoReturn:
        raise ProtocolError(f"a line of the broker is too long: over {self._limit} bytes")


def encode(n: int, do: str, fields: Mapping[str, Any], limit: int = MAX_REQUEST) -> bytes:
    """Make the line of a request. Raise Refused for what no frame can carry."""
    try:
        line = _encode({"n": n, "do": do, **fields}).encode()
    except UnicodeEncodeError as e:
        raise Refused("half of a surrogate pair is not valid UTF-8", op=do) from e
    if len(line) > limit:
        raise Refused(f"the request takes {len(line)} bytes, at most {limit} are allowed (MaxFrame)", op=do)
    return line + b"\n"


def decode(line: bytes) -> Frame:
    """Take a line for a JSON object. Raise ProtocolError if it is none."""
    try:
        frame = _decode(line.decode())
        if b"\\u" in line:  # an escape may make half of a surrogate pair
            _encode(frame).encode()
    except RecursionError:
        raise ProtocolError("a frame of the broker is nested too deep") from None
    except UnicodeError as e:
        raise ProtocolError(f"a frame of the broker is not valid UTF-8: {e}") from e
    except ValueError as e:
        raise ProtocolError(f"not JSON: {e}; each line must be a JSON object") from e
    if not isinstance(frame, dict):
        raise ProtocolError(f"got {_name(frame)}; each line must be a JSON object")
    return frame


def _name(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "true or false"), (int | float, "a number"), (str, "a string"), (list, "an array")):
        if isinstance(value, kind):
            return name
    return "an object"


def integer(frame: Frame, name: str, default: int = 0) -> int:
    """Return a whole number from 0 to 2^53 - 1."""
    value = frame.get(name, default)
    if type(value) is not int or not 0 <= value <= MAX_SAFE:
        raise ProtocolError(f"{name} must be an integer below 2^53, got {value!r}")
    return value


def _optional(frame: Frame, name: str) -> int | None:
    return integer(frame, name) if name in frame else None


def text(frame: Frame, name: str) -> str:
    """Return a string, empty when it is absent."""
    value = frame.get(name, "")
    if not isinstance(value, str):
        raise ProtocolError(f"{name} must be a string, got {_name(value)}")
    return value


def flag(frame: Frame, name: str) -> bool:
    """Return a truth value, false when it is absent."""
    value = frame.get(name, False)
    if not isinstance(value, bool):
        raise ProtocolError(f"{name} must be true or false, got {_name(value)}")
    return value


def objects(frame: Frame, name: str) -> list[Frame]:
    """Return an array of objects, empty when it is absent."""
    value = frame.get(name, [])
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise ProtocolError(f"{name} must be an array of objects")
    return value


def number(frame: Frame) -> int | None:
    """Return the n of a frame, None when it has none."""
    if "n" not in frame:
        return None
    n = integer(frame, "n")
    if n == 0:
        raise ProtocolError("n must be at least 1")
    return n


def token(value: object) -> int | None:
    """Return a token, or None for what cannot be one: it is never rounded, never 0."""
    if type(value) is int and 0 < value <= MAX_SAFE:
        return value
    return None


def tokens(frame: Frame) -> dict[str, int | None]:
    """Return the keys of a frame with their tokens, whether it says key or keys."""
    if "keys" not in frame:
        if "key" not in frame:
            return {}
        return {text(frame, "key"): token(frame.get("token"))}
    keys, values = frame["keys"], frame.get("tokens")
    if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
        raise ProtocolError("keys must be an array of strings")
    if not isinstance(values, list) or len(values) != len(keys):
        values = [None] * len(keys)
    return {k: token(v) for k, v in zip(keys, values, strict=True)}


@dataclass(frozen=True)
class Hello:
    """The broker's first frame."""

    version: int
    features: tuple[str, ...] = ()
    server: str = ""
    durability: str = ""
    fencing: str = ""


def hello(frame: Frame) -> Hello:
    """Take a frame for the broker's hello, or raise the failure that it is instead."""
    if frame.get("ok") is False:
        raise failure(frame)
    if "latchkey" not in frame:
        raise ProtocolError("no hello came first: this is not a Latchkey broker")
    version = integer(frame, "latchkey")
    if version != VERSION:
        raise ProtocolError(f"the broker speaks version {version} of the protocol, this client {VERSION}")
    features = frame.get("features", [])
    if not isinstance(features, list):
        raise ProtocolError("features must be an array")
    return Hello(
        version,
        tuple(f for f in features if isinstance(f, str)),
        text(frame, "server"),
        text(frame, "durability"),
        text(frame, "fencing"),
    )


def failure(frame: Frame) -> LatchkeyError:
    """Make the error of a frame with ``"ok":false``."""
    cycle = [Wait(text(w, "who"), text(w, "key")) for w in objects(frame, "cycle")]
    return by_code(
        text(frame, "code") or "internal",
        text(frame, "reason"),
        op=text(frame, "op"),
        key=text(frame, "key"),
        holders=[holder(h) for h in objects(frame, "holders")],
        cycle=cycle,
    )


@dataclass(frozen=True)
class Grant:
    """What an acquire, a renewal or an entry of a resume says of a lease.

    ``ttl`` is None for ever; ``remaining`` is None when the lease has no end of its own.
    """

    id: str
    tokens: dict[str, int | None]
    ttl: int | None
    remaining: int | None
    elapsed: int
    waited: int
    detached: bool

    def deadline(self, sent: float) -> float | None:
        """Return until when the holder may act, the session's end aside."""
        if self.remaining is None:
            return None
        return sent + self.elapsed + self.remaining - margin(self.ttl)


def grant(frame: Frame, elapsed: int | None = None) -> Grant:
    """Take a frame for a grant; elapsed stands for what a resume says of all."""
    ttl = None
    if not flag(frame, "forever"):
        ttl = integer(frame, "ttl")
        if "ttl" not in frame or "remaining" not in frame:
            raise ProtocolError("a grant with an end must say its ttl and how much of it remains")
    return Grant(
        text(frame, "id"),
        tokens(frame),
        ttl,
        _optional(frame, "remaining"),
        integer(frame, "elapsed") if elapsed is None else elapsed,
        integer(frame, "waited"),
        flag(frame, "detached"),
    )


def margin(duration: float | None) -> float:
    """Return how much earlier than the broker a holder stops; None is for ever."""
    if duration is None:
        return 1000.0
    return min(max(10.0, duration / 50), 1000.0)


def earlier(a: float | None, b: float | None) -> float | None:
    """Return the earlier of two times; None is never."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def holder(frame: Frame) -> Holder:
    """Take an object for a holder."""
    remaining = _optional(frame, "remaining")
    return Holder(
        session=text(frame, "session"),
        host=text(frame, "host"),
        pid=integer(frame, "pid"),
        label=text(frame, "label"),
        mode=text(frame, "mode"),
        max=integer(frame, "max"),
        token=token(frame.get("token")),
        since=integer(frame, "since") / 1000,
        ttl=None if flag(frame, "forever") or "ttl" not in frame else integer(frame, "ttl") / 1000,
        remaining=None if remaining is None else remaining / 1000,
        detached=flag(frame, "detached"),
        broken=flag(frame, "broken"),
    )


def _waiter(frame: Frame) -> Waiter:
    left = _optional(frame, "left")
    return Waiter(
        session=text(frame, "session"),
        host=text(frame, "host"),
        pid=integer(frame, "pid"),
        label=text(frame, "label"),
        mode=text(frame, "mode"),
        max=integer(frame, "max"),
        keys=integer(frame, "keys"),
        age=integer(frame, "age") / 1000,
        left=None if left is None else left / 1000,
        broken=flag(frame, "broken"),
    )


def listing(frame: Frame) -> Listing:
    """Take the answer to a list."""
    keys = tuple(
        KeyState(
            text(k, "key"),
            tuple(holder(h) for h in objects(k, "holders")),
            tuple(_waiter(w) for w in objects(k, "waiters")),
            integer(k, "waiting"),
            integer(k, "delay") / 1000,
        )
        for k in objects(frame, "keys")
    )
    return Listing(keys, flag(frame, "more"))


def queued(frame: Frame) -> Queued:
    """Take a queued frame."""
    ahead = tuple(holder(h) for h in objects(frame, "ahead"))
    return Queued(text(frame, "key"), integer(frame, "position"), ahead)


def event(frame: Frame) -> Event:
    """Take a frame of a watch."""
    return Event(
        event=text(frame, "event"),
        key=text(frame, "key"),
        holder=holder(frame),
        after=integer(frame, "after") / 1000,
        code=text(frame, "code"),
        by=text(frame, "by"),
    )


def forced(frame: Frame) -> ForceResult:
    """Take the answer to a force."""
    return ForceResult(tokens(frame), token(frame.get("fence")))
