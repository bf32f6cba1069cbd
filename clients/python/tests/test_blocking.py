"""The blocking front, on a real broker."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import latchkey
from latchkey import errors
from tests.rig import SESSION, Broker, Peer, Script, descriptors, threads, wait_for


def test_hold(shared: Broker, key: str) -> None:
    client = latchkey.Client(shared.address, name="one")
    assert not client.connected and client.server == latchkey.ServerInfo()
    with client:
        assert client.connected and client.server.server.startswith("latchkey ") and client.server.fencing
        with client.hold(key, ttl=10, label="l") as hold:
            hold.check()
            assert hold.is_safe and hold.tokens == {key: hold.token}
            (state,) = client.list_keys(key).keys
            assert state.holders[0].session == "one" and state.holders[0].token == hold.token
            with pytest.raises(errors.Busy):
                client.acquire(key, wait=0)
        assert not hold.is_safe and not hold.lost.is_set()
        with pytest.raises(errors.NotHeld):
            hold.check()
        hold.release()
        assert not client.list_keys(key).keys
        assert client.stats()["granted"] >= 1


def test_a_waiter_in_another_thread(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client:
        order: queue.Queue[str] = queue.Queue()
        queued = threading.Event()

        def waiter() -> None:
            with client.hold(key, on_queued=lambda q: queued.set()):
                order.put("second")

        with client.hold(key):
            thread = threading.Thread(target=waiter)
            thread.start()
            assert queued.wait(30)
            order.put("first")
        thread.join(30)
        assert [order.get(), order.get()] == ["first", "second"]


def test_a_loss(shared: Broker, key: str) -> None:
    lost: list[errors.LeaseLost] = []
    with latchkey.Client(shared.address) as client:
        with pytest.raises(errors.Forced) as raised, client.hold(key, on_lost=lost.append) as hold:
            client.force(key, by="alice")
            assert hold.lost.wait(30)
            assert hold.lost.cause is not None and not hold.is_safe
            with pytest.raises(errors.Forced):
                hold.check()
        assert hold.lost.cause is raised.value and lost == [raised.value]
        with pytest.raises(ZeroDivisionError), client.hold(key) as hold:
            client.force(key)
            raise ZeroDivisionError


def test_renew_and_detach(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client:
        hold = client.acquire(key, ttl=20, renew=False)
        hold.detach()
        hold.renew(60)
        assert hold.safe_for is not None and hold.safe_for > 50
    assert isinstance(hold.lost.cause, errors.HoldClosed)
    with latchkey.Client(shared.address) as client:
        (state,) = client.list_keys(key).keys
        assert state.holders[0].detached
        client.force(key)


def test_expiry_without_renewal(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client:
        hold = client.acquire(key, ttl=0.2, renew=False)
        until = hold.safe_until
        assert until is not None and hold.lost.wait(30)
        assert latchkey.clock() >= until
        assert isinstance(hold.lost.cause, errors.Expired)
        with pytest.raises(errors.Expired):
            hold.release()


def test_a_frozen_clock_is_seen_by_check(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client:
        hold = client.acquire(key)
        assert client._driver is not None
        real = client._driver.clock
        client._driver.clock = lambda: real() + 2_950
        with pytest.raises(errors.ServiceGone):
            hold.check()
        assert hold.lost.wait(30) and isinstance(hold.lost.cause, errors.ServiceGone)


def test_watch(shared: Broker, key: str) -> None:
    with latchkey.Client(shared.address) as client, client.watch(key) as events:
        with client.hold(key):
            pass
        kinds = [e.event for _, e in zip(range(2), events, strict=False)]
        assert kinds == ["granted", "released"]
        assert events.next(timeout=0.01) is None
        threading.Timer(0.05, events.close).start()
        assert list(events) == []


def test_close_answers_everybody(shared: Broker, key: str) -> None:
    client = latchkey.Client(shared.address)
    client.close()
    client.open()
    errs: queue.Queue[BaseException] = queue.Queue()
    queued = threading.Event()

    def waiter() -> None:
        try:
            client.acquire(key, on_queued=lambda q: queued.set())
        except errors.LatchkeyError as e:
            errs.put(e)

    hold = client.acquire(key)
    thread = threading.Thread(target=waiter)
    thread.start()
    assert queued.wait(30)
    client.close()
    client.close()
    thread.join(30)
    assert isinstance(errs.get(timeout=30), errors.Closed)
    assert isinstance(hold.lost.cause, errors.HoldClosed)
    with pytest.raises(errors.Closed):
        client.acquire(key)


def test_nothing_is_left_after_close(shared: Broker, key: str) -> None:
    before, open_before = threads(), descriptors()
    for _ in range(10):
        with latchkey.Client(shared.address) as client, client.watch(key), client.hold(key):
            pass
    with pytest.raises(errors.Unavailable):
        latchkey.Client("127.0.0.1:1").open()
    assert threads() == before and descriptors() == open_before


def test_a_callback_may_not_wait_for_its_client(shared: Broker, key: str) -> None:
    seen: queue.Queue[BaseException] = queue.Queue()
    with latchkey.Client(shared.address) as client:

        def waits(_: object) -> None:
            try:
                client.stats()
            except RuntimeError as e:
                seen.put(e)

        client.acquire(key)
        with pytest.raises(errors.WaitTimeout):
            client.acquire(key, wait=0.05, on_queued=waits)
        assert "callback" in str(seen.get(timeout=30))


INTERRUPTED = """
import sys, latchkey
client = latchkey.Client(sys.argv[1], name="interrupted")
client.open()
try:
    client.acquire(sys.argv[2], on_queued=lambda q: print("queued", flush=True))
except KeyboardInterrupt:
    listing = client.list_keys(sys.argv[2])
    print("waiting", listing.keys[0].waiting, flush=True)
    client.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for another process")
def test_an_interrupt_leaves_nothing_behind(shared: Broker, key: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(latchkey.__file__).parents[1])}
    with latchkey.Client(shared.address) as client, client.hold(key):
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, shared.address, key],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == "queued\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "waiting 0\n"
        assert process.returncode == 0


def test_threads_contend(shared: Broker, key: str) -> None:
    inside, most, tokens = 0, 0, []
    guard = threading.Lock()

    with latchkey.Client(shared.address) as client:

        def work() -> None:
            nonlocal inside, most
            for _ in range(10):
                with client.hold(key) as hold:
                    with guard:
                        inside += 1
                        most = max(most, inside)
                        tokens.append(hold.token)
                    with guard:
                        inside -= 1

        workers = [threading.Thread(target=work) for _ in range(8)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(60)
    assert most == 1 and len(tokens) == 80 and tokens == sorted(set(tokens))


def test_session_lost_while_waiting() -> None:
    def first(peer: Peer) -> None:
        peer.greet()
        peer.write(peer.grant(peer.read()))
        peer.read()

    def second(peer: Peer) -> None:
        peer.read()
        peer.write({"latchkey": 1}, {"n": peer.read()["n"], "ok": False, "code": "session_lost", "op": "open"})
        asked = peer.read()
        assert "resume" not in asked
        peer.write({"n": asked["n"], "ok": True, "session": SESSION[::-1], "grace": 3000, "elapsed": 0})
        asked = peer.read()
        assert asked["key"] == "b"
        peer.write(peer.grant(asked))
        peer.until_closed()

    with Script(first, second) as broker, latchkey.Client(broker.address) as client:
        held = client.acquire("a")
        waits = client.acquire("b")
        assert isinstance(held.lost.cause, errors.SessionLost)
        assert waits.token == 17


def test_many_requests_at_once(shared: Broker, key: str) -> None:
    began = time.monotonic()
    with latchkey.Client(shared.address) as client:
        holds = [client.acquire(f"{key}/{i}") for i in range(300)]
        for hold in holds:
            hold.release()
        wait_for(lambda: not client.list_keys(prefix=key).keys, "that all are free")
    assert time.monotonic() - began < 60
