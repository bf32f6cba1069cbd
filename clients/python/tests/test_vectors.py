"""Every case of the shared vectors that a client can play."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

import pytest

from latchkey import _frames, errors
from latchkey._core import Core
from latchkey._frames import Frame
from tests.rig import ByHand, line_of, vectors

HELLO = [c for c in vectors("hello") if c["from"] == "server"]
REPLIES = vectors("replies")
REQUESTS = [c for c in vectors("requests") if not c.get("loose")]
STREAMS = vectors("streams")
DEADLINES = vectors("deadlines")
CODES = vectors("codes")


def named(cases: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=lambda c: str(c.get("name", c.get("code"))))


def test_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    counts = {
        "hello": len(HELLO),
        "replies": len(REPLIES),
        "requests": len(REQUESTS),
        "streams": len(STREAMS),
        "deadlines": len(DEADLINES),
        "codes": len(CODES),
    }
    with capsys.disabled():
        print(f"\nvectors: {sum(counts.values())} cases: " + ", ".join(f"{v} {k}" for k, v in counts.items()))
    assert all(counts.values())


@named(HELLO)
def test_hello(case: dict[str, Any]) -> None:
    if "code" in case:
        with pytest.raises(errors.LatchkeyError) as raised:
            _frames.hello(_frames.decode(line_of(case)))
        assert raised.value.code == case["code"]
        assert case["reason"] in raised.value.reason
        return
    hello = _frames.hello(_frames.decode(line_of(case)))
    means = case["means"]
    assert (hello.version, list(hello.features)) == (means["Version"], means["Features"] or [])
    assert (hello.server, hello.durability, hello.fencing) == (means["Server"], means["Durability"], means["Fencing"])


def test_the_hello_of_this_client() -> None:
    case = next(c for c in vectors("hello") if c["name"] == "client")
    assert line_of(case) + b"\n" == _frames.HELLO


def in_ms(value: Any) -> Any:
    """Turn what users see back into the frame: seconds to ms, defaults left out."""
    result = {}
    for name, v in asdict(value).items():
        if isinstance(v, float):
            v = round(v * 1000)
        result[name] = v
    return result


def holder_means(frame: Frame) -> dict[str, Any]:
    """Return a holder or waiter of a vector with every field."""
    means: dict[str, Any] = {"session": "", "host": "", "pid": 0, "label": "", "mode": "", "max": 0, "broken": False}
    return means | {k: v for k, v in frame.items() if k != "forever"}


def holder_seen(value: Any) -> dict[str, Any]:
    seen = in_ms(value)
    return {k: v for k, v in seen.items() if v is not None and (v or k in ("pid", "max", "since", "broken", "age"))}


def same_people(got: Any, want: list[Frame]) -> None:
    assert len(got) == len(want)
    for value, frame in zip(got, want, strict=True):
        seen, means = holder_seen(value), holder_means(frame)
        assert {k: v for k, v in seen.items() if v} == {k: v for k, v in means.items() if v}


def grant_means(frame: Frame, elapsed: int | None = None) -> dict[str, Any]:
    grant = _frames.grant(frame, elapsed)
    means: dict[str, Any] = {"holds": grant.tokens, "waited": grant.waited, "id": grant.id}
    means["ttl"] = -1 if grant.ttl is None else grant.ttl
    if grant.remaining is not None:
        means["remaining"] = grant.remaining
    if elapsed is None:
        means["elapsed"] = grant.elapsed
    if grant.detached or elapsed is not None:
        means["detached"] = grant.detached
    return means


def kind_of(frame: Frame) -> str:
    if "lost" in frame:
        return "lost"
    if "event" in frame:
        return "event"
    if frame.get("queued") is True:
        return "queued"
    if "ok" in frame:
        return "ok" if frame["ok"] else "failed"
    return "part"


@named(REPLIES)
def test_reply(case: dict[str, Any]) -> None:
    frame, means = _frames.decode(line_of(case)), case["means"]
    kind = means["kind"]
    assert kind_of(frame) == kind
    assert _frames.number(frame) == means.get("n")
    if kind == "failed":
        error = _frames.failure(frame)
        assert error.code == means["code"]
        assert (error.op, error.key, error.reason) == (
            means.get("op", ""),
            means.get("key", ""),
            means.get("reason", ""),
        )
        assert [f"{w.who} waits for {w.key}" for w in error.cycle] == means.get("cycle", [])
        same_people(error.holders, means.get("holders", []))
    elif kind == "queued":
        queued = _frames.queued(frame)
        assert (queued.key, queued.position) == (means["key"], means["position"])
        same_people(queued.ahead, means.get("holders", []))
    elif kind == "event":
        event = _frames.event(frame)
        assert (event.event, event.key, event.code) == (means["event"], means.get("key", ""), means.get("code", ""))
        assert round(event.after * 1000) == means.get("after", 0)
        assert event.token == means.get("token")
        who = {k: means[k] for k in ("session", "host", "pid", "label", "mode", "max", "token") if k in means}
        same_people([event.holder], [who])
    elif kind == "lost":
        assert _frames.text(frame, "lost") == means["code"]
        assert _frames.text(frame, "id") == means.get("id", "")
        assert _frames.token(frame.get("token")) == means.get("token")
        assert _frames.text(frame, "by") == means.get("by", "")
    elif "session" in means or kind == "part":
        leases = [grant_means(entry, 0) for entry in _frames.objects(frame, "leases")]
        assert leases == means.get("leases", [])
        if kind == "ok":
            assert frame["session"] == means["session"]
            assert (_frames.integer(frame, "grace") or -1) == means["grace"]
    elif "keys" in means:
        listing = _frames.listing(frame)
        assert listing.more == means.get("more", False)
        assert [k.key for k in listing.keys] == [k["key"] for k in means["keys"]]
        for state, want in zip(listing.keys, means["keys"], strict=True):
            same_people(state.holders, want.get("holders", []))
            same_people(state.waiters, want.get("waiters", []))
            assert (state.waiting, round(state.delay * 1000)) == (want["waiting"], want.get("delay", 0))
    elif "ttl" in means:
        got = grant_means(frame)
        assert got == {k: v for k, v in means.items() if k not in ("kind", "n")}
    elif "fence" in means:
        forced = _frames.forced(frame)
        assert (forced.tokens, forced.fence) == (means["holds"], means["fence"])
    else:
        assert _frames.tokens(frame) == means.get("holds", {}) or frame.get("keys") == []


@named(REQUESTS)
def test_request(case: dict[str, Any]) -> None:
    means = dict(case["means"])
    n, do = means.pop("n"), means.pop("do")
    fields = {}
    for name, value in means.items():
        if name == "keys":
            fields.update({"key": value[0]} if len(value) == 1 else {"keys": value})
        elif name == "ttl":
            fields.update({"forever": True} if value < 0 else {"ttl": value})
        elif name == "grace":
            fields["grace"] = max(value, 0)
        elif not (name == "mode" and value == "exclusive"):
            fields[name] = value
    written = _frames.encode(n, do, fields)
    assert _frames.decode(written[:-1]) == _frames.decode(line_of(case))
    wanted = _frames.decode(line_of(case))
    in_order = {k: v for k, v in wanted.items() if k not in ("n", "do")}
    assert _frames.encode(n, do, in_order) == line_of(case) + b"\n"


@named(STREAMS)
def test_stream(case: dict[str, Any]) -> None:
    lines, got, error = _frames.Lines(case["limit"]), [], ""
    try:
        for _ in range(case.get("repeat", 1)):
            for chunk in case["chunks"]:
                for line in lines.feed(base64.b64decode(chunk)):
                    got.append(line)
    except errors.ProtocolError as e:
        error = "too long"
        assert "too long" in e.reason
    assert [base64.b64encode(line).decode() for line in got] == case["lines"]
    assert error == case["error"]


@named(STREAMS)
def test_stream_byte_by_byte(case: dict[str, Any]) -> None:
    whole = b"".join(base64.b64decode(c) for c in case["chunks"])
    lines, got = _frames.Lines(case["limit"]), []
    try:
        for byte in whole * min(case.get("repeat", 1), 70000 // len(whole)):
            got += list(lines.feed(bytes([byte])))
    except errors.ProtocolError:
        assert case["error"] == "too long"
    assert [base64.b64encode(line).decode() for line in got] == case["lines"]


@named(DEADLINES)
def test_deadline(case: dict[str, Any]) -> None:
    grant = _frames.grant(_frames.decode(line_of(case)))
    session = None
    if case.get("grace"):
        session = case["ping_sent"] + case["grace"] - _frames.margin(case["grace"])
    until = grant.deadline(case["sent"])
    assert (until if grant.detached else _frames.earlier(until, session)) == case["safe_until"]


@named(DEADLINES)
def test_deadline_of_a_core(case: dict[str, Any]) -> None:
    hand = ByHand(grace=case.get("grace", 0) / 1000, start=False)
    hand.now = case.get("ping_sent", 0)
    hand.core.start(hand.now)
    hand.connect()
    hand.open()
    hand.now = case["sent"]
    frame = _frames.decode(line_of(case))
    told, _ = hand.acquire("a", id="i")
    hand.hear({**frame, "n": hand.sent()[-1]["n"]})
    core: Core = hand.core
    assert core.safe_until(told.last) == case["safe_until"]


@named(CODES)
def test_code(case: dict[str, Any]) -> None:
    error = errors.by_code(case["code"], "why")
    assert (error.code, error.kind) == (case["code"], case["kind"])
    kinds = {
        "outcome": errors.OutcomeError,
        "mistake": errors.MistakeError,
        "loss": errors.LeaseLost,
        "retry": errors.RetryError,
        "unknown": errors.UnknownError,
        "defect": errors.DefectError,
    }
    assert isinstance(error, kinds[case["kind"]])
    assert type(error) is errors.BY_CODE[case["code"]]


def test_every_code_has_a_type_of_its_own() -> None:
    assert {c["code"] for c in CODES} == set(errors.BY_CODE)
    assert len(set(errors.BY_CODE.values())) == len(CODES)


def test_an_unknown_code_is_internal_and_keeps_its_name() -> None:
    error = errors.by_code("preempted")
    assert type(error) is errors.InternalError
    assert (error.code, error.kind) == ("preempted", "defect")
