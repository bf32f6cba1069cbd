"""The client for asyncio.

.. code-block:: python

    async with latchkey.aio.Client("127.0.0.1:6970", name="billing") as client:
        async with client.hold("invoices/2026-11") as hold:
            await work(hold.token)  # cancelled when the lease is lost

A client is one session on one connection. It belongs to the event loop in which it
was opened and is to be used from there only.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from latchkey import _hold, _request
from latchkey._driver import Driver
from latchkey._events import EventBuffer
from latchkey._hold import AcquireOptions, BaseHold
from latchkey._parts import Call, Lease, State
from latchkey.errors import Closed, LatchkeyError, LeaseLost
from latchkey.types import Event, ForceResult, Listing, ServerInfo, Stats, Ttl

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

__all__ = ["AcquireOptions", "Client", "Hold", "LostEvent", "Watch"]

_MARK = "latchkey: the lease was lost"


class _Answer:
    """A future that is told by the core."""

    def __init__(self) -> None:
        self.future: asyncio.Future[tuple[Any, LatchkeyError | None]] = asyncio.get_running_loop().create_future()

    def _done(self, value: Any, error: LatchkeyError | None) -> None:
        if not self.future.done():
            self.future.set_result((value, error))

    async def get(self) -> Any:
        value, error = await self.future
        if error is not None:
            raise error
        return value


class LostEvent(asyncio.Event):
    """Is set when a lease is lost; ``cause`` then says how."""

    def __init__(self) -> None:
        super().__init__()
        self.cause: LeaseLost | None = None


class Hold(BaseHold):
    """A lease that is held, renewed and watched. Made by :meth:`Client.acquire`.

    Attributes:
        lost: an event that is set when the lease is lost, before anybody else can have
            it; ``lost.cause`` says how.
    """

    def __init__(self, driver: Driver, spec: _request.Acquire, callbacks: Mapping[str, Any]) -> None:
        super().__init__(driver, spec, callbacks)
        self.lost = LostEvent()
        self._answer = _Answer()
        self._scope: _Scope | None = None

    async def renew(self, ttl: Ttl | None = None) -> None:
        """Start the ttl anew, from now, and change it if one is given.

        A hold is renewed by itself, unless it was asked for with ``renew=False``.
        """
        life, change = _hold.ttl_change(ttl)
        self.check()
        answer = _Answer()
        self._driver.renew(self._lease, life, change, answer)
        await answer.get()

    async def release(self) -> None:
        """Give the lease back and wait until the broker has confirmed it.

        Cancelling this does not take it back. Releasing again is harmless.

        Raises:
            LeaseLost: the lease had been lost before; what was left of it is given back.
            UnknownOutcome: it was not answered. The lease ends with its ttl or session;
                releasing again asks again.
        """
        _, error = await self._release()
        if self.lost.cause is not None:
            raise self.lost.cause
        if error is not None:
            raise error

    def _release(self) -> asyncio.Future[tuple[Any, LatchkeyError | None]]:
        """Send the release at once, so that no cancellation of the caller comes before it."""
        lease = self._lease
        self._driver.look()  # a loss that has come about is told, not hidden by the release
        answer = _Answer()
        self._driver.release(lease, answer)
        return answer.future

    async def detach(self) -> None:
        """Let the hold outlive this client, until its ttl."""
        self.check()
        answer = _Answer()
        self._driver.detach(self._lease, answer)
        await answer.get()

    def _notice(self) -> None:
        self._driver.look_soon()

    def _done(self, lease: Lease | None, error: LatchkeyError | None) -> None:
        self._granted = lease
        self._answer._done(lease, error)

    def _lost(self, error: LeaseLost) -> None:
        self.lost.cause = error
        self.lost.set()
        if self._scope is not None:
            self._scope._lost()
        callback = self._callbacks["on_lost"]
        if callback is not None:
            callback(error)


class _Scope:
    """``async with client.hold(...)``."""

    def __init__(self, client: Client, keys: str | Iterable[str], options: AcquireOptions) -> None:
        self._client = client
        self._keys = keys
        self._options = options
        self._hold: Hold | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._interrupted = False
        self._left = False
        self._declared: contextvars.Token[_hold._Around] | None = None

    async def __aenter__(self) -> Hold:
        if self._task is not None:
            raise RuntimeError("this scope was entered already; call hold() again")
        self._task = asyncio.current_task()
        if self._task is None:
            raise RuntimeError("hold() must be used inside a task")
        hold = await self._client.acquire(self._keys, **self._options)
        if sys.version_info >= (3, 11):
            self._cancelling = self._task.cancelling()
        self._hold = hold
        if hold.lost.cause is not None:  # between the grant and now
            self._client._give_back(hold)
            raise hold.lost.cause
        hold._scope = self
        self._declared = _hold.enter(hold)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._hold
        assert hold is not None and self._declared is not None
        _hold.leave(self._declared)
        self._left = True
        ours = self._absorb(error)
        answer: LatchkeyError | None = None
        release = hold._release()
        await asyncio.wait({release}, timeout=_hold.RELEASE_WAIT)
        if release.done():
            _, answer = release.result()
        else:
            self._client._log.warning("release of %r not confirmed, the hold ends with its ttl", hold.key)
        loss = _hold.end_of_scope(hold.lost.cause, answer, hold.key)
        if loss is not None and (error is None or ours):
            raise loss from None
        if answer is not None and loss is None:
            self._client._log.warning("release of %r failed, the hold ends with its ttl: %s", hold.key, answer)

    def _absorb(self, error: BaseException | None) -> bool:
        """Take back the cancellation of the body, and tell whether it is what ended it."""
        if not self._interrupted:
            return False
        assert self._task is not None
        cancelled = isinstance(error, asyncio.CancelledError)
        if sys.version_info >= (3, 11):
            # More than at the beginning: somebody else wants this task cancelled too.
            return self._task.uncancel() <= self._cancelling and cancelled
        return cancelled and error is not None and error.args[:1] == (_MARK,)

    def _lost(self) -> None:
        if asyncio.current_task() is self._task:
            # The body asks, and is told; it is cancelled where it waits next.
            asyncio.get_running_loop().call_soon(self._interrupt)
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._left and not self._interrupted and self._task is not None:
            self._interrupted = True
            self._task.cancel(_MARK)


class Watch:
    """What happens to keys: ``async with client.watch(...) as events`` and ``async for``.

    A reader that falls more than ``buffer`` events behind gets one ``gap`` in place of what
    was dropped; so does everybody after a reconnect. List again then.
    """

    def __init__(self, driver: Driver, fields: dict[str, Any], buffer: int) -> None:
        self._driver = driver
        self._fields = fields
        self._call: Call | None = None
        self._answer: _Answer | None = None
        self._events = EventBuffer(buffer)
        self._more = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._call is not None:
            raise RuntimeError("this watch was begun already; call watch() again")
        self._answer = _Answer()
        self._call = self._driver.ask("watch", self._fields, self)
        try:
            await self._answer.get()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; the end comes with :meth:`close`."""
        while not self._events.ready:
            self._more.clear()
            await self._more.wait()
        event = self._events.take()
        if event is None:
            raise StopAsyncIteration
        return event

    def close(self) -> None:
        """End the watch. A second call is harmless."""
        if self._call is not None:
            self._driver.unwatch(self._call)
        self._ended(Closed(op="watch"))

    def _done(self, value: Any, error: LatchkeyError | None) -> None:
        assert self._answer is not None
        self._answer._done(value, error)

    def _event(self, event: Event) -> None:
        self._events.put(event)
        self._more.set()

    def _ended(self, error: LatchkeyError) -> None:
        self._events.end(error)
        self._more.set()


class Client:
    """One session at a broker. Use it as ``async with Client() as client``.

    Args:
        address: ``host:port`` or ``unix:PATH``; by default ``LATCHKEY_SERVER`` of the
            environment, or ``127.0.0.1:6970``.
        name: shown to people.
        grace: how long the session, and with it its leases, outlives the last sign of
            life that the broker had from it.
        connect_timeout: for one attempt to connect.
        logger: gets what cannot be raised; the logger ``latchkey`` by default.
        on_troubled: told of every hold and what is wrong, as the option of ``hold`` of that name is.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        name: str = "",
        grace: float | timedelta = 3.0,
        connect_timeout: float | timedelta = 3.0,
        logger: logging.Logger | None = None,
        on_troubled: Callable[[Hold, LatchkeyError], object] | None = None,
    ) -> None:
        self._address = _request.parse_address(address)
        self._options = _request.session_options(name, grace, connect_timeout)
        self._log = logger or logging.getLogger("latchkey")
        self._on_troubled = on_troubled
        self._driver: Driver | None = None
        self._open_answer: _Answer | None = None
        self._end_answer: _Answer | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and open the session. ``async with`` does it."""
        if self._driver is not None:
            raise RuntimeError("this client was opened already")
        self._open_answer, self._end_answer = _Answer(), _Answer()
        self._driver = Driver(self._address, self._options, self, self._log)
        self._driver.start()
        try:
            await self._open_answer.get()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Say goodbye: holds that are not detached are released, and lost as ``closed``.

        Whoever waits gets :class:`Closed`. Afterwards no socket, task or timer is left.
        A second call is harmless.
        """
        if self._driver is None or self._end_answer is None:
            return
        self._driver.close()
        # Several may wait, and a cancelled one must not end the others' wait.
        await asyncio.wait({self._end_answer.future})
        await self._driver.wait_closed()

    @property
    def server(self) -> ServerInfo:
        """What the broker said of itself."""
        return ServerInfo() if self._driver is None else self._driver.core.server

    @property
    def connected(self) -> bool:
        """Whether there is a connection just now."""
        return self._driver is not None and self._driver.core.state is State.UP

    def hold(self, keys: str | Iterable[str], **options: Unpack[AcquireOptions]) -> _Scope:
        """Hold a lease for the length of an ``async with``.

        The body gets the :class:`Hold`. When the lease is lost, the task that runs the
        body is cancelled, and the statement raises the :class:`LeaseLost` that says how;
        a cancellation from elsewhere stays one. The lease is released at the end
        whatever happens. That the statement ends without an error means that it was
        held throughout; an error that the body raises itself is passed on.

        Takes the options of :class:`AcquireOptions`.
        """
        return _Scope(self, keys, options)

    async def acquire(self, keys: str | Iterable[str], **options: Unpack[AcquireOptions]) -> Hold:
        """Wait for a lease and return it. Whoever calls this calls :meth:`Hold.release`.

        Cancelling this takes the request back and leaves nothing behind.
        Takes the options of :class:`AcquireOptions`.

        Raises:
            Busy: it was a try (``wait=0``) and somebody holds it.
            WaitTimeout: ``wait`` passed.
            Deadlock: it would wait for itself.
            Refused: the request breaks a rule or a limit.
        """
        driver = self._running("acquire")
        spec, callbacks = _hold.prepare(keys, options, self._on_troubled)
        hold = Hold(driver, spec, callbacks)
        call = driver.acquire(spec, hold)
        try:
            await hold._answer.get()
        except asyncio.CancelledError:
            await self._take_back(driver, call)
            raise
        return hold

    async def _take_back(self, driver: Driver, call: Call) -> None:
        answer = _Answer()
        driver.cancel(call, answer)
        if driver.core.state is State.UP:
            await asyncio.wait({answer.future}, timeout=_hold.CANCEL_WAIT)

    def _give_back(self, hold: Hold) -> None:
        self._running("release").release(hold._lease, None)

    def watch(self, key: str | None = None, *, prefix: str | None = None, buffer: int = _hold.WATCH_BUFFER) -> Watch:
        """Watch a key, the keys with a prefix, or all. See :class:`Watch`.

        Args:
            key: this key only.
            prefix: keys that begin so.
            buffer: how many events are kept for a slow reader before they are dropped with a ``gap``.
        """
        _request.check_buffer(buffer)
        return Watch(self._running("watch"), _request.selector(key, prefix), buffer)

    async def list_keys(
        self,
        key: str | None = None,
        *,
        prefix: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        contended: bool = False,
        brief: bool = False,
    ) -> Listing:
        """Tell who holds and who waits.

        Args:
            key: this key only.
            prefix: keys that begin so.
            after: keys that sort after this one: the next page.
            limit: how many keys, 1 to 10000.
            contended: only keys with waiters, most first.
            brief: only the number of waiters.
        """
        fields = _request.listing(key, prefix, after, limit, contended, brief)
        listing: Listing = await self._ask("list", fields)
        return listing

    async def force(self, key: str, *, token: int | None = None, by: str = "", reason: str = "") -> ForceResult:
        """End every hold of a key, or the one with this token. For administrators.

        Raises:
            NotHeld: nobody held it.
        """
        forced: ForceResult = await self._ask("force", _request.force(key, token, by, reason))
        return forced

    async def stats(self) -> Stats:
        """Return the broker's counters, gauges and histograms."""
        stats: Stats = await self._ask("stats", {})
        return stats

    async def _ask(self, do: str, fields: dict[str, Any]) -> Any:
        answer = _Answer()
        self._running(do).ask(do, fields, answer)
        return await answer.get()

    def _running(self, op: str) -> Driver:
        if self._driver is None:
            raise Closed("the client is not open: use it in an async with, or await open() first", op=op)
        return self._driver

    def _opened(self) -> None:
        if self._open_answer is not None:
            self._open_answer._done(None, None)

    def _over(self, error: LatchkeyError | None) -> None:
        if self._open_answer is not None:
            self._open_answer._done(None, error or Closed("the client was closed", op="connect"))
        if self._end_answer is not None:
            self._end_answer._done(None, None)
