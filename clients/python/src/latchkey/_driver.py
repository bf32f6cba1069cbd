"""Drives a core on an asyncio event loop: sockets and timers. Both fronts use it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from latchkey._clock import now_ms
from latchkey._core import Core
from latchkey._parts import Call, HoldSink, Lease, Owner, Sink, State
from latchkey._request import Acquire, Address, SessionOptions

__all__ = ["Driver"]


class Driver:
    """Connects a core with the world. Everything runs in the loop's thread."""

    def __init__(
        self,
        address: Address,
        options: SessionOptions,
        owner: Owner,
        log: logging.Logger,
        clock: Callable[[], float] = now_ms,
        catch: type[BaseException] = Exception,
    ) -> None:
        self.core = Core(options, owner, log)
        self.clock = clock
        self._address = address
        self._log = log
        self._catch = catch  # what a callback may raise without harm to the rest
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._link: _Link | None = None
        self._links: set[_Link] = set()  # whose sockets are open
        self._attempts: set[asyncio.Task[None]] = set()  # to connect; all but the newest are being cancelled
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._flushing = False
        self._telling = False

    # What the fronts ask for. Errors of the core are raised at once.

    def start(self) -> None:
        """Connect and open the session; the owner is told."""
        self.core.start(self.clock())
        self._pump()

    def acquire(self, spec: Acquire, sink: HoldSink) -> Call:
        """Ask for a lease."""
        self._measure()
        try:
            return self.core.acquire(spec, sink, self.clock())
        finally:
            self._pump()

    def cancel(self, call: Call, sink: Sink) -> None:
        """Take a request back."""
        self.core.cancel(call, sink, self.clock())
        self._pump()

    def renew(self, lease: Lease, ttl: int | None, change: bool, sink: Sink) -> None:
        """Renew a lease."""
        self._measure()
        try:
            self.core.renew(lease, ttl, change, sink, self.clock())
        finally:
            self._pump()

    def detach(self, lease: Lease, sink: Sink) -> None:
        """Detach a lease."""
        try:
            self.core.detach(lease, sink, self.clock())
        finally:
            self._pump()

    def release(self, lease: Lease, sink: Sink | None) -> None:
        """Release a lease."""
        self.core.release(lease, sink, self.clock())
        self._pump()

    def ask(self, do: str, fields: dict[str, Any], sink: Sink) -> Call:
        """Ask for something else."""
        self._measure()
        try:
            return self.core.ask(do, fields, sink, self.clock())
        finally:
            self._pump()

    def unwatch(self, call: Call) -> None:
        """End a watch."""
        self.core.unwatch(call, self.clock())
        self._pump()

    def look(self) -> None:
        """Look at the clock, before any timer does."""
        self.core.tick(self.clock())
        self._pump()

    def look_soon(self) -> None:
        """Look at the clock, from any thread, and even when the loop is closed."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self.look()
            return
        try:
            self._loop.call_soon_threadsafe(self.look)
        except RuntimeError:
            pass  # nobody is told any more, but the verdict stands

    def close(self) -> None:
        """Say goodbye; the owner is told when it is over."""
        self.core.close(self.clock())
        self._pump()

    async def wait_closed(self) -> None:
        """Wait until no socket and no task is left. For the time after the end."""
        while waits := [link.closed for link in self._links] + list(self._attempts):
            await asyncio.wait(waits)

    # What comes from outside.

    def _made(self, link: _Link, transport: asyncio.Transport) -> None:
        self._links.add(link)
        if link is not self._link or self.core.state is not State.CONNECTING:
            transport.abort()  # it came too late
            return
        self._transport = transport
        self.core.connected(self.clock())
        self._pump()

    def _received(self, link: _Link, data: bytes) -> None:
        if link is not self._link:
            return
        try:
            self.core.received(data, self.clock())
        except Exception as e:  # a defect of this client must not leave callers waiting
            self._log.exception("a frame of the broker could not be taken")
            self.core.disconnected(f"a frame could not be taken: {e!r}", self.clock())
            self.core.drop = True
        self._pump()

    def _lost(self, link: _Link, error: Exception | None) -> None:
        self._links.discard(link)
        if link is self._link:
            self._link = self._transport = None
            self.core.disconnected(f"the connection broke: {error or 'closed by the broker'}", self.clock())
            self._pump()

    async def _connect(self) -> None:
        link = self._link = _Link(self)
        try:
            if isinstance(self._address, str):
                await self._loop.create_unix_connection(lambda: link, self._address)
            else:
                await self._loop.create_connection(lambda: link, *self._address)
        except (OSError, NotImplementedError, UnicodeError) as e:
            if link is not self._link:
                return
            self._link = None
            self.core.disconnected(f"cannot connect to {self._where()}: {e}", self.clock())
            self._pump()

    def _where(self) -> str:
        if isinstance(self._address, str):
            return f"unix:{self._address}"
        return f"{self._address[0]}:{self._address[1]}"

    def _on_timer(self) -> None:
        self._timer = None
        try:
            self.core.tick(self.clock())
        except Exception:  # a defect of this client must not stop the watch over deadlines
            self._log.exception("something that was due could not be done")
        self._pump()

    # What follows.

    def _measure(self) -> None:
        self.core.backlog = 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _pump(self) -> None:
        """Do what the core wants done."""
        core = self.core
        if core.drop:
            core.drop = False
            self._drop()
        if core.has_output and not self._flushing:
            # What others are about to send in this turn of the loop goes along.
            self._flushing = True
            self._loop.call_soon(self._flush)
        if not self._telling:
            self._tell()
        now = self.clock()
        if core.wants_connection(now):
            core.connecting(now)
            attempt = self._loop.create_task(self._connect(), name="latchkey connect")
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)
        self._arm(now)

    def _tell(self) -> None:
        self._telling = True
        try:
            while self.core.effects:
                effects, self.core.effects = self.core.effects, []
                for i, (what, args) in enumerate(effects):
                    try:
                        what(*args)
                    except self._catch:
                        self._log.exception("a callback failed")
                    except BaseException:
                        self.core.effects[:0] = effects[i + 1 :]  # told at the next occasion
                        raise
        finally:
            self._telling = False
        if self.core.has_output and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._transport is not None and self.core.has_output:
            self._transport.write(self.core.take())

    def _drop(self) -> None:
        transport = self._transport
        self._link = self._transport = None
        for attempt in self._attempts:
            attempt.cancel()
        if transport is not None:
            transport.abort()

    def _arm(self, now: float) -> None:
        at = self.core.wake_at()
        if self._timer is not None:
            if at is not None and at >= self._timer_at:
                return  # it only looks too early
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer_at = at
            self._timer = self._loop.call_later(max(at - now, 0.0) / 1000, self._on_timer)


class _Link(asyncio.Protocol):
    """One connection; it knows whether it is still the one in use."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.closed: asyncio.Future[None] = driver._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=1 << 30)  # the core has the limit
        self._driver._made(self, transport)

    def data_received(self, data: bytes) -> None:
        self._driver._received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self._driver._lost(self, exc)
