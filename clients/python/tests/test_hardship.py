"""A real broker that is killed, forgets, or stands still."""

from __future__ import annotations

import asyncio

import pytest

import latchkey
from latchkey import aio, errors
from tests.rig import Broker, soon, wait_for
from tests.test_aio import run


def test_a_killed_broker_with_a_directory_is_resumed(durable: Broker) -> None:
    async def main() -> None:
        async with aio.Client(durable.address, grace=30) as client, aio.Client(durable.address, grace=30) as other:
            async with client.hold("a") as hold:
                first, second = asyncio.Event(), asyncio.Event()
                waits = asyncio.create_task(other.acquire("a", on_queued=lambda q: first.set()))
                await first.wait()

                async def has_an_age() -> bool:
                    (state,) = (await client.list_keys("a")).keys
                    return state.waiters[0].age >= 1

                # Places come back by age, which is as exact as the machine is quick.
                while not await has_an_age():
                    await asyncio.sleep(0.005)
                later = asyncio.create_task(client.acquire("a", on_queued=lambda q: second.set()))
                await second.wait()
                await asyncio.to_thread(durable.kill)
                await asyncio.to_thread(durable.start)
                token = hold.token
                hold.check()

                async def both_wait() -> bool:
                    (state,) = (await client.list_keys("a")).keys
                    assert state.holders[0].token == token
                    return state.waiting == 2

                while not await both_wait():
                    await asyncio.sleep(0.005)
            got = await waits
            assert got.token > token and not later.done()
            await got.release()
            assert (await later).token > got.token
            await (await later).release()

    run(main())


def test_a_broker_that_forgets_is_a_loss_and_who_waits_goes_on(forgetful: Broker) -> None:
    async def main() -> None:
        async with aio.Client(forgetful.address, grace=30) as client, aio.Client(forgetful.address, grace=30) as other:
            with pytest.raises(errors.SessionLost):
                async with client.hold("a"):
                    queued = asyncio.Event()
                    waits = asyncio.create_task(other.acquire("a", on_queued=lambda q: queued.set()))
                    await queued.wait()
                    await asyncio.to_thread(forgetful.kill)
                    await asyncio.to_thread(forgetful.start)
                    await asyncio.Event().wait()
            hold = await waits
            hold.check()
            await hold.release()

    run(main())


def test_a_broker_that_stands_still_past_the_grace(forgetful: Broker) -> None:
    async def main() -> None:
        troubles: list[errors.LatchkeyError] = []
        async with aio.Client(forgetful.address, grace=5) as client:
            hold = await client.acquire("a", ttl=4, on_troubled=troubles.append)
            forgetful.freeze()
            await hold.lost.wait()
            until = hold.safe_until
            assert until is not None and latchkey.clock() >= until
            assert isinstance(hold.lost.cause, errors.ServiceGone) and troubles
            forgetful.thaw()
            again = await client.acquire("a", wait=30)
            assert again.token > hold.token
            await again.release()

    run(main())


def test_a_broker_that_stands_still_for_a_moment(forgetful: Broker) -> None:
    async def main() -> None:
        async with aio.Client(forgetful.address, grace=20) as client, client.hold("a", ttl=20) as hold:
            forgetful.freeze()
            asking = asyncio.create_task(client.list_keys("a"))
            await asyncio.sleep(0)
            forgetful.thaw()
            (state,) = (await asking).keys
            assert state.holders[0].token == hold.token
            hold.check()

    run(main())


def test_blocking_over_a_restart(durable: Broker) -> None:
    with latchkey.Client(durable.address, grace=30) as client, client.hold("a") as hold:
        durable.kill()
        durable.start()
        (state,) = client.list_keys("a").keys
        assert state.holders[0].token == hold.token
        hold.check()


def test_close_while_the_broker_is_away(forgetful: Broker) -> None:
    with latchkey.Client(forgetful.address) as client:
        hold = client.acquire("a")
        forgetful.kill()
        assert client._driver is not None
        driver = client._driver
        wait_for(lambda: driver.core.trouble, "that the link is broken")
    assert isinstance(hold.lost.cause, errors.HoldClosed)


def test_requests_while_the_broker_is_away(forgetful: Broker) -> None:
    async def main() -> None:
        async with aio.Client(forgetful.address, grace=0.5) as client:
            await asyncio.to_thread(forgetful.kill)
            driver = client._driver
            assert driver is not None
            await soon(lambda: driver.core.trouble, "that the link is broken")
            with pytest.raises(errors.Unavailable):
                await client.acquire("a", wait=0)
            with pytest.raises(errors.WaitTimeout):
                await client.acquire("a", wait=0.05)
            task = asyncio.create_task(client.acquire("a"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            waits = asyncio.create_task(client.acquire("a"))
            await asyncio.to_thread(forgetful.start)
            await (await waits).release()

    run(main())
