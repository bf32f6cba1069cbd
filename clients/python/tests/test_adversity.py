"""What goes wrong around a client: brokers that lie, forks, callbacks that end threads, scopes cancelled twice."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from typing import Any

import pytest

import latchkey
from latchkey import _request, aio, errors
from latchkey._parts import Lease, State
from tests.rig import Broker, ByHand, Told, entry, soon
from tests.test_aio import run

# A broker that lies.


def test_another_session_than_the_one_resumed_vouches_for_nothing() -> None:
    by = ByHand()
    told, lease = by.held()
    by.cut()
    by.run_until(lambda: by.core.wants_connection(by.now))
    by.connect()
    _, asked = by.sent()
    other = {"n": asked["n"], "ok": True, "session": "OTHER", "grace": 3000, "elapsed": 0, "leases": [entry(lease)]}
    by.hear({"latchkey": 1, "features": []}, other)
    assert by.core.state is not State.UP
    by.sleep(3000)
    assert isinstance(told.last, errors.ServiceGone)


@pytest.mark.parametrize("change", [{"id": "other"}, {"key": "other"}, {"keys": ["a", "b"], "tokens": [1, 2]}])
def test_a_grant_of_something_else_is_none(change: dict[str, Any]) -> None:
    by = ByHand()
    told, _ = by.acquire("a")
    (asked,) = by.sent()
    frame = by.grant(asked, **change)
    if "keys" in change:
        del frame["key"], frame["token"]
    by.hear(frame)
    assert by.core.state is not State.UP and not told.news
    (again,) = by.again()
    by.hear(by.grant(again))
    assert isinstance(told.last, Lease)


def test_a_grant_without_a_ttl_is_none() -> None:
    by = ByHand()
    told, _ = by.acquire("a")
    (asked,) = by.sent()
    frame = by.grant(asked)
    del frame["ttl"]
    by.hear(frame)
    assert by.core.state is not State.UP and not told.news


def test_a_request_that_just_fits_a_frame_can_be_sent_again() -> None:
    by = ByHand()
    keys = [chr(1) * 256 + f"{i:02}" for i in range(42)]
    fitted = 0
    for size in range(200, 340):
        try:
            spec = _request.acquire([*keys, "x" * 400, "y" * size])
            by.core.acquire(spec, Told(), by.now)
        except errors.Refused:
            break
        fitted += 1
    assert 0 < fitted < 140
    by.cut()
    by.freeze(1000)
    assert len(by.again()) == fitted and by.core.state is State.UP


# The fronts.


def test_a_check_in_another_thread_lets_the_loop_tell_the_loss(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:
            assert client._driver is not None
            driver, told = client._driver, []
            with pytest.raises(errors.ServiceGone):
                async with client.hold(key, on_lost=lambda loss: told.append(threading.current_thread())) as hold:
                    real = driver.clock
                    driver.clock = lambda: real() + 2_950
                    assert not await asyncio.to_thread(lambda: hold.is_safe)
                    await asyncio.sleep(30)
            assert told == [threading.current_thread()]
            driver.clock = real

    run(main())


def test_a_check_after_the_end_of_the_loop_is_answered(shared: Broker, key: str) -> None:
    async def main() -> aio.Hold:
        client = aio.Client(shared.address)
        await client.open()
        assert client._driver is not None
        hold = await client.acquire(key)
        real = client._driver.clock
        client._driver.clock = lambda: real() + 2_950
        client._driver._drop()
        return hold

    hold = asyncio.run(main())
    assert not hold.is_safe
    with pytest.raises(errors.ServiceGone):
        hold.check()


def test_a_scope_that_is_cancelled_at_its_end_releases(shared: Broker, key: str) -> None:
    async def main() -> None:
        async with aio.Client(shared.address) as client:

            async def body() -> None:
                async with client.hold(key):
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()  # comes about where the scope waits for its release

            task = asyncio.create_task(body())
            with pytest.raises(asyncio.CancelledError):
                await task
            await soon(lambda: client._driver is not None and not client._driver.core.holds, "the release")
            assert not (await client.list_keys(key)).keys

    run(main())


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_callback_that_ends_its_thread_ends_nothing_else(
    shared: Broker, key: str, error: type[BaseException]
) -> None:
    def callback(_: object) -> None:
        raise error

    with latchkey.Client(shared.address) as client:
        hold = client.acquire(key, on_lost=callback)
        client.force(key)
        assert hold.lost.wait(30)
        with client.hold(key):
            assert client.list_keys(key).keys


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_client_in_a_forked_child_refuses(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client, client.hold(key) as hold:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            said = []
            for call in (lambda: client.acquire("other"), hold.check, hold.release, client.stats):
                try:
                    call()
                    said.append("nothing")
                except latchkey.LatchkeyError as e:
                    said.append(e.code)
            said.append(str(hold.is_safe))
            client.close()
            os.write(write, " ".join(said).encode())
            os._exit(0)
        os.close(write)
        answers: queue.Queue[bytes] = queue.Queue()
        reader = threading.Thread(target=lambda: answers.put(os.read(read, 1000)), daemon=True)
        reader.start()
        try:
            answer = answers.get(timeout=10).decode()
        except queue.Empty:
            os.kill(child, 9)
            raise
        finally:
            os.waitpid(child, 0)
            reader.join(10)
            os.close(read)
        assert answer == "closed closed closed closed False"
        hold.check()
        (state,) = client.list_keys(key).keys
        assert state.holders[0].token == hold.token
