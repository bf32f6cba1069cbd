"""The asyncio front: on a real broker, and on a scripted one for what a real one does not do."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

import latchkey
from latchkey import aio, errors
from tests.rig import SESSION, Broker, Peer, Script, descriptors, soon, threads

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a test to its end, with a bound, and see that no task is left."""

    async def whole() -> T:
        result = await asyncio.wait_for(main, 60)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    return asyncio.run(whole())


def test_hold(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address, name="one") as client:
            async with client.hold(key, ttl=timedelta(seconds=10), label="l") as hold:
                hold.check()
                assert hold.is_safe and hold.key == key and hold.tokens == {key: hold.token}
                assert hold.safe_for is not None and 0 < hold.safe_for < 3
                (state,) = (await client.list_keys(key)).keys
                (holder,) = state.holders
                assert (holder.session, holder.label, holder.token) == ("one", "l", hold.token)
            assert not hold.is_safe and not hold.lost.is_set()
            with pytest.raises(errors.NotHeld):
                hold.check()
            await hold.release()
            assert not (await client.list_keys(key)).keys

    run(main())


def test_modes_and_tries(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            first = await client.acquire(key, mode="shared")
            second = await client.acquire(key, mode="shared")
            with pytest.raises(errors.Busy) as busy:
                await client.acquire(key, wait=0)
            assert len(busy.value.holders) == 2
            with pytest.raises(errors.WaitTimeout):
                await client.acquire(key, wait=0.05)
            await first.release()
            await second.release()
            counted = [await client.acquire(key, mode="counted", max=2) for _ in range(2)]
            with pytest.raises(errors.Busy):
                await client.acquire(key, mode="counted", max=2, wait=0)
            for hold in counted:
                await hold.release()
            with pytest.raises(errors.Refused):
                await client.acquire(key, ttl=0.05)

    run(main())


def test_many_keys(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client, client.hold([key + "b", key + "a"]) as hold:
            assert client.connected and client.server.server.startswith("latchkey ") and client.server.durability
            assert sorted(hold.tokens) == [key + "a", key + "b"]
            with pytest.raises(errors.Refused, match="2 keys"):
                _ = hold.token
            assert hold.token_of(key + "a") in hold.tokens.values()

    run(main())


def test_queue_is_told_and_served_in_order(shared: Broker, key: str) -> None:
    async def main() -> None:
        order: list[int] = []
        async with aio.Client(shared.address) as client:

            async def waiter(i: int, queued: asyncio.Event) -> None:
                async with client.hold(key, on_queued=lambda q: queued.set()):
                    order.append(i)

            async with client.hold(key):
                tasks = []
                for i in range(5):
                    queued = asyncio.Event()
                    tasks.append(asyncio.create_task(waiter(i, queued)))
                    await queued.wait()
            await asyncio.gather(*tasks)
        assert order == list(range(5))

    run(main())


def test_a_loss_cancels_the_body_and_is_raised(shared: Broker, key: str) -> None:
    async def main() -> None:
        cancelled = False
        lost: list[errors.LeaseLost] = []
        async with aio.Client(shared.address) as client:
            with pytest.raises(errors.Forced) as raised:
                async with client.hold(key, on_lost=lost.append) as hold:
                    force = asyncio.create_task(client.force(key, by="alice", reason="why"))
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        cancelled = True
                        assert not hold.is_safe
                        raise
            assert cancelled and "alice: why" in raised.value.reason
            assert hold.lost.is_set() and hold.lost.cause is raised.value and lost == [raised.value]
            forced = await force
            assert forced.fence > hold.token
            task = asyncio.current_task()
            assert task is not None
            if sys.version_info >= (3, 11):
                assert task.cancelling() == 0
            await asyncio.sleep(0)  # nothing of the cancellation is left

    run(main())


def test_a_loss_that_the_body_swallows_is_raised(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            with pytest.raises(errors.Forced):
                async with client.hold(key):
                    force = asyncio.create_task(client.force(key))
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        pass
            await force
            await asyncio.sleep(0)

    run(main())


def test_an_error_of_the_body_is_passed_on(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            with pytest.raises(ZeroDivisionError):
                async with client.hold(key):
                    raise ZeroDivisionError
            assert not (await client.list_keys(key)).keys
            with pytest.raises(ZeroDivisionError):
                async with client.hold(key):
                    force = asyncio.create_task(client.force(key))
                    try:
                        await asyncio.Event().wait()
                    finally:
                        raise ZeroDivisionError
            await force
            await asyncio.sleep(0)

    run(main())


def test_cancellation_from_elsewhere_stays_one(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            inside = asyncio.Event()

            async def body() -> None:
                async with client.hold(key):
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(body())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not (await client.list_keys(key)).keys

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 a task does not count who cancels it")
def test_cancellation_from_elsewhere_wins_over_a_loss(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            inside = asyncio.Event()
            task: asyncio.Task[None]

            async def body() -> None:
                # The loss comes first, and the other cancellation before the task has its turn.
                async with client.hold(key, on_lost=lambda e: task.cancel()):
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(body())
            await inside.wait()
            await client.force(key)
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.timeout came with 3.11")
def test_a_timeout_around_and_inside(shared: Broker, key: str) -> None:
    async def main() -> None:
        if sys.version_info < (3, 11):
            return
        async with aio.Client(shared.address) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), client.hold(key):
                    await asyncio.Event().wait()
            async with client.hold(key) as hold:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await asyncio.Event().wait()
                assert hold.is_safe
            async with client.hold(key):
                # In this task it would be a deadlock, and be told at once.
                with pytest.raises(errors.Deadlock):
                    await client.acquire(key)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await asyncio.create_task(client.acquire(key))
            assert not (await client.list_keys(key)).keys

    run(main())


def test_cancelling_an_acquire_leaves_nothing(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            for _ in range(30):
                async with client.hold(key):
                    queued = asyncio.Event()
                    task = asyncio.create_task(client.acquire(key, on_queued=lambda q, e=queued: e.set()))  # type: ignore[misc]
                    await queued.wait()
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    (state,) = (await client.list_keys(key)).keys
                    assert state.waiting == 0
            for i in range(60):  # the grant crosses the cancel somewhere here
                task = asyncio.create_task(client.acquire(key))
                for _ in range(i % 6):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    await (await task).release()
                except asyncio.CancelledError:
                    pass
            assert not (await client.list_keys(key)).keys

    run(main())


def test_a_grant_that_nobody_takes_any_more_is_given_back(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            task = asyncio.create_task(client.acquire(key))
            driver = client._driver
            assert driver is not None
            await soon(lambda: driver.core.holds)  # granted, and the task has not had its turn, or has
            task.cancel()
            try:
                await (await task).release()
            except asyncio.CancelledError:
                pass
            await soon(lambda: not driver.core.holds)
            assert not (await client.list_keys(key)).keys

    run(main())


def test_deadlock_is_found_through_scopes(shared: Broker, key: str) -> None:
    async def main() -> None:
        a, b = key + "a", key + "b"
        async with aio.Client(shared.address, name="one") as one, aio.Client(shared.address, name="two") as two:
            holding = asyncio.Event()

            async def crossed() -> None:
                async with two.hold(b):
                    holding.set()
                    async with two.hold(a):
                        pass

            async with one.hold(a):
                task = asyncio.create_task(crossed())
                await holding.wait()
                # Whichever of the two asks last is refused.
                try:
                    async with one.hold(b, wait=5):
                        pass
                except errors.Deadlock as e:
                    assert e.cycle
                    refused = True
                else:
                    refused = False
            try:
                await task
            except errors.Deadlock:
                refused = True
            assert refused

    run(main())


def test_watch(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address, name="w") as client:
            seen = []
            async with client.watch(prefix=key) as events:
                async with client.hold(key) as hold:
                    pass
                async for event in events:
                    seen.append((event.event, event.key, event.token, event.holder.session))
                    if len(seen) == 2:
                        break
            assert seen == [("granted", key, hold.token, "w"), ("released", key, hold.token, "w")]
            stats = await client.stats()
            assert stats["granted"] >= 1
            with pytest.raises(errors.NotHeld):
                await client.force(key)

    run(main())


def test_a_watch_that_is_not_read_has_one_gap(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client, client.watch(key) as events:
            for _ in range(520):
                await (await client.acquire(key, renew=False)).release()
            await soon(lambda: events._events._gap)
            kinds = [(await anext(events)).event for _ in range(1025)]
            assert kinds.count("gap") == 1 and kinds[-1] == "gap"
            await (await client.acquire(key)).release()
            assert (await anext(events)).event == "granted"
            events.close()
            assert [e async for e in events]  # what was told before the end
            assert [e async for e in events] == []

    run(main())


def test_a_watch_keeps_as_many_as_it_is_told(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client, client.watch(key, buffer=2) as events:
            for _ in range(2):
                await (await client.acquire(key, renew=False)).release()
            await soon(lambda: events._events._gap)
            assert [(await anext(events)).event for _ in range(3)] == ["granted", "released", "gap"]
            for buffer in (0, True, "2"):
                with pytest.raises(errors.Refused, match="buffer must be"):
                    client.watch(key, buffer=buffer)  # type: ignore[arg-type]

    run(main())


def test_a_client_is_told_of_the_trouble_of_each_hold(tmp_path: Path, key: str) -> None:
    told: list[tuple[aio.Hold, errors.LatchkeyError]] = []

    def fails(error: errors.LatchkeyError) -> None:
        raise RuntimeError(f"of its own: {error}")

    async def main() -> None:
        with Broker(tmp_path, durable=False) as broker:
            async with aio.Client(broker.address, on_troubled=lambda hold, error: told.append((hold, error))) as client:
                hold = await client.acquire(key, on_troubled=fails)
                broker.kill()
                await soon(lambda: bool(told))
                assert told[0][0] is hold and told[0][1].code == "unavailable" and hold.is_safe

    run(main())


def test_unix_socket(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(f"unix:{shared.unix}") as client, client.hold(key) as hold:
            assert hold.token

    run(main())


def test_the_address_of_the_environment(shared: Broker, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with aio.Client() as client, client.hold(key):
            pass

    monkeypatch.setenv("LATCHKEY_SERVER", shared.address)
    run(main())


@pytest.mark.parametrize("address", ["nowhere", "host:port", "unix:", ":99999", "1.2.3.4", "http://localhost:6970"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(errors.Refused, match="must be host:port or unix:PATH"):
        aio.Client(address)


def test_nobody_listens() -> None:
    async def main() -> None:
        with pytest.raises(errors.Unavailable, match="cannot connect"):
            await aio.Client("127.0.0.1:1").open()
        with pytest.raises(errors.Unavailable, match="cannot connect"):
            await aio.Client("unix:/nowhere/socket").open()

    run(main())


def test_close_is_harmless_and_answers_everybody(shared: Broker, key: str) -> None:
    async def main() -> None:
        client = aio.Client(shared.address)
        await client.close()
        with pytest.raises(errors.Closed):
            await client.acquire(key)
        await client.open()
        hold = await client.acquire(key)
        queued = asyncio.Event()
        waits = asyncio.create_task(client.acquire(key, on_queued=lambda q: queued.set()))
        await queued.wait()
        async with client.watch(key) as events:
            await asyncio.gather(client.close(), client.close())
            with pytest.raises(errors.Closed):
                async for _ in events:
                    pass
        await client.close()
        with pytest.raises(errors.Closed):
            await waits
        assert isinstance(hold.lost.cause, errors.HoldClosed)
        with pytest.raises(errors.LeaseLost):
            hold.check()
        with pytest.raises(errors.LeaseLost):
            await hold.release()
        with pytest.raises(errors.Closed):
            await client.acquire(key)
        async with aio.Client(shared.address) as other, other.hold(key, wait=0):
            pass

    run(main())


def test_close_inside_a_scope(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            with pytest.raises(errors.HoldClosed):
                async with client.hold(key):
                    closing = asyncio.create_task(client.close())
                    await asyncio.Event().wait()
            await closing

    run(main())


def test_nothing_is_left_after_close(shared: Broker, key: str) -> None:
    before, open_before = threads(), descriptors()

    async def main() -> None:
        for _ in range(20):
            async with aio.Client(shared.address) as client, client.watch(key):
                async with client.hold(key):
                    task = asyncio.create_task(client.acquire(key))
                    await asyncio.sleep(0)
                    task.cancel()
                hold = await client.acquire(key)
            assert isinstance(hold.lost.cause, errors.HoldClosed)
            with pytest.raises(asyncio.CancelledError):
                await task

    run(main())
    assert threads() == before and descriptors() == open_before


def test_a_failing_callback_does_no_harm(shared: Broker, key: str) -> None:
    def fails(_: object) -> None:
        raise ZeroDivisionError

    async def main() -> None:
        async with aio.Client(shared.address) as client:
            hold = await client.acquire(key)
            with pytest.raises(errors.WaitTimeout):
                await client.acquire(key, wait=0.05, on_queued=fails)
            await hold.release()
            with pytest.raises(errors.Forced):
                async with client.hold(key, on_lost=fails):
                    force = asyncio.create_task(client.force(key))
                    await asyncio.Event().wait()
            await force

    run(main())


# On a scripted broker.


def test_a_token_that_is_missing() -> None:
    def turn(peer: Peer) -> None:
        peer.greet()
        asked = peer.read()
        peer.write({k: v for k, v in peer.grant(asked).items() if k != "token"})
        peer.until_closed()

    async def main(address: str) -> None:
        async with aio.Client(address) as client:
            hold = await client.acquire("a")
            for read in (lambda: hold.token, lambda: hold.tokens, lambda: hold.token_of("a")):
                with pytest.raises(errors.FencingUnknown):
                    read()
            assert hold.is_safe

    with Script(turn) as broker:
        run(main(broker.address))


def test_resume_on_another_connection() -> None:
    got: dict[str, Any] = {}

    def first(peer: Peer) -> None:
        peer.greet()
        got["asked"] = peer.read()

    def second(peer: Peer) -> None:
        got["open"] = peer.greet(leases=[])
        got["again"] = peer.read()
        peer.raw(b'{"n":%d,"queued":true,"key":"\xc3' % got["again"]["n"])
        peer.raw(b'\xbc","position":0}\n')
        peer.write(peer.grant(got["again"]))
        got["rest"] = peer.until_closed()

    async def main(address: str) -> None:
        async with aio.Client(address) as client:
            queued: list[latchkey.Queued] = []
            async with client.hold("ü", on_queued=queued.append) as hold:
                assert hold.token == 17 and queued[0].key == "ü"

    with Script(first, second) as broker:
        run(main(broker.address))
    assert got["open"]["resume"] == SESSION
    assert got["again"]["id"] == got["asked"]["id"]
    assert [f["do"] for f in got["rest"]] == ["release", "close"]


def test_a_broker_that_falls_silent_is_left() -> None:
    import threading

    done = threading.Event()

    def silent(peer: Peer) -> None:
        asked = peer.read(), peer.read()
        peer.write({"latchkey": 1}, {"n": asked[1]["n"], "ok": True, "session": SESSION, "grace": 300, "elapsed": 0})
        assert done.wait(30)  # the connection stays, and nothing comes

    async def main(address: str) -> None:
        client = aio.Client(address, grace=0.3)
        await client.open()
        driver = client._driver
        assert driver is not None
        await soon(lambda: driver.core.trouble, "that the link is taken for dead")
        assert "answers no ping" in str(driver.core.trouble)
        done.set()
        await client.close()

    with Script(silent) as broker:
        run(main(broker.address))


def test_a_loss_is_told_in_time_without_a_broker() -> None:
    def turn(peer: Peer) -> None:
        peer.greet()
        peer.write(peer.grant(peer.read()))

    async def main(address: str) -> None:
        client = aio.Client(address, grace=0.4)
        await client.open()
        hold = await client.acquire("a")
        until = hold.safe_until
        assert until is not None
        await hold.lost.wait()
        assert latchkey.clock() >= until and isinstance(hold.lost.cause, errors.ServiceGone)
        with pytest.raises(errors.ServiceGone):
            await hold.release()
        await client.close()

    with Script(turn) as broker:
        run(main(broker.address))


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * (1 << 21), b"\n", b""])
def test_something_that_is_no_broker(data: bytes) -> None:
    def turn(peer: Peer) -> None:
        peer.read()
        try:
            peer.raw(data)
        except ConnectionError:
            pass

    async def main(address: str) -> None:
        with pytest.raises((errors.ProtocolError, errors.Unavailable)):
            await aio.Client(address).open()

    with Script(turn) as broker:
        run(main(broker.address))


def test_close_while_it_opens() -> None:
    def turn(peer: Peer) -> None:
        peer.until_closed()

    async def main(address: str) -> None:
        client = aio.Client(address)
        opening = asyncio.create_task(client.open())
        await soon(lambda: client._driver is not None and client._driver._transport)
        await client.close()
        with pytest.raises(errors.Closed):
            await opening

    with Script(turn) as broker:
        run(main(broker.address))
