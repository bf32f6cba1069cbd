"""The orders of events that are hard to bring about, by hand on the core."""

from __future__ import annotations

import random
from typing import Any

import pytest

from latchkey import _base, _request
from latchkey._core import Core
from latchkey._parts import Lease, Phase, State
from latchkey.errors import (
    Busy,
    Cancelled,
    Closed,
    Deadlock,
    Expired,
    FencingUnknown,
    Forced,
    HoldClosed,
    HoldReleased,
    LatchkeyError,
    NotHeld,
    ProtocolError,
    Refused,
    ServiceGone,
    SessionLost,
    Unavailable,
    UnknownOutcome,
    WaitTimeout,
)
from latchkey.types import FOREVER, Event, ForceResult, Queued, Wait
from tests.rig import SESSION, ByHand, Told, entry

# Opening.


def test_open_and_hello_go_out_together() -> None:
    hand = ByHand()
    assert hand.owner.news == ["opened"]
    assert hand.core.hello is not None and hand.core.hello.fencing == "clock"


@pytest.mark.parametrize(
    "line", [b"+OK\n", b"{}\n", b"null\n", b'{"latchkey":2}\n', b"\xff\n", b"[" * 100_000 + b"\n", b"x" * 1_100_000]
)
def test_not_a_broker(line: bytes) -> None:
    hand = ByHand(start=False)
    hand.core.start(hand.now)
    hand.connect()
    hand.core.received(line, hand.now)
    hand.settle()
    kind, error = hand.owner.last
    assert kind == "over" and isinstance(error, ProtocolError)
    assert hand.core.drop


def test_a_broker_that_says_nothing() -> None:
    hand = ByHand(start=False)
    hand.core.start(hand.now)
    hand.connect()
    hand.sleep(5000)
    assert isinstance(hand.owner.last[1], Unavailable)


def test_a_broker_that_refuses() -> None:
    hand = ByHand(start=False)
    hand.core.start(hand.now)
    hand.connect()
    hand.hear({"ok": False, "code": "refused", "reason": "10000 connections (MaxConnections)"})
    assert isinstance(hand.owner.last[1], Refused)
    assert "MaxConnections" in hand.owner.last[1].reason


def test_frames_in_pieces() -> None:
    hand = ByHand()
    told, _ = hand.acquire("ü")
    (asked,) = hand.sent()
    import json

    data = json.dumps(hand.grant(asked), ensure_ascii=False).encode() + b"\n"
    for i in range(len(data)):
        hand.core.received(data[i : i + 1], hand.now)
        hand.settle()
        assert bool(told.news) == (i == len(data) - 1)


# Acquire, renew, release.


def test_a_lease_is_renewed_each_third_of_its_ttl() -> None:
    hand = ByHand(grace=3600)
    told, lease = hand.held(ttl=30)
    hand.sleep(9_999)
    assert hand.sent() == []
    hand.sleep(1)
    (asked,) = hand.sent()
    assert (asked["do"], asked["id"]) == ("renew", lease.id)
    hand.hear({"n": asked["n"], "ok": True, "id": lease.id, "ttl": 30000, "elapsed": 0, "remaining": 30000})
    assert lease.deadline == hand.now + 29_400
    hand.sleep(10_000)
    assert [f["do"] for f in hand.sent()] == ["renew"]
    assert told.news == [lease]


def test_a_broker_that_grants_no_time_is_not_asked_without_a_pause() -> None:
    hand = ByHand(grace=3600)
    _, lease = hand.held(ttl=3)
    hand.sleep(1000)
    renewals = 0
    for _ in range(100):
        for asked in hand.sent():
            renewals += 1
            hand.hear({"n": asked["n"], "ok": True, "id": lease.id, "ttl": 0, "elapsed": 0, "remaining": 3_000_000})
        hand.sleep(1)
    assert 2 <= renewals <= 11


def test_renewals_that_fail_are_told_and_tried_again_until_the_deadline() -> None:
    hand = ByHand(grace=3600)
    told, lease = hand.held(ttl=3)
    times = []
    for _ in range(100):
        hand.run_until(lambda: hand.core.has_output or lease.phase is Phase.LOST)
        if lease.phase is Phase.LOST:
            break
        (asked,) = hand.sent()
        times.append(hand.now - 1000)
        hand.hear({"n": asked["n"], "ok": False, "code": "unavailable", "op": "renew"})
    assert times[0] == 1000 and len(times) > 3
    troubles = [n for n in told.news if isinstance(n, tuple)]
    assert len(troubles) == len(times)
    assert isinstance(told.last, ServiceGone)
    assert hand.now == 1000 + 2940


def test_a_renewal_without_an_answer_is_told_before_the_loss() -> None:
    hand = ByHand(grace=3600)
    told, lease = hand.held(ttl=3)
    hand.run_until(lambda: len(told.news) > 1)
    assert told.last[0] == "troubled" and lease.phase is Phase.HELD
    assert hand.now == 1000 + 1000 + 500
    hand.run_until(lambda: lease.phase is Phase.LOST)
    assert isinstance(told.last, ServiceGone)
    assert hand.now == 1000 + 2940


def test_without_renewal_the_deadline_is_watched() -> None:
    hand = ByHand(grace=3600)
    told, _ = hand.held(ttl=3, renew=False)
    hand.run_until(lambda: len(told.news) > 1)
    assert isinstance(told.last, Expired) and hand.now == 3940
    assert hand.sent() == []


def test_a_renewal_of_the_caller_changes_the_ttl() -> None:
    hand = ByHand(grace=3600)
    _, lease = hand.held(ttl=3)
    told = Told()
    hand.core.renew(lease, 60_000, True, told, hand.now)
    (asked,) = hand.sent()
    assert asked["ttl"] == 60_000
    hand.hear({"n": asked["n"], "ok": True, "ttl": 60_000, "elapsed": 0, "remaining": 60_000})
    assert told.news == [None]
    assert lease.deadline == 1000 + 60_000 - 1000
    hand.core.renew(lease, None, True, told, hand.now)
    (asked,) = hand.sent()
    assert asked["forever"] is True
    hand.hear({"n": asked["n"], "ok": True, "forever": True, "elapsed": 0})
    assert lease.deadline is None


def test_a_renewal_that_finds_nothing_is_a_loss() -> None:
    hand = ByHand(grace=3600)
    told, _ = hand.held(ttl=3)
    hand.run_until(lambda: hand.core.has_output)
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "ok": False, "code": "not_held", "op": "renew"})
    assert isinstance(told.last, Expired)


def test_release_twice() -> None:
    hand = ByHand()
    _, lease = hand.held()
    first, second = Told(), Told()
    hand.core.release(lease, first, hand.now)
    hand.core.release(lease, second, hand.now)
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "ok": True})
    assert first.news == second.news == [None]
    assert not hand.core.holds


def test_release_of_what_is_not_held() -> None:
    hand = ByHand()
    _, lease = hand.held()
    told = Told()
    hand.core.release(lease, told, hand.now)
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "ok": False, "code": "not_held", "op": "release"})
    assert isinstance(told.last, NotHeld)


def test_queued_is_told_once() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "queued": True, "id": asked["id"], "key": "a", "position": 2})
    hand.cut()
    (again,) = hand.again()
    hand.hear({"n": again["n"], "queued": True, "id": asked["id"], "key": "a", "position": 1})
    assert told.news == [Queued("a", 2)]


@pytest.mark.parametrize("token", [None, 0, -1, 1 << 53, 17.0, "17", True, 1e3])
def test_a_token_that_is_none_is_unknown_and_the_lease_is_held(token: Any) -> None:
    hand = ByHand()
    _, lease = hand.held(token=token)
    assert lease.tokens == {"a": None}
    assert lease.phase is Phase.HELD


def test_the_largest_token() -> None:
    _, lease = ByHand().held(token=(1 << 53) - 1)
    assert lease.tokens == {"a": 9007199254740991}


def test_a_grant_that_comes_too_late_is_given_back() -> None:
    hand = ByHand(grace=3600)
    told, _ = hand.acquire(ttl=3)
    (asked,) = hand.sent()
    hand.freeze(2940)
    hand.hear(hand.grant(asked))
    assert isinstance(told.last, Expired)
    assert [f["do"] for f in hand.sent() if f["do"] != "ping"] == ["release"]


def test_counted_and_everything_else_in_the_frame() -> None:
    hand = ByHand()
    hand.acquire(
        "a",
        mode="counted",
        max=3,
        ttl=FOREVER,
        wait=2,
        label="l",
        max_hold=3,
        lock_delay=4,
        detach=True,
        declared=["x", "y", "x"],
        id="i",
    )
    (asked,) = hand.sent()
    assert asked == {
        "n": asked["n"],
        "do": "acquire",
        "id": "i",
        "key": "a",
        "mode": "counted",
        "max": 3,
        "forever": True,
        "wait": 2000,
        "label": "l",
        "max_hold": 3000,
        "lock_delay": 4000,
        "detach": True,
        "declared": ["x", "y"],
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"ttl": 0.099}, "under 0.1 s"),
        ({"ttl": 0}, "under 0.1 s"),
        ({"ttl": -1}, "under 0.1 s"),
        ({"ttl": float("nan")}, "not a duration"),
        ({"ttl": float("inf")}, "not a duration"),
        ({"ttl": 367 * 86400}, "ttl 31708800 s is out of range: from 0.1 s to 31622400 s"),
        ({"ttl": "30"}, "seconds or a timedelta"),
        ({"ttl": None}, "seconds or a timedelta"),
        ({"wait": -1}, "wait -1 s is out of range: from 0 s to 31622400 s"),
        ({"mode": "read"}, "must be exclusive"),
        ({"mode": "counted"}, "max must be"),
        ({"mode": "counted", "max": 1001}, "max must be"),
        ({"mode": "shared", "max": 2}, "counted holds only"),
        ({"prefer_readers": True}, "shared holds only"),
        ({"label": "x" * 257}, "at most 256"),
        ({"label": "\ud800"}, "UTF-8"),
        ({"id": ""}, "must not be empty"),
        ({"id": "x" * 129}, "at most 128"),
        ({"declared": [str(i) for i in range(65)]}, "at most 64"),
        ({"max_hold": 0}, "out of range"),
        ({"lock_delay": 3601}, "out of range"),
    ],
)
def test_what_is_refused_here(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as raised:
        _request.acquire("a", **options)
    assert reason in raised.value.reason


@pytest.mark.parametrize(
    "keys", ["", [], ["a", "a"], ["x" * 513], ["ü" * 257], [str(i) for i in range(65)], ["\ud800"]]
)
def test_keys_that_are_refused(keys: Any) -> None:
    with pytest.raises(Refused):
        _request.acquire(keys)


@pytest.mark.parametrize(
    ("keys", "got"), [(b"a", "bytes"), (bytearray(b"ab"), "bytearray"), (5, "int"), (["a", b"b"], "bytes")]
)
def test_a_key_that_is_no_str_is_called_what_it_is(keys: Any, got: str) -> None:
    with pytest.raises(Refused, match=f"got {got}$"):
        _request.acquire(keys)


def test_a_deadlock_with_oneself_says_so() -> None:
    alone = Deadlock(op="acquire", key="k", cycle=[Wait("cron on vm pid 7", "k")])
    assert str(alone) == "acquire 'k': deadlock: you already hold this key: 'k', as cron on vm pid 7"


def test_the_same_id_twice_is_refused() -> None:
    hand = ByHand()
    hand.acquire("a", id="i")
    with pytest.raises(Refused, match="same id"):
        hand.acquire("b", id="i")


# Cancel.


def test_cancel_of_a_request_that_waits() -> None:
    hand = ByHand()
    told, call = hand.acquire()
    (asked,) = hand.sent()
    done = Told()
    hand.core.cancel(call, done, hand.now)
    (cancel,) = hand.sent()
    assert (cancel["do"], cancel["id"]) == ("cancel", asked["id"])
    hand.hear({"n": asked["n"], "ok": False, "code": "cancelled"}, {"n": cancel["n"], "ok": True})
    assert done.news == [None] and told.news == []
    assert not hand.core._calls


def test_a_grant_that_crosses_the_cancel() -> None:
    hand = ByHand()
    told, call = hand.acquire()
    (asked,) = hand.sent()
    done = Told()
    hand.core.cancel(call, done, hand.now)
    (cancel,) = hand.sent()
    hand.hear(hand.grant(asked))
    assert told.news == [] and not hand.core.holds
    assert done.news == []
    hand.hear({"n": cancel["n"], "ok": True})
    assert done.news == [None]


def test_cancel_after_the_grant_came_releases() -> None:
    hand = ByHand()
    told, call = hand.acquire()
    (asked,) = hand.sent()
    hand.hear(hand.grant(asked))
    done = Told()
    hand.core.cancel(call, done, hand.now)
    (release,) = hand.sent()
    assert (release["do"], release["id"]) == ("release", asked["id"])
    hand.hear({"n": release["n"], "ok": True})
    assert done.news == [None]
    assert isinstance(told.last, Lease) and told.last.phase is Phase.RELEASED


def test_cancel_of_what_was_never_sent() -> None:
    hand = ByHand()
    hand.cut()
    told, call = hand.acquire()
    done = Told()
    hand.core.cancel(call, done, hand.now)
    hand.settle()
    assert isinstance(told.last, Cancelled) and done.news == [None]
    assert hand.again() == []


def test_cancel_is_sent_again_and_its_request_is_not() -> None:
    hand = ByHand()
    _, call = hand.acquire()
    (asked,) = hand.sent()
    done = Told()
    hand.core.cancel(call, done, hand.now)
    hand.sent()
    hand.cut()
    lease = {"id": asked["id"], "keys": ["a"], "tokens": [17], "ttl": 30000, "remaining": 1, "waited": 0}
    frames = hand.again(leases=[lease])
    assert [(f["do"], f["id"]) for f in frames] == [("cancel", asked["id"])]
    hand.hear({"n": frames[0]["n"], "ok": True})
    assert done.news == [None] and not hand.core._calls


# Losses.


@pytest.mark.parametrize(
    ("code", "kind"),
    [("expired", Expired), ("forced", Forced), ("not_held", HoldReleased), ("session_lost", SessionLost)],
)
def test_a_notice(code: str, kind: type[LatchkeyError]) -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.hear({"lost": code, "id": lease.id, "key": "a", "token": 17, "by": "alice: stuck"})
    assert type(told.last) is kind and told.last.code == code
    assert "alice: stuck" in told.last.reason
    assert hand.core.verdict(lease, hand.now) is told.last


def test_a_notice_of_an_earlier_hold() -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.hear({"lost": "expired", "id": lease.id, "key": "a", "token": 16})
    hand.hear({"lost": "expired", "id": "other", "key": "a", "token": 17})
    assert told.news == [lease]


def test_a_loss_of_a_code_that_is_not_known() -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.hear({"lost": "preempted", "id": lease.id, "key": "a", "token": 17})
    assert told.last.code == "preempted" and told.last.kind == "loss"


def test_the_loss_of_one_key_is_the_loss_of_all() -> None:
    hand = ByHand()
    told = Told()
    hand.core.acquire(_request.acquire(["a", "b"]), told, hand.now)
    (asked,) = hand.sent()
    frame = {"n": asked["n"], "ok": True, "id": asked["id"], "keys": ["a", "b"], "tokens": [1, 2]}
    hand.hear({**frame, "ttl": 30000, "elapsed": 0, "remaining": 30000, "waited": 0})
    lease = told.last
    assert lease.tokens == {"a": 1, "b": 2}
    hand.hear({"lost": "forced", "id": lease.id, "key": "b", "token": 2})
    assert isinstance(told.last, Forced) and told.last.key == "b"
    hand.core.release(lease, None, hand.now)
    assert [f["do"] for f in hand.sent()] == ["release"]


def test_a_frozen_clock_is_seen_before_any_timer() -> None:
    hand = ByHand()
    told, lease = hand.held()
    assert hand.core.verdict(lease, hand.now) is None
    hand.freeze(2939)
    assert hand.core.verdict(lease, hand.now) is None
    hand.freeze(1)
    assert isinstance(hand.core.verdict(lease, hand.now), ServiceGone)
    assert told.news == [lease]
    hand.core.tick(hand.now)
    hand.settle()
    assert isinstance(told.last, ServiceGone)


def test_an_answer_from_before_the_freeze_does_not_prolong() -> None:
    hand = ByHand()
    told, _ = hand.held()
    hand.run_until(lambda: hand.core.has_output)
    (ping,) = hand.sent()
    hand.freeze(10_000)
    hand.hear({"n": ping["n"], "ok": True})
    hand.core.tick(hand.now)
    hand.settle()
    assert isinstance(told.last, ServiceGone)


def test_losses_are_told_at_the_deadline_of_the_session() -> None:
    hand = ByHand()
    holds = [hand.held(k) for k in ("a", "b")]
    forever, _ = hand.held("c", ttl=FOREVER)
    hand.run_until(lambda: hand.core.has_output)
    hand.sent()  # the ping; nothing answers
    hand.run_until(lambda: isinstance(forever.last, ServiceGone))
    assert hand.now == 1000 + 2940
    assert all(isinstance(told.last, ServiceGone) for told, _ in holds)


# The link.


def test_pings() -> None:
    hand = ByHand()
    _, lease = hand.held()
    for _ in range(5):
        hand.run_until(lambda: hand.core.has_output)
        (ping,) = hand.sent()
        assert ping["do"] == "ping"
        hand.hear({"n": ping["n"], "ok": True})
        assert hand.core.safe_until(lease) == hand.now + 2940
    assert hand.now == 1000 + 5 * 1000


def test_a_dead_link_is_left_when_the_next_ping_is_due() -> None:
    hand = ByHand()
    hand.run_until(lambda: hand.core.drop)
    assert hand.now == 1000 + 2000
    assert hand.core.state is State.PAUSE and hand.core.wants_connection(hand.now)


def test_something_else_that_comes_keeps_a_link() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    (asked,) = hand.sent()
    hand.run_until(lambda: hand.core.has_output)
    hand.hear({"n": asked["n"], "queued": True, "key": "a", "position": 0})
    hand.sleep(1000)
    assert not hand.core.drop
    assert isinstance(told.last, Queued)


def test_pauses_grow_to_a_second() -> None:
    hand = ByHand()
    hand.sleep(200)
    hand.cut()
    waits = []
    for _ in range(12):
        before = hand.now
        hand.run_until(lambda: hand.core.wants_connection(hand.now))
        waits.append(hand.now - before)
        hand.core.connecting(hand.now)
        hand.cut("refused")
    assert waits == [0, 10, 20, 40, 80, 160, 320, 500, 500, 500, 500, 500]  # the random half is 0


def test_resume_takes_up_what_is_held() -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.sleep(900)
    hand.cut()
    assert hand.again(leases=[entry(lease, remaining=12_000)], elapsed=5) == []
    assert lease.deadline == hand.now + 5 + 12_000 - 600
    assert hand.core.session_until == hand.now + 2940
    assert told.outcomes == [lease]


def test_resume_with_leases_in_parts() -> None:
    hand = ByHand()
    told, lease = hand.held("a")
    other, second = hand.held("b", token=18)
    hand.cut()
    hand.connect()
    _, asked = hand.sent()
    hand.hear({"latchkey": 1}, {"n": asked["n"], "leases": [entry(lease)]})
    hand.hear({"n": asked["n"], "ok": True, "session": asked["resume"], "grace": 2900, "leases": [entry(second)]})
    assert told.outcomes == [lease] and other.outcomes == [second]


def test_resume_with_a_lease_that_nobody_knows() -> None:
    hand = ByHand()
    hand.cut()
    stray = {"id": "stray", "keys": ["x"], "tokens": [3], "ttl": 30000, "remaining": 1000, "waited": 0}
    assert [(f["do"], f["id"]) for f in hand.again(leases=[stray])] == [("release", "stray")]


def test_resume_with_the_grant_of_a_request_that_is_sent_again() -> None:
    hand = ByHand()
    told, _ = hand.acquire(wait=30)
    (asked,) = hand.sent()
    hand.sleep(500)
    hand.cut()
    listed = {"id": asked["id"], "keys": ["a"], "tokens": [17], "ttl": 30000, "remaining": 29000, "waited": 0}
    (again,) = hand.again(leases=[listed])
    assert (again["do"], again["id"], again["n"]) == ("acquire", asked["id"], asked["n"])
    assert (again["waited"], again["wait"]) == (500, 29_500)
    hand.hear(hand.grant(again, remaining=28_000))
    assert isinstance(told.last, Lease)
    assert told.last.deadline == hand.now + 28_000 - 600


def test_resume_without_a_lease_that_was_held() -> None:
    hand = ByHand()
    told, _ = hand.held()
    hand.cut()
    hand.again()
    assert isinstance(told.last, Forced)


def test_resume_with_less_keys_than_were_held() -> None:
    hand = ByHand()
    told, lease = hand.held()
    lease.tokens["b"] = 18
    hand.cut()
    hand.again(leases=[entry(lease, keys=["a"], tokens=[17])])
    assert isinstance(told.last, Forced)


def test_a_release_whose_answer_was_lost() -> None:
    hand = ByHand()
    _, lease = hand.held()
    told = Told()
    hand.core.release(lease, told, hand.now)
    hand.sent()
    hand.cut()
    (again,) = hand.again()
    hand.hear({"n": again["n"], "ok": False, "code": "not_held", "op": "release"})
    assert told.news == [None]


def lose_session(hand: ByHand) -> dict[str, Any]:
    """Connect again to a broker that does not know the session, up to the open of a new one."""
    hand.cut()
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    _, asked = hand.sent()
    hand.hear({"latchkey": 1}, {"n": asked["n"], "ok": False, "code": "session_lost", "op": "open"})
    (asked,) = hand.sent()
    assert "resume" not in asked and asked["do"] == "open"
    return asked


def test_session_lost_while_waiting_and_holding() -> None:
    hand = ByHand()
    held, lease = hand.held("a")
    kept, detached = hand.held("d", token=19)
    detached.detached = True
    waits, _ = hand.acquire("b", id="waits")
    hand.sent()
    releases, gone = hand.held("c", token=18)
    told = Told()
    hand.core.release(gone, told, hand.now)
    hand.sent()
    hand.sleep(300)
    asked = lose_session(hand)
    assert isinstance(held.last, SessionLost)
    assert hand.core.verdict(lease, hand.now) is held.last
    assert told.news == [None] and releases.news == [gone]
    assert kept.news == [detached]
    hand.hear({"n": asked["n"], "ok": True, "session": "ANOTHER", "grace": 3000, "elapsed": 0})
    (again,) = hand.sent()
    assert (again["do"], again["id"], again["waited"]) == ("acquire", "waits", 300)
    hand.hear(hand.grant(again))
    assert isinstance(waits.last, Lease)


def test_losses_come_before_the_new_sessions_deadline() -> None:
    hand = ByHand()
    told, lease = hand.held()
    asked = lose_session(hand)
    assert lease.phase is Phase.LOST
    hand.hear({"n": asked["n"], "ok": True, "session": "ANOTHER", "grace": 3000, "elapsed": 0})
    assert isinstance(hand.core.verdict(lease, hand.now), SessionLost)
    assert isinstance(told.last, SessionLost)


def test_a_notice_that_the_session_is_lost() -> None:
    hand = ByHand()
    told, _ = hand.held()
    waits, _ = hand.acquire("b")
    hand.sent()
    hand.hear({"lost": "session_lost"})
    assert isinstance(told.last, SessionLost)
    assert hand.core.drop and hand.core.wants_connection(hand.now)
    hand.connect()
    asked = hand.open()
    assert "resume" not in asked
    assert [f["do"] for f in hand.sent()] == ["acquire"]
    assert waits.news == []


def test_a_session_that_another_connection_took() -> None:
    hand = ByHand()
    told, _ = hand.held()
    waits, _ = hand.acquire("b")
    hand.hear({"ok": False, "code": "session_lost", "reason": "resumed by another connection"})
    assert isinstance(told.last, SessionLost) and isinstance(waits.last, SessionLost)
    later, _ = hand.acquire("c")
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    assert "resume" not in hand.open(session="another")
    (asked,) = hand.sent()
    assert asked["key"] == "c"
    hand.hear(hand.grant(asked))
    assert isinstance(later.last, Lease)


TAKEN = {"ok": False, "code": "session_lost", "reason": "another connection resumed the session"}


def unanswered_resume(hand: ByHand) -> None:
    """Connect and ask for the session, and get no answer."""
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    assert hand.sent()[1]["resume"] == SESSION
    hand.cut()


def test_a_resume_of_its_own_that_the_broker_comes_to_late_excuses_one_takeover() -> None:
    hand = ByHand()
    told, lease = hand.held()
    waits, _ = hand.acquire("b")
    hand.cut()
    unanswered_resume(hand)
    hand.again(leases=[entry(lease)])
    hand.hear(TAKEN)
    (again,) = hand.again(leases=[entry(lease)])
    assert again["key"] == "b" and told.outcomes == [lease] and waits.outcomes == []
    hand.hear(TAKEN)  # this one is somebody else's
    assert isinstance(told.last, SessionLost) and isinstance(waits.last, SessionLost)


@pytest.mark.parametrize("adrift", [0, 1])
def test_a_takeover_in_place_of_the_answer_to_a_resume(adrift: int) -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.cut()
    for _ in range(adrift):
        unanswered_resume(hand)
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    hand.sent()
    hand.hear({"latchkey": 1}, TAKEN)
    if adrift:
        hand.again(leases=[entry(lease)])
        assert told.outcomes == [lease]
    else:
        assert isinstance(told.last, SessionLost)
        hand.run_until(lambda: hand.core.wants_connection(hand.now))
        hand.connect()
        assert "resume" not in hand.open()


def test_a_resume_that_was_refused_excuses_nothing() -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.cut()
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    _, asked = hand.sent()
    hand.hear({"latchkey": 1}, {"n": asked["n"], "ok": False, "code": "unavailable"})
    hand.again(leases=[entry(lease)])
    hand.hear(TAKEN)
    assert isinstance(told.last, SessionLost)


def test_without_a_grace_the_session_ends_with_its_connection() -> None:
    hand = ByHand(grace=0)
    told, lease = hand.held()
    assert hand.core.safe_until(lease) == 1000 + 29_400
    hand.cut()
    assert isinstance(told.last, SessionLost)
    hand.connect()
    assert "resume" not in hand.open()


def test_without_a_grace_a_silent_link_is_still_found_dead() -> None:
    hand = ByHand(grace=0)
    told, _ = hand.acquire()
    hand.sent()
    hand.sleep(5000)
    assert [f["do"] for f in hand.sent()] == ["ping"]
    hand.sleep(5000)
    assert hand.core.drop and hand.core.state is not State.UP
    assert told.news == []  # it goes on waiting, on another connection


def test_a_broken_link_is_trouble_before_any_renewal_is_due() -> None:
    hand = ByHand()
    told, _ = hand.held()
    detached, other = hand.held("b", token=18)
    other.detached = True
    hand.cut()
    kind, error = told.last
    assert kind == "troubled" and isinstance(error, Unavailable) and "cut" in error.reason
    assert detached.last is other
    hand.sleep(3000)
    assert isinstance(told.last, ServiceGone)


def test_a_session_that_ends_again_and_again_is_not_opened_without_a_pause() -> None:
    hand = ByHand()
    pauses = []
    for _ in range(4):
        hand.hear({"lost": "session_lost"})
        before = hand.now
        hand.run_until(lambda: hand.core.wants_connection(hand.now))
        pauses.append(hand.now - before)
        hand.connect()
        hand.open()
    assert pauses == [0, 10, 20, 40]


def test_a_grant_of_another_id_is_a_breach() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    (asked,) = hand.sent()
    hand.hear(hand.grant(asked, id="another"))
    assert hand.core.drop and isinstance(hand.core.trouble, ProtocolError)
    assert [f["id"] for f in hand.again()] == [asked["id"]] and told.news == []


def test_a_grace_that_the_broker_does_not_tell_is_the_one_asked_for() -> None:
    hand = ByHand(start=False)
    hand.core.start(hand.now)
    hand.connect()
    _, asked = hand.sent()
    hand.hear({"latchkey": 1}, {"n": asked["n"], "ok": True, "session": "S", "elapsed": 0})
    assert hand.core.session_until == hand.now + 2940


def test_releases_at_the_same_time_share_the_answer() -> None:
    hand = ByHand()
    _, lease = hand.held()
    first, second = Told(), Told()
    hand.core.release(lease, first, hand.now)
    hand.core.release(lease, second, hand.now)
    (asked,) = hand.sent()
    hand.settle()
    assert first.news == second.news == []
    hand.hear({"n": asked["n"], "ok": True, "id": lease.id})
    assert first.news == second.news == [None]


def test_a_release_that_was_not_answered_can_be_asked_again() -> None:
    hand = ByHand()
    _, lease = hand.held()
    first, second = Told(), Told()
    hand.core.release(lease, first, hand.now)
    hand.sent()
    hand.cut()
    hand.sleep(3000)
    assert isinstance(first.last, UnknownOutcome)
    stray = hand.again(leases=[entry(lease)])
    assert [f["do"] for f in stray] == ["release"]
    hand.core.release(lease, second, hand.now)
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "ok": True, "id": lease.id})
    assert second.news == [None]


def test_what_is_left_of_several_keys_is_the_holders_to_give_back() -> None:
    hand = ByHand()
    told, lease = hand.held()
    lease.tokens["b"] = 18
    hand.cut()
    assert hand.again(leases=[entry(lease, keys=["a"], tokens=[17])]) == []
    assert isinstance(told.last, Forced)
    hand.core.release(lease, Told(), hand.now)
    assert [f["do"] for f in hand.sent()] == ["release"]


def test_until_when_a_lost_lease_was_safe_stays() -> None:
    hand = ByHand()
    told, lease = hand.held()
    until = hand.core.safe_until(lease)
    hand.hear({"lost": "forced", "id": lease.id})
    hand.sleep(1500)
    (ping,) = hand.sent()
    hand.hear({"n": ping["n"], "ok": True})
    assert isinstance(told.last, Forced) and hand.core.safe_until(lease) == until


def test_a_closing_broker_sends_back_what_waits() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    tries, _ = hand.acquire("b", wait=0)
    asked, other = hand.sent()
    hand.hear({"n": asked["n"], "ok": False, "code": "closed"}, {"n": other["n"], "ok": False, "code": "closed"})
    assert told.news == [] and isinstance(tries.last, Closed)
    hand.sleep(100)
    hand.cut()
    (again,) = hand.again()
    assert (again["id"], again["waited"]) == (asked["id"], 100)


def test_a_wait_that_ends_without_a_broker() -> None:
    hand = ByHand()
    sent, _ = hand.acquire("a", wait=5)
    hand.sent()
    hand.cut()
    unsent, _ = hand.acquire("b", wait=5)
    hand.run_until(lambda: bool(sent.news) and bool(unsent.news))
    assert hand.now == 6000
    assert isinstance(sent.last, UnknownOutcome) and isinstance(unsent.last, WaitTimeout)
    hand.run_until(lambda: hand.core.wants_connection(hand.now))
    hand.connect()
    hand.open()
    assert [f["do"] for f in hand.sent()] == ["cancel"]


def test_a_try_without_a_broker() -> None:
    hand = ByHand()
    hand.cut()
    told, _ = hand.acquire(wait=0)
    hand.run_until(lambda: bool(told.news))
    assert isinstance(told.last, Unavailable) and hand.now == 3940
    with pytest.raises(Unavailable):
        hand.acquire(wait=0)


def test_a_force_is_not_sent_twice() -> None:
    hand = ByHand()
    told = Told()
    hand.core.ask("force", {"key": "a"}, told, hand.now)
    hand.sent()
    hand.cut()
    assert isinstance(told.last, UnknownOutcome)
    assert hand.again() == []


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b'{"n":0,"ok":true}\n',
        b'{"n":1.5,"ok":true}\n',
        b'{"n":null,"ok":true}\n',
        b'{"n":77}\n',
        b'{"x":1}\n',
        b'{"n":77,"ok":1}\n',
        b'{"lost":5}\n',
        b'{"n":NaN,"ok":true}\n',
        b'{"k":"\\ud800"}\n',
        b"\xef\xbb\xbf{}\n",
        b"y" * 1_048_577,
    ],
)
def test_garbage_breaks_the_link_and_nothing_else(line: bytes) -> None:
    hand = ByHand()
    told, lease = hand.held()
    hand.core.received(line, hand.now)
    hand.settle()
    assert hand.core.drop and hand.core.state is State.PAUSE
    assert isinstance(hand.core.trouble, ProtocolError)
    hand.again(leases=[entry(lease)])
    assert told.outcomes == [lease]


def test_a_request_that_breaks_every_connection_is_given_up() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    (asked,) = hand.sent()
    for _ in range(_base.FOULS):
        hand.hear({"n": asked["n"], "ok": True, "id": asked["id"], "key": "a", "token": 1, "ttl": "long"})
        if told.news:
            break
        (asked,) = hand.again()
    assert isinstance(told.last, UnknownOutcome)
    assert [f["do"] for f in hand.again()] == ["cancel"]


def test_unknown_fields_and_answers_are_ignored() -> None:
    hand = ByHand()
    told, _ = hand.acquire()
    (asked,) = hand.sent()
    hand.hear({"n": 999, "ok": True}, {**hand.grant(asked), "region": {"x": [1.5, None]}, "note": None})
    assert isinstance(told.last, Lease)


# Watches.


def test_a_watch_has_a_gap_after_a_reconnect() -> None:
    hand = ByHand()
    told = Told()
    call = hand.core.ask("watch", {"prefix": "a"}, told, hand.now)
    (asked,) = hand.sent()
    hand.hear({"n": asked["n"], "ok": True}, {"n": asked["n"], "event": "released", "key": "a", "token": 3})
    hand.cut()
    (again,) = hand.again()
    assert again == asked
    hand.hear({"n": again["n"], "ok": True}, {"n": again["n"], "event": "gap"})
    assert [e.event for e in told.news if isinstance(e, Event)] == ["released", "gap", "gap"]
    hand.core.unwatch(call, hand.now)
    (over,) = hand.sent()
    assert (over["do"], over["watch"]) == ("unwatch", asked["n"])
    hand.hear({"n": asked["n"], "event": "released", "key": "a"})
    assert len(told.news) == 4


# The end.


def test_close_answers_everybody_and_says_goodbye() -> None:
    hand = ByHand()
    held, _ = hand.held()
    waits, _ = hand.acquire("b")
    detached, _ = hand.acquire("c", detach=True, id="d")
    hand.sent()
    hand.core.close(hand.now)
    hand.core.close(hand.now)
    hand.settle()
    assert isinstance(held.last, HoldClosed) and isinstance(held.last, Closed)
    assert isinstance(waits.last, Closed) and isinstance(detached.last, Closed)
    frames = hand.sent()
    assert [f["do"] for f in frames] == ["cancel", "close"]
    with pytest.raises(Closed):
        hand.acquire("x")
    hand.hear({"n": frames[1]["n"], "ok": True})
    assert hand.owner.last == ("over", None)
    assert hand.core.state is State.OVER and hand.core.wake_at() is None and hand.core.drop


def test_close_without_an_answer() -> None:
    hand = ByHand()
    hand.core.close(hand.now)
    hand.sleep(1000)
    assert hand.owner.last == ("over", None)


def test_close_without_a_connection() -> None:
    hand = ByHand()
    hand.cut()
    hand.core.close(hand.now)
    hand.sleep(999)
    assert hand.owner.last == "opened"
    hand.sleep(1)
    assert hand.owner.last == ("over", None)


def test_close_on_the_next_connection() -> None:
    hand = ByHand()
    _, lease = hand.held()
    hand.cut()
    hand.core.close(hand.now)
    frames = hand.again(leases=[entry(lease)])
    assert [f["do"] for f in frames] == ["close", "release"]
    hand.hear({"n": frames[0]["n"], "ok": True})
    assert hand.owner.last == ("over", None) and hand.core.wake_at() is None


def test_close_when_the_session_is_gone() -> None:
    hand = ByHand()
    hand.cut()
    hand.core.close(hand.now)
    hand.connect()
    _, asked = hand.sent()
    hand.hear({"latchkey": 1}, {"n": asked["n"], "ok": False, "code": "session_lost", "op": "open"})
    assert hand.owner.last == ("over", None) and hand.core.drop


def test_close_before_the_session_is_open() -> None:
    hand = ByHand(start=False)
    hand.core.start(hand.now)
    hand.connect()
    hand.core.close(hand.now)
    hand.settle()
    assert hand.owner.last == ("over", None)


# Limits.


def test_requests_are_bounded() -> None:
    hand = ByHand()
    for _ in range(_base.MAX_PENDING):
        hand.acquire()
    with pytest.raises(Refused, match="no more are allowed"):
        hand.acquire()


def test_what_is_unsent_is_bounded() -> None:
    hand = ByHand()
    hand.core.backlog = _base.MAX_UNSENT + 1
    with pytest.raises(Unavailable, match="does not read"):
        hand.acquire()


def test_a_frame_that_is_too_long_is_refused_here() -> None:
    hand = ByHand()
    with pytest.raises(Refused, match="MaxFrame"):
        hand.core.acquire(_request.acquire(["\x01" * 510 + str(i) for i in range(10, 64)]), Told(), hand.now)


def test_timers_do_not_pile_up() -> None:
    hand = ByHand()
    for _ in range(2000):
        _, lease = hand.held()
        hand.core.release(lease, None, hand.now)
        hand.sent()
    assert len(hand.core._heap) <= 65


# Anything may come, in any order.


@pytest.mark.parametrize("seed", range(300))
def test_nothing_breaks_whatever_the_broker_says(seed: int) -> None:
    rng = random.Random(seed)
    hand = ByHand(grace=rng.choice([0, 0.3, 3]))
    core: Core = hand.core
    frames: list[dict[str, Any]] = []
    leases: list[Lease] = []
    sinks: list[Told] = []

    def ask() -> None:
        what = rng.randrange(8)
        told = Told()
        sinks.append(told)
        live = [h for t in sinks for h in t.news if isinstance(h, Lease)]
        leases[:] = live
        try:
            if what < 3 or not live:
                options: dict[str, Any] = {
                    "wait": rng.choice([None, 0, 1]),
                    "detach": rng.random() < 0.2,
                    "ttl": 1,
                }
                call = core.acquire(_request.acquire(rng.choice("abc"), **options), told, hand.now)
                if rng.random() < 0.2:
                    sinks.append(Told())
                    core.cancel(call, sinks[-1], hand.now)
                    if call.abandoned:
                        sinks.remove(told)  # whoever takes a request back waits for that instead
            elif what == 3:
                core.release(rng.choice(live), told, hand.now)
            elif what == 4:
                core.renew(rng.choice(live), 2000, True, told, hand.now)
            elif what == 5:
                core.detach(rng.choice(live), told, hand.now)
            else:
                core.ask(rng.choice(["list", "watch", "force", "stats"]), {}, told, hand.now)
        except LatchkeyError as e:
            told.news.append(e)

    def answer(frame: dict[str, Any]) -> dict[str, Any]:
        n = frame.get("n", 1)
        code = rng.choice(["busy", "closed", "not_held", "session_lost", "unavailable", "over", "new"])
        choices: list[dict[str, Any]] = [
            {"n": n, "ok": False, "code": code},
            {"n": n, "ok": True, "session": "S", "grace": 3000, "elapsed": 0, "leases": []},
            {"n": n, "queued": True, "key": "a", "position": 0},
            {"n": n, "event": "granted", "key": "a"},
            {"lost": rng.choice(["expired", "session_lost"]), "id": frame.get("id", "x")},
            {"n": n, "ok": True, "key": "a", "token": 5, "ttl": 1000, "elapsed": 0, "remaining": 1000},
        ]
        return rng.choice(choices) if rng.random() < 0.5 else choices[5]

    for _ in range(120):
        step = rng.randrange(10)
        if core.state is State.OVER:
            break
        if step < 3:
            ask()
        elif step < 7 and frames:
            hand.hear(answer(frames.pop(rng.randrange(len(frames)))))
        elif step == 7:
            hand.freeze(rng.choice([1, 100, 1000]))
            core.tick(hand.now)
        elif step == 8 and rng.random() < 0.3:
            hand.cut()
        if core.wants_connection(hand.now):
            hand.connect()
            frames = hand.sent()[1:]
            hand.hear({"latchkey": 1})
        frames += hand.sent()
        hand.settle()
        for lease in leases:
            if lease.phase is Phase.HELD:
                assert core.holds.get(lease.id) is lease
            else:
                assert core.holds.get(lease.id) is not lease
    core.close(hand.now)
    hand.settle()
    hand.sleep(2000)
    hand.settle()
    assert core.state is State.OVER and core.wake_at() is None
    assert not core._calls and not core.holds
    for told in sinks:
        ends = [n for n in told.news if not isinstance(n, Queued | Event | tuple)]
        assert ends, "a request was never answered"


def test_busy_names_the_holders() -> None:
    hand = ByHand()
    told, _ = hand.acquire(wait=0)
    (asked,) = hand.sent()
    assert asked["try"] is True and "wait" not in asked
    who = {"session": "worker", "host": "h", "pid": 4, "label": "l", "mode": "exclusive", "token": 17, "since": 1500}
    hand.hear({"n": asked["n"], "ok": False, "code": "busy", "op": "acquire", "key": "a", "holders": [who]})
    assert isinstance(told.last, Busy)
    assert told.last.holders[0].token == 17 and told.last.holders[0].since == 1.5
    assert "worker (l) on h pid 4" in str(told.last)


def test_a_fence_that_is_not_told_is_no_number() -> None:
    result = ForceResult({"a": 17}, None)
    with pytest.raises(FencingUnknown):
        _ = result.fence
    assert ForceResult({"a": 17}, 19).fence == 19


def test_what_is_left_of_a_grant_that_was_not_heard_is_given_back() -> None:
    hand = ByHand()
    told = Told()
    hand.core.acquire(_request.acquire(["a", "b"]), told, hand.now)
    (asked,) = hand.sent()
    hand.cut()
    (again,) = hand.again()
    assert again["id"] == asked["id"]
    hand.hear(hand.grant({**again, "key": "b"}))
    (release,) = hand.sent()
    assert (release["do"], release["id"]) == ("release", asked["id"])
    assert isinstance(told.last, Forced) and not hand.core.holds
