"""The blocking client.

A daemon thread of each client reads, renews and watches the deadlines; callers leave
their requests to it and wait. So nothing that interrupts a caller can leave the
client half done.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
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

__all__ = ["Client", "Hold", "LostEvent", "Watch"]


class _Answer:
    """What a caller waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._value: Any = None
        self._error: LatchkeyError | None = None

    def _done(self, value: Any, error: LatchkeyError | None) -> None:
        if not self._event.is_set():
            self._value, self._error = value, error
            self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)

    @property
    def error(self) -> LatchkeyError | None:
        return self._error

    def get(self) -> Any:
        self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value


class LostEvent(threading.Event):
    """Is set when a lease is lost; ``cause`` then says how."""

    def __init__(self) -> None:
        super().__init__()
        self.cause: LeaseLost | None = None


class Hold(BaseHold):
    """A lease that is held, renewed and watched. Made by :meth:`Client.acquire`.

    Attributes:
        lost: an event that is set when the lease is lost, before anybody else can have
            it; ``lost.cause`` says how. A thread cannot be interrupted, so the body looks
            at it, waits for it, or calls :meth:`check`.
    """

    def __init__(self, client: Client, driver: Driver, spec: _request.Acquire, callbacks: Mapping[str, Any]) -> None:
        super().__init__(driver, spec, callbacks)
        self.lost = LostEvent()
        self._client = client
        self._answer = _Answer()
        self._call: Call | None = None

    def renew(self, ttl: Ttl | None = None) -> None:
        """Start the ttl anew, from now, and change it if one is given.

        A hold is renewed by itself, unless it was asked for with ``renew=False``.
        """
        life, change = _hold.ttl_change(ttl)
        self.check()
        answer = _Answer()
        self._client._run(answer, lambda: self._driver.renew(self._lease, life, change, answer))
        answer.get()

    def release(self) -> None:
        """Give the lease back and wait until the broker has confirmed it.

        Releasing again is harmless.

        Raises:
            LeaseLost: the lease had been lost before; what was left of it is given back.
            UnknownOutcome: it was not answered. The lease ends with its ttl or session;
                releasing again asks again.
        """
        self._refuse_fork("release")
        answer = self._release()
        answer.wait()
        if self.lost.cause is not None:
            raise self.lost.cause
        if answer.error is not None:
            raise answer.error

    def _release(self) -> _Answer:
        lease, answer = self._lease, _Answer()

        def run() -> None:
            self._driver.look()  # a loss that has come about is told, not hidden by the release
            self._driver.release(lease, answer)

        try:
            self._client._run(answer, run)
        except Closed:
            answer._done(None, None)  # the goodbye has released it
        return answer

    def detach(self) -> None:
        """Let the hold outlive this client, until its ttl."""
        self.check()
        answer = _Answer()
        self._client._run(answer, lambda: self._driver.detach(self._lease, answer))
        answer.get()

    def _notice(self) -> None:
        self._client._post(self._driver.look)

    def _done(self, lease: Lease | None, error: LatchkeyError | None) -> None:
        self._granted = lease
        self._answer._done(lease, error)

    def _lost(self, error: LeaseLost) -> None:
        self.lost.cause = error
        self.lost.set()
        callback = self._callbacks["on_lost"]
        if callback is not None:
            callback(error)


class _Scope:
    """``with client.hold(...)``."""

    def __init__(self, client: Client, keys: str | Iterable[str], options: AcquireOptions) -> None:
        self._client = client
        self._keys = keys
        self._options = options
        self._hold: Hold | None = None
        self._declared: contextvars.Token[_hold._Around] | None = None

    def __enter__(self) -> Hold:
        if self._hold is not None:
            raise RuntimeError("this scope was entered already; call hold() again")
        self._hold = self._client.acquire(self._keys, **self._options)
        self._declared = _hold.enter(self._hold)
        return self._hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._hold
        assert hold is not None and self._declared is not None
        _hold.leave(self._declared)
        answer = hold._release()
        if not answer.wait(_hold.RELEASE_WAIT):
            self._client._log.warning("release of %r not confirmed, the hold ends with its ttl", hold.key)
        loss = _hold.end_of_scope(hold.lost.cause, answer.error, hold.key)
        if loss is not None and error is None:
            raise loss
        if answer.error is not None and loss is None:
            self._client._log.warning("release of %r failed, the hold ends with its ttl: %s", hold.key, answer.error)


class Watch:
    """What happens to keys: ``with client.watch(...) as events`` and ``for event in events``.

    A reader that falls more than ``buffer`` events behind gets one ``gap`` in place of what
    was dropped; so does everybody after a reconnect. List again then.
    """

    def __init__(self, client: Client, fields: dict[str, Any], buffer: int) -> None:
        self._client = client
        self._fields = fields
        self._call: Call | None = None
        self._answer = _Answer()
        self._events = EventBuffer(buffer)
        self._more = threading.Condition()  # guards _events

    def __enter__(self) -> Self:
        driver = self._client._running("watch")

        def run() -> None:
            self._call = driver.ask("watch", self._fields, self)

        try:
            self._client._run(self._answer, run)
            self._answer.get()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Yield events until :meth:`close`."""
        while (event := self.next()) is not None:
            yield event

    def next(self, timeout: float | None = None) -> Event | None:
        """Return the next event, or None when the watch was closed or the time is up."""
        with self._more:
            self._more.wait_for(lambda: self._events.ready, timeout)
            return self._events.take()

    def close(self) -> None:
        """End the watch. A second call is harmless; another thread's iteration ends."""

        def run() -> None:
            if self._call is not None and self._client._driver is not None:
                self._client._driver.unwatch(self._call)

        self._client._post(run)
        self._ended(Closed(op="watch"))

    def _done(self, value: Any, error: LatchkeyError | None) -> None:
        self._answer._done(value, error)

    def _event(self, event: Event) -> None:
        with self._more:
            self._events.put(event)
            self._more.notify_all()

    def _ended(self, error: LatchkeyError) -> None:
        with self._more:
            self._events.end(error)
            self._more.notify_all()


class Client:
    """One session at a broker. Use it as ``with Client() as client``, from any thread.

    Args:
        address: ``host:port`` or ``unix:PATH``; by default ``LATCHKEY_SERVER`` of the
            environment, or ``127.0.0.1:6970``.
        name: shown to people.
        grace: how long the session, and with it its leases, outlives the last sign of
            life that the broker had from it.
        connect_timeout: for one attempt to connect.
        logger: gets what cannot be raised; the logger ``latchkey`` by default.
        on_troubled: told of every hold and what is wrong, as the option of ``hold`` of that name is.

    Callbacks run in the client's own thread and must not wait for it. A client does not
    survive a fork: open it in the child.
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
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._over_event: asyncio.Event | None = None
        self._open_answer = _Answer()
        self._pid = os.getpid()
        self._gate = threading.Lock()  # between posting to the loop and its end
        self._gone = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect and open the session. ``with`` does it."""
        if self._thread is not None:
            raise RuntimeError("this client was opened already")
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="latchkey client", daemon=True)
        self._thread.start()
        try:
            self._open_answer.get()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Say goodbye: holds that are not detached are released, and lost as ``closed``.

        Whoever waits gets :class:`Closed`. Afterwards the thread and the socket are gone.
        A second call is harmless.
        """
        if self._thread is None or self._forked:
            return
        self._not_from_callback()
        self._post(self._leave)
        self._thread.join()

    @property
    def server(self) -> ServerInfo:
        """What the broker said of itself."""
        return ServerInfo() if self._driver is None else self._driver.core.server

    @property
    def connected(self) -> bool:
        """Whether there is a connection just now."""
        return self._driver is not None and self._driver.core.state is State.UP

    def hold(self, keys: str | Iterable[str], **options: Unpack[AcquireOptions]) -> _Scope:
        """Hold a lease for the length of a ``with``.

        The body gets the :class:`Hold` and must stop when ``hold.lost`` is set: threads
        cannot be interrupted. The lease is released at the end whatever happens. If it
        was lost, and the body raised nothing, the statement raises the
        :class:`LeaseLost` that says how.

        Takes the options of :class:`AcquireOptions`.
        """
        return _Scope(self, keys, options)

    def acquire(self, keys: str | Iterable[str], **options: Unpack[AcquireOptions]) -> Hold:
        """Wait for a lease and return it. Whoever calls this calls :meth:`Hold.release`.

        An interrupt (^C) takes the request back and leaves nothing behind.
        Takes the options of :class:`AcquireOptions`.

        Raises:
            Busy: it was a try (``wait=0``) and somebody holds it.
            WaitTimeout: ``wait`` passed.
            Deadlock: it would wait for itself.
            Refused: the request breaks a rule or a limit.
        """
        driver = self._running("acquire")
        spec, callbacks = _hold.prepare(keys, options, self._on_troubled)
        hold = Hold(self, driver, spec, callbacks)

        def run() -> None:
            hold._call = driver.acquire(spec, hold)

        try:
            self._run(hold._answer, run)
            hold._answer.get()
        except LatchkeyError:
            raise
        except BaseException:
            self._take_back(driver, hold)
            raise
        return hold

    def _take_back(self, driver: Driver, hold: Hold) -> None:
        answer = _Answer()

        def run() -> None:
            if hold._call is None:
                answer._done(None, None)
            else:
                driver.cancel(hold._call, answer)
                if driver.core.state is not State.UP:
                    answer._done(None, None)  # it goes on by itself

        if self._post(run):
            answer.wait(_hold.CANCEL_WAIT)

    def watch(self, key: str | None = None, *, prefix: str | None = None, buffer: int = _hold.WATCH_BUFFER) -> Watch:
        """Watch a key, the keys with a prefix, or all. See :class:`Watch`.

        Args:
            key: this key only.
            prefix: keys that begin so.
            buffer: how many events are kept for a slow reader before they are dropped with a ``gap``.
        """
        _request.check_buffer(buffer)
        return Watch(self, _request.selector(key, prefix), buffer)

    def list_keys(
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
        listing: Listing = self._ask("list", fields)
        return listing

    def force(self, key: str, *, token: int | None = None, by: str = "", reason: str = "") -> ForceResult:
        """End every hold of a key, or the one with this token. For administrators.

        Raises:
            NotHeld: nobody held it.
        """
        forced: ForceResult = self._ask("force", _request.force(key, token, by, reason))
        return forced

    def stats(self) -> Stats:
        """Return the broker's counters, gauges and histograms."""
        stats: Stats = self._ask("stats", {})
        return stats

    def _ask(self, do: str, fields: dict[str, Any]) -> Any:
        driver, answer = self._running(do), _Answer()
        self._run(answer, lambda: driver.ask(do, fields, answer))
        return answer.get()

    def _running(self, op: str) -> Driver:
        if self._driver is None:
            raise Closed("the client is not open: use it in a with, or call open() first", op=op)
        return self._driver

    @property
    def _forked(self) -> bool:
        """Whether this is another process than the one that has the client's thread."""
        return self._pid != os.getpid()

    def _not_from_callback(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a callback must not wait for its own client: let another thread do it")

    def _run(self, answer: Any, what: Callable[[], object]) -> None:
        """Let the client's thread do something whose errors are the answer."""
        self._not_from_callback()

        def run() -> None:
            try:
                what()
            except LatchkeyError as e:
                answer._done(None, e)

        if not self._post(run):
            raise Closed("the client belongs to the parent process" if self._forked else "the client was closed")

    def _post(self, what: Callable[[], object]) -> bool:
        if self._forked:
            return False  # the gate may be locked for ever, and the loop is the parent's
        with self._gate:
            if self._gone or self._loop is None:
                return False
            self._loop.call_soon_threadsafe(what)
            return True

    # In the client's thread.

    def _serve(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._main())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            with self._gate:
                self._gone = True
            # What was posted until then is answered: the driver is over.
            loop.run_until_complete(asyncio.sleep(0))
            asyncio.set_event_loop(None)
            loop.close()

    async def _main(self) -> None:
        self._over_event = asyncio.Event()
        # What ends a thread must not end this one: others wait for it.
        self._driver = Driver(self._address, self._options, self, self._log, catch=BaseException)
        self._driver.start()
        await self._over_event.wait()
        await self._driver.wait_closed()

    def _leave(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def _opened(self) -> None:
        self._open_answer._done(None, None)

    def _over(self, error: LatchkeyError | None) -> None:
        self._open_answer._done(None, error or Closed("the client was closed", op="connect"))
        if self._over_event is not None:
            self._over_event.set()
