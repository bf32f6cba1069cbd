"""What the tests share: a core driven by hand, a scripted broker, a real broker."""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from latchkey import _request
from latchkey._core import Core
from latchkey._parts import Call, Lease, State
from latchkey.errors import LatchkeyError, LeaseLost

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
ROOT = Path(__file__).resolve().parents[3]
SESSION = "GZ4ZB3OWPSGXQ2XN"


def vectors(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return cases


def line_of(case: dict[str, Any]) -> bytes:
    if "base64" in case:
        return base64.b64decode(case["base64"])
    return str(case["line"]).encode()


class Told:
    """A sink that keeps what it was told."""

    def __init__(self) -> None:
        self.news: list[Any] = []

    def _done(self, value: Any, error: LatchkeyError | None) -> None:
        self.news.append(value if error is None else error)

    def _queued(self, queued: Any) -> None:
        self.news.append(queued)

    def _lost(self, error: LeaseLost) -> None:
        self.news.append(error)

    def _troubled(self, error: LatchkeyError) -> None:
        self.news.append(("troubled", error))

    def _event(self, event: Any) -> None:
        self.news.append(event)

    def _ended(self, error: LatchkeyError) -> None:
        self.news.append(("ended", error))

    def _opened(self) -> None:
        self.news.append("opened")

    def _over(self, error: LatchkeyError | None) -> None:
        self.news.append(("over", error))

    @property
    def outcomes(self) -> list[Any]:
        """What it was told, but for the trouble of a lease that is still held."""
        return [n for n in self.news if not (isinstance(n, tuple) and n[0] == "troubled")]

    @property
    def last(self) -> Any:
        return self.news[-1] if self.news else None


class ByHand:
    """A core whose connection and clock are moved by hand. Times are milliseconds."""

    def __init__(self, grace: float = 3.0, start: bool = True) -> None:
        self.owner = Told()
        self.now = 1000.0
        options = _request.SessionOptions(name="test", grace=round(grace * 1000))
        self.core = Core(options, self.owner, logging.getLogger("latchkey.test"), rand=lambda: 0.0)
        if start:
            self.core.start(self.now)
            self.connect()
            self.open()

    def settle(self) -> None:
        while self.core.effects:
            effects, self.core.effects = self.core.effects, []
            for what, args in effects:
                what(*args)

    def connect(self) -> None:
        assert self.core.wants_connection(self.now), self.core.state
        self.core.connecting(self.now)
        self.core.connected(self.now)

    def open(self, **fields: Any) -> dict[str, Any]:
        hello, asked = self.sent()
        assert hello == {"latchkey": 1, "features": []}
        assert asked["do"] == "open"
        self.hear({"latchkey": 1, "features": [], "server": "test", "durability": "memory", "fencing": "clock"})
        answer = {"n": asked["n"], "ok": True, "session": SESSION, "grace": self.core.options.grace, "elapsed": 0}
        self.hear({**answer, **fields})
        assert self.core.state is State.UP
        return asked

    def again(self, **fields: Any) -> list[dict[str, Any]]:
        """Connect again, resume, and return what is sent then."""
        self.run_until(lambda: self.core.wants_connection(self.now))
        self.connect()
        asked = self.open(leases=[], **fields) if "leases" not in fields else self.open(**fields)
        assert asked["resume"] == SESSION
        return self.sent()

    def cut(self, reason: str = "cut") -> None:
        self.core.disconnected(reason, self.now)
        self.settle()

    def sent(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.core.take().splitlines()]

    def hear(self, *frames: dict[str, Any]) -> None:
        data = b"".join(json.dumps(f).encode() + b"\n" for f in frames)
        self.core.received(data, self.now)
        self.settle()

    def sleep(self, ms: float) -> None:
        """Let time pass, doing what is due at its time."""
        end = self.now + ms
        while True:
            at = self.core.wake_at()
            if at is None or at > end:
                break
            self.now = max(at, self.now)
            self.due()
        self.now = end

    def due(self) -> None:
        """Do what is due. A connection that is wanted does not come about."""
        if self.core.wants_connection(self.now):
            self.core.connecting(self.now)
        self.core.tick(self.now)
        self.settle()

    def freeze(self, ms: float) -> None:
        """Let time pass while nothing runs."""
        self.now += ms

    def run_until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            at = self.core.wake_at()
            assert at is not None, "nothing is due any more"
            self.now = max(at, self.now)
            if not condition():
                self.due()
        raise AssertionError("it does not come about")

    def acquire(self, key: str = "a", **options: Any) -> tuple[Told, Call]:
        told = Told()
        call = self.core.acquire(_request.acquire(key, **options), told, self.now)
        return told, call

    def grant(self, asked: dict[str, Any], token: Any = 17, **fields: Any) -> dict[str, Any]:
        ttl = asked.get("ttl", 30000)
        frame = {"n": asked["n"], "ok": True, "id": asked["id"], "key": asked["key"], "token": token}
        return {**frame, "ttl": ttl, "elapsed": 0, "remaining": ttl, "waited": 0, **fields}

    def held(self, key: str = "a", token: Any = 17, **options: Any) -> tuple[Told, Lease]:
        told, _ = self.acquire(key, **options)
        (asked,) = self.sent()
        self.hear(self.grant(asked, token))
        lease = told.last
        assert isinstance(lease, Lease), lease
        return told, lease


def entry(lease: Lease, **fields: Any) -> dict[str, Any]:
    """An entry of the leases of a resume."""
    base = {"id": lease.id, "keys": list(lease.tokens), "tokens": list(lease.tokens.values()), "ttl": lease.ttl}
    return {**base, "remaining": lease.ttl, "waited": 0, **fields}


def wait_for(condition: Callable[[], Any], what: str = "it", limit: float = 60.0) -> Any:
    """Poll for something real, with a bound."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"{what} does not come about within {limit} s")


async def soon(condition: Callable[[], Any], what: str = "it", limit: float = 60.0) -> Any:
    """Poll for something in this event loop, with a bound."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        await asyncio.sleep(0.002)
    raise AssertionError(f"{what} does not come about within {limit} s")


class Script:
    """A broker on loopback that does what a test says: one connection after another."""

    def __init__(self, *turns: Callable[[Peer], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.error: BaseException | None = None
        self._turns = turns
        self._thread = threading.Thread(target=self._serve, name="script", daemon=True)

    def __enter__(self) -> Script:
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._thread.join(30)
        self.listener.close()
        assert not self._thread.is_alive(), "the script has not come to its end"
        if self.error is not None and kind is None:
            raise self.error

    def _serve(self) -> None:
        try:
            for turn in self._turns:
                self.listener.settimeout(30)
                connection, _ = self.listener.accept()
                with connection:
                    connection.settimeout(30)
                    turn(Peer(connection))
        except BaseException as e:
            self.error = e


class Peer:
    """The broker's end of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._rest = b""

    def read(self) -> dict[str, Any]:
        """Return the next frame that is no ping; pings are answered."""
        while True:
            while b"\n" not in self._rest:
                data = self.connection.recv(65536)
                if not data:
                    raise EOFError
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\n")
            frame: dict[str, Any] = json.loads(line)
            if frame.get("do") != "ping":
                return frame
            self.write({"n": frame["n"], "ok": True})

    def until_closed(self) -> list[dict[str, Any]]:
        frames = []
        try:
            while True:
                frame = self.read()
                frames.append(frame)
                if frame.get("do") in ("release", "close"):
                    self.write({"n": frame["n"], "ok": True})
        except (EOFError, ConnectionError):
            return frames

    def write(self, *frames: dict[str, Any]) -> None:
        self.raw(b"".join(json.dumps(f).encode() + b"\n" for f in frames))

    def raw(self, data: bytes) -> None:
        self.connection.sendall(data)

    def greet(self, **fields: Any) -> dict[str, Any]:
        """Exchange hellos and open."""
        assert self.read()["latchkey"] == 1
        asked = self.read()
        self.write({"latchkey": 1, "features": []})
        answer = {"n": asked["n"], "ok": True, "session": SESSION, "grace": asked.get("grace", 3000), "elapsed": 0}
        self.write({**answer, **fields})
        return asked

    def grant(self, asked: dict[str, Any], **fields: Any) -> dict[str, Any]:
        ttl = asked.get("ttl", 30000)
        frame = {"n": asked["n"], "ok": True, "id": asked["id"], "key": asked["key"], "token": 17}
        return {**frame, "ttl": ttl, "elapsed": 0, "remaining": ttl, "waited": 0, **fields}


_binary: str | None = None


def binary() -> str:
    """Return the broker's program, built once if nobody gives one."""
    global _binary
    if _binary is None:
        _binary = os.environ.get("LATCHKEY_BINARY")
    if not _binary:
        folder = tempfile.mkdtemp(prefix="latchkey-python-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _binary = str(Path(folder) / "latchkey")
        subprocess.run(["go", "build", "-o", _binary, "./cmd/latchkey"], cwd=ROOT, check=True)
    return _binary


class Broker:
    """A real broker on a free port that can be killed, started again and frozen."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self.folder = folder
        self.durable = durable
        self.port = 0
        self.unix = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [binary(), "serve", "--listen", self.address, "--http", ""]
        if self.unix:
            command += ["--unix", self.unix]
        if self.durable:
            command += ["--data", str(self.folder / "data")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        said = ""
        while not (line := self._process.stdout.readline()).startswith("tcp "):
            said += line
            assert line, f"the broker ended: {said}"
        self.port = int(line.rpartition(":")[2])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def descriptors() -> set[str]:
    """What this process has open, as far as the system tells."""
    folder = Path("/proc/self/fd")
    return set(_links(folder)) if folder.is_dir() else set()


def _links(folder: Path) -> Iterator[str]:
    for link in folder.iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(("socket:", "pipe:", "anon_inode:")):
            yield target
