// The client against a scripted server: orders that a real broker rarely takes.
import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { afterEach, beforeEach, test } from "node:test";
import { inspect } from "node:util";
import * as latchkey from "../src/index.js";
import { codeOf, type Hold } from "../src/index.js";
import { Watch } from "../src/watch.js";
import { later, type Peer, Scripted, shifted, until, within } from "./scripted.js";

let server: Scripted;
beforeEach(async () => {
  server = await Scripted.start();
});
afterEach(() => server.close());

/** The code that a promise rejects with. */
async function fails(promise: Promise<unknown>, kind?: new (...args: never[]) => Error): Promise<string> {
  const error = await within(
    "a call fails",
    promise.then(
      () => assert.fail("it succeeded"),
      (e: unknown) => e,
    ),
  );
  if (kind !== undefined) assert.ok(error instanceof kind, String(error));
  return codeOf(error) ?? String(error);
}

function aborted(hold: Hold): Promise<unknown> {
  const { signal } = hold;
  const lost = later<unknown>();
  if (signal.aborted) lost.resolve(signal.reason);
  else signal.addEventListener("abort", () => lost.resolve(signal.reason), { once: true });
  return within("the hold is lost", lost.promise);
}

/** Has a client hold a key. */
async function held(peer: Peer, acquiring: Promise<Hold>, ...token: unknown[]): Promise<Hold> {
  peer.grant(await peer.next("acquire"), 17, token.length === 0 ? {} : { token: token[0] });
  return within("the grant", acquiring);
}

test("a grant has its token, its deadline, and is released once", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a", { ttl: 1000, label: "nightly" }));
  assert.equal(hold.token, 17);
  assert.deepEqual([...hold.tokens], [["a", 17]]);
  assert.ok(hold.isSafe);
  assert.ok(hold.safeFor() > 0 && hold.safeFor() <= 980);
  const released = Promise.all([hold.release(), hold.release()]);
  const frame = await peer.next("release");
  assert.deepEqual(frame, { n: frame.n, do: "release", id: hold.id });
  peer.send({ n: frame.n, ok: true, id: hold.id, key: "a", token: 17 });
  await within("both releases", released);
  await hold.release();
  assert.equal(peer.unread, 0);
  assert.ok(!hold.isSafe);
  assert.ok(!hold.signal.aborted, "a release is no loss");
});

test("a token that is absent, null, too large or no integer is unknown, never a number", async () => {
  const { client, peer } = await server.client();
  for (const [i, bad] of [undefined, null, 2 ** 53, 1.5, "17", 0, -1].entries()) {
    const hold = await held(peer, client.acquire(`k${i}`), bad);
    assert.throws(() => hold.token, latchkey.FencingUnknown);
    assert.throws(() => hold.tokens, latchkey.FencingUnknown);
    assert.ok(hold.isSafe, "it is held all the same");
  }
  const acquiring = client.acquire("rounded");
  const frame = await peer.next("acquire");
  peer.raw(
    `{"n":${frame.n},"ok":true,"id":"${frame.id}","key":"rounded","token":9007199254740993,"ttl":30000,"remaining":30000}\n`,
  );
  const rounded = await within("the grant", acquiring);
  assert.throws(() => rounded.token, latchkey.FencingUnknown);
});

test("the largest token is exact", async () => {
  const { client, peer } = await server.client();
  assert.equal((await held(peer, client.acquire("a"), 9007199254740991)).token, 9007199254740991);
});

test("frames that come byte by byte, or many at once, are the same", async () => {
  const { client, peer } = await server.client();
  const both = [client.acquire("ü€🔑"), client.acquire("b")] as const;
  const frames = [await peer.next("acquire"), await peer.next("acquire")];
  const text = frames
    .map((f) => JSON.stringify({ n: f.n, ok: true, id: f.id, key: f.key, token: 5, ttl: 30000, remaining: 30000 }))
    .join("\n");
  for (const byte of Buffer.from(`${text}\n`)) {
    peer.raw(Buffer.from([byte]));
    await new Promise(setImmediate);
  }
  const [one] = await within("both grants", Promise.all(both));
  assert.equal(one.key, "ü€🔑");
});

test("cancel of what waits", async () => {
  const { client, peer } = await server.client();
  const queued = later<latchkey.Queued>();
  const giveUp = new AbortController();
  const acquiring = client.acquire("a", { signal: giveUp.signal, onQueued: queued.resolve });
  const frame = await peer.next("acquire");
  peer.send({ n: frame.n, queued: true, id: frame.id, key: "a", position: 2, ahead: [{ mode: "shared", token: 4 }] });
  assert.deepEqual(await queued.promise, { key: "a", position: 2, ahead: [{ mode: "shared", token: 4 }] });
  giveUp.abort(new Error("enough"));
  const cancel = await peer.next("cancel");
  assert.equal(cancel.id, frame.id);
  peer.send({ n: frame.n, ok: false, code: "cancelled", op: "acquire", key: "a" }, { n: cancel.n, ok: true });
  const error = (await acquiring.catch((e: unknown) => e)) as latchkey.CancelledError;
  assert.ok(error instanceof latchkey.CancelledError);
  assert.equal((error.cause as Error).message, "enough");
});

test("a grant that crosses its cancel is nobody's", async () => {
  const { client, peer } = await server.client();
  const giveUp = new AbortController();
  const acquiring = client.acquire("a", { signal: giveUp.signal });
  const frame = await peer.next("acquire");
  giveUp.abort();
  const cancel = await peer.next("cancel");
  peer.grant(frame);
  peer.send({ n: cancel.n, ok: true });
  assert.equal(await fails(acquiring), "cancelled");
  // The id is free again, and nothing is renewed or released.
  const again = client.acquire("a", { id: frame.id as string });
  assert.equal((await peer.next("acquire")).id, frame.id);
  void again.catch(() => {});
});

test("a cancel that is not answered is an outcome unknown", async () => {
  const { client, peer } = await server.client();
  const giveUp = new AbortController();
  const acquiring = client.acquire("a", { signal: giveUp.signal });
  await peer.next("acquire");
  giveUp.abort();
  await peer.next("cancel");
  assert.equal(await fails(acquiring, latchkey.UnknownOutcomeError), "unknown");
});

test("a signal that is aborted already sends nothing", async () => {
  const { client, peer } = await server.client();
  assert.equal(await fails(client.acquire("a", { signal: AbortSignal.abort() })), "cancelled");
  const hold = await held(peer, client.acquire("b")); // the first frame that comes
  assert.equal(hold.key, "b");
});

test("a broken connection is made again, the session resumed, and requests sent again with their age", async () => {
  const { client, peer } = await server.client();
  const troubled = later<string>();
  const hold = await held(peer, client.acquire("a", { onTroubled: (_, error) => troubled.resolve(error.code) }));
  const waiting = client.acquire("b", { wait: 60_000 });
  const first = await peer.next("acquire");
  await until("the request has an age", () => performance.now() % 20 < 2);
  peer.cut();
  assert.equal(await within("trouble is told", troubled.promise), "unavailable");
  const second = await server.peer();
  const open = await second.greet("S1", {
    grace: 2940,
    leases: [{ id: hold.id, keys: ["a"], tokens: [17], ttl: 30000, remaining: 30000, waited: 0 }],
  });
  assert.equal(open.resume, "S1");
  const again = await second.next("acquire");
  assert.equal(again.id, first.id);
  assert.ok((again.waited as number) >= 1, "it says how long it has waited");
  assert.ok((again.wait as number) < 60_000, "what is left of its bound");
  second.grant(again, 18);
  assert.equal((await within("the grant", waiting)).token, 18);
  assert.ok(hold.isSafe, "nothing was lost");
});

test("after a resume: what is not listed is lost, what nobody wants is released", async () => {
  const { client, peer } = await server.client();
  const kept = await held(peer, client.acquire(["a", "b"]));
  const gone = await held(peer, client.acquire("c"), 9);
  peer.cut();
  const second = await server.peer();
  await second.next();
  second.send({ latchkey: 1 });
  const open = await second.next("open");
  // A long list comes in parts.
  second.send(
    { n: open.n, leases: [{ id: kept.id, keys: ["a", "b"], tokens: [17, 18], ttl: 30000, remaining: 30000 }] },
    {
      n: open.n,
      ok: true,
      session: "S1",
      grace: 2940,
      elapsed: 0,
      leases: [{ id: "stranger", keys: ["x"], tokens: [5], forever: true }],
    },
  );
  const release = await second.next("release");
  assert.equal(release.id, "stranger");
  assert.equal(codeOf(await aborted(gone)), "forced");
  assert.ok(kept.isSafe);
});

test("session_lost at the resume: holds are lost, who waits goes on in a new session", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const lasting = client.acquire("d", { detach: true });
  peer.grant(await peer.next("acquire"), 20, { detached: true });
  const detached = await lasting;
  const waiting = client.acquire("b");
  const first = await peer.next("acquire");
  const releasing = held(peer, client.acquire("c")).then((h) => h.release());
  await peer.next("release");
  peer.cut();
  const second = await server.peer();
  await second.next();
  second.send({ latchkey: 1 });
  const resume = await second.next("open");
  assert.equal(resume.resume, "S1");
  second.send({ n: resume.n, ok: false, code: "session_lost", op: "open", reason: "there is no session with this id" });
  const open = await second.next("open");
  assert.equal(open.resume, undefined);
  assert.equal(codeOf(await aborted(hold)), "session_lost");
  assert.ok(!hold.isSafe);
  second.send({ n: open.n, ok: true, session: "S2", grace: 3000, elapsed: 0 });
  const again = await second.next("acquire");
  assert.equal(again.id, first.id);
  second.grant(again, 21);
  assert.equal((await within("the grant", waiting)).token, 21);
  await within("the end of the session released it", releasing);
  assert.ok(detached.isSafe, "a detached hold outlives its session");
  assert.equal(await fails(hold.release()), "session_lost");
});

test("a notice that the session is lost, while somebody waits", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const waiting = client.acquire("b");
  const first = await peer.next("acquire");
  peer.send(
    { lost: "session_lost" },
    { n: first.n, ok: false, code: "session_lost", op: "acquire", key: "b", reason: "the session ended" },
  );
  assert.equal(codeOf(await aborted(hold)), "session_lost");
  const second = await server.peer();
  const open = await second.greet("S2");
  assert.equal(open.resume, undefined, "the lost session is not asked for again");
  second.grant(await second.next("acquire"), 30);
  assert.equal((await within("the grant", waiting)).token, 30);
});

test("notices end a hold at once, with who did it", async () => {
  const { client, peer } = await server.client();
  const forced = await held(peer, client.acquire("a"));
  peer.send({ lost: "forced", id: forced.id, key: "a", token: 17, by: "alice: stuck" });
  const reason = (await aborted(forced)) as latchkey.ForcedError;
  assert.ok(reason instanceof latchkey.ForcedError && reason.message.includes("alice"));
  const many = await held(peer, client.acquire(["a", "b"]));
  peer.send({ lost: "forced", id: many.id, key: "b", token: 4 }); // an older hold of that key
  peer.send({ lost: "expired", id: many.id, key: "b", token: 18 });
  assert.equal(codeOf(await aborted(many)), "expired");
  const releasing = fails(many.release());
  const frame = await peer.next("release"); // gives back the key that is left
  peer.send({ n: frame.n, ok: true, id: many.id, key: "a", token: 17 });
  assert.equal(await releasing, "expired");
});

test("holds are renewed each third, and failing renewals are told before the loss", async () => {
  const { client, peer } = await server.client({ grace: 0 });
  const told: string[] = [];
  const hold = await held(peer, client.acquire("a", { ttl: 600, onTroubled: (_, e) => told.push(e.code) }));
  const first = hold.safeUntil;
  const renew = await peer.next("renew");
  assert.deepEqual(renew, { n: renew.n, do: "renew", id: hold.id });
  peer.send({ n: renew.n, ok: true, id: hold.id, key: "a", token: 17, ttl: 600, elapsed: 0, remaining: 600 });
  await until("the deadline moves ahead", () => hold.safeUntil > first);
  const second = hold.safeUntil;
  for (let i = 0; i < 2; i++) {
    const again = await peer.next("renew");
    peer.send({ n: again.n, ok: false, code: "unavailable", op: "renew", reason: "the journal failed" });
  }
  assert.equal(codeOf(await aborted(hold)), "service_gone");
  assert.ok(told.length >= 2 && told[0] === "unavailable");
  assert.ok(hold.safeUntil <= second && performance.now() >= second - 1, "not before its deadline");
});

test("a broker that grants no time is not asked without a pause", async () => {
  const { client, peer } = await server.client({ grace: 0 });
  const hold = await held(peer, client.acquire("a", { ttl: 300 }));
  const frame = { ok: true, id: hold.id, key: "a", token: 17, ttl: 0, elapsed: 0, remaining: 3_000_000 };
  let renew = await peer.next("renew");
  const begun = performance.now();
  for (let i = 0; i < 20; i++) {
    peer.send({ n: renew.n, ...frame });
    renew = await peer.next("renew");
  }
  assert.ok(performance.now() - begun >= 150, `20 renewals in ${performance.now() - begun} ms`);
});

test("renew: false only watches the deadline", async () => {
  const { client, peer } = await server.client({ grace: 0 });
  const hold = await held(peer, client.acquire("a", { ttl: 150, renew: false }));
  assert.equal(codeOf(await aborted(hold)), "expired");
  assert.equal(peer.unread, 0);
});

test("renew changes the ttl, and what it cannot do ends the hold", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const renewing = hold.renew(60_000);
  const frame = await peer.next("renew");
  assert.equal(frame.ttl, 60_000);
  peer.send({ n: frame.n, ok: true, id: hold.id, key: "a", token: 17, ttl: 60000, elapsed: 0, remaining: 60000 });
  await renewing;
  assert.equal(hold.ttl, 60_000);
  assert.equal(await fails(hold.renew(99)), "refused");
  const failing = fails(hold.renew());
  const second = await peer.next("renew");
  peer.send({ n: second.n, ok: false, code: "not_held", op: "renew" });
  assert.equal(await failing, "expired");
  assert.equal(codeOf(hold.lost), "expired");
});

test("a thawed process knows by the clock before any timer has run", async () => {
  const clock = shifted();
  const { client, peer } = await server.client({}, clock);
  const hold = await held(peer, client.acquire("a"));
  assert.ok(hold.isSafe);
  clock.shift += 600_000; // nothing else has happened
  assert.ok(!hold.isSafe);
  assert.ok(hold.signal.aborted);
  assert.ok(["service_gone", "expired"].includes(codeOf(hold.lost) ?? ""));
  assert.throws(() => hold.check(), latchkey.LossError);
});

test("no answer from before a freeze makes a lost hold safe again", async () => {
  const clock = shifted();
  const { client, peer } = await server.client({}, clock);
  const hold = await held(peer, client.acquire("a"));
  const renewing = fails(hold.renew());
  const frame = await peer.next("renew");
  clock.shift += 600_000;
  peer.send({ n: frame.n, ok: true, id: hold.id, key: "a", token: 17, ttl: 30000, elapsed: 0, remaining: 900000 });
  assert.ok(["service_gone", "expired"].includes(await renewing));
  assert.ok(!hold.isSafe);
});

test("what a resume finds past its deadline is lost, and given back", async () => {
  const clock = shifted();
  const { client, peer } = await server.client({}, clock);
  const hold = await held(peer, client.acquire("a"));
  peer.cut();
  const second = await server.peer();
  await second.next();
  second.send({ latchkey: 1 });
  const { n } = await second.next("open");
  clock.shift += 600_000; // stopped while the broker answered
  const leases = [{ id: hold.id, keys: ["a"], tokens: [17], ttl: 30000, remaining: 30000 }];
  second.send({ n, ok: true, session: "S1", grace: 60_000, elapsed: 0, leases });
  assert.equal((await second.next("release")).id, hold.id);
  assert.ok(hold.signal.aborted && !hold.isSafe);
});

test("the id of a hold does not get into logs by itself", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  for (const shown of [inspect(hold, { showHidden: true }), JSON.stringify(hold), String(hold)]) {
    assert.ok(!shown.includes(hold.id), shown);
  }
});

test("a grant that arrives too late is given back", async () => {
  const clock = shifted();
  const { client, peer } = await server.client({ grace: 0 }, clock);
  const acquiring = fails(client.acquire("a", { ttl: 1000 }));
  const frame = await peer.next("acquire");
  clock.shift += 5000;
  peer.grant(frame);
  assert.equal((await peer.next("release")).id, frame.id);
  assert.equal(await acquiring, "expired");
});

test("a link that is dead without being closed is given up, and holds are lost at the deadline at the latest", async () => {
  const { client, peer } = await server.client({ grace: 600 });
  const hold = await held(peer, client.acquire("a"));
  peer.pongs = false;
  const until0 = hold.safeUntil;
  const second = await server.peer(); // a new attempt, since no ping is answered
  assert.equal(codeOf(await aborted(hold)), "service_gone");
  assert.ok(hold.safeUntil >= until0);
  await peer.end();
  void second;
});

test("a call about a hold is tried again on the next connection: not_held says that it was done", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const releasing = hold.release();
  await peer.next("release");
  peer.cut();
  const second = await server.peer();
  await second.greet("S1", { leases: [] });
  const again = await second.next("release");
  second.send({ n: again.n, ok: false, code: "not_held", op: "release" });
  await within("the release", releasing);
});

test("without a broker: a bounded wait ends, a try is unavailable, what was sent is unknown", async () => {
  const { client, peer } = await server.client({ grace: 300 });
  const sent = client.acquire("a", { try: true });
  await peer.next("acquire");
  peer.cut();
  await until("the client has noticed", () => !client.connected);
  const bounded = client.acquire("b", { wait: 200 });
  const tried = client.acquire("c", { try: true });
  const results = await Promise.all([fails(sent), fails(bounded), fails(tried)]);
  assert.deepEqual(results, ["unknown", "timeout", "unavailable"]);
  assert.equal(await fails(client.list()), "unavailable");
});

test("a broker that closes sends requests back, and they wait for the next one", async () => {
  const { client, peer } = await server.client();
  const waiting = client.acquire("a");
  const frame = await peer.next("acquire");
  peer.send({ n: frame.n, ok: false, code: "closed", op: "acquire" }, { ok: false, code: "closed", reason: "bye" });
  const second = await server.peer();
  await second.greet();
  second.grant(await second.next("acquire"), 40);
  assert.equal((await within("the grant", waiting)).token, 40);
});

test("what a closing broker sent back is taken back without asking anybody", async () => {
  const { client, peer } = await server.client();
  const giveUp = new AbortController();
  const queued = later<latchkey.Queued>();
  const waiting = fails(
    client.acquire("a", { signal: giveUp.signal, onQueued: queued.resolve }),
    latchkey.CancelledError,
  );
  const frame = await peer.next("acquire");
  peer.send({ n: frame.n, queued: true, id: frame.id, key: "a", position: 0 });
  await queued.promise;
  peer.send({ n: frame.n, ok: false, code: "closed", op: "acquire" }, { ok: false, code: "closed", reason: "bye" });
  await until("the client has noticed", () => !client.connected);
  giveUp.abort();
  assert.equal(await waiting, "cancelled");
  const second = await server.peer();
  await second.greet();
  await held(second, client.acquire("b")); // the first frame that comes
});

test("garbage, a line without end, and a wrong version are errors with a type", async () => {
  const answers = [
    "+OK\n",
    '{"latchkey":2}\n',
    `${"x".repeat(1_100_000)}`,
    "null\n",
    Buffer.from([0x22, 0xff, 0x22, 0x0a]),
  ];
  for (const answer of answers) {
    const connecting = fails(server.dial(), latchkey.ProtocolError);
    (await server.peer()).raw(answer);
    assert.equal(await connecting, "protocol", String(answer).slice(0, 20));
  }
  const refused = fails(server.dial());
  (await server.peer()).send({ ok: false, code: "refused", reason: "10000 connections are open" });
  assert.equal(await refused, "refused");
  const silent = fails(server.dial({ connectTimeout: 100 }));
  assert.equal(await silent, "unavailable");
  const giveUp = new AbortController();
  const given = fails(server.dial({ signal: giveUp.signal }));
  giveUp.abort();
  assert.equal(await given, "cancelled");
});

test("garbage in the middle: what waits is told after a few connections, nothing hangs", async () => {
  const { client, peer } = await server.client();
  const waiting = fails(client.acquire("a"));
  let p = peer;
  for (let i = 0; i < 3; i++) {
    await p.next("acquire");
    p.raw('{"n":"five"}\n');
    p = await server.peer();
    await p.greet();
  }
  assert.equal(await waiting, "unknown");
  assert.ok(["cancel", "release"].includes(String((await p.next()).do)), "what may have been granted is taken back");
});

test("a grant without an end is not taken for one that has none", async () => {
  const { client, peer } = await server.client();
  const acquiring = client.acquire("a");
  const frame = await peer.next("acquire");
  peer.send({ n: frame.n, ok: true, id: frame.id, key: "a", token: 5 });
  await peer.end();
  const second = await server.peer();
  await second.greet();
  second.grant(await second.next("acquire"), 6);
  assert.equal((await within("the grant", acquiring)).token, 6);
});

test("a grant of something else than was asked for is none", async () => {
  const { client, peer } = await server.client();
  const acquiring = client.acquire(["a", "b"]);
  let p = peer;
  for (const more of [{ keys: ["a"], tokens: [1] }, { keys: ["a", "c"] }]) {
    p.grant(await p.next("acquire"), 5, more);
    await p.end();
    p = await server.peer();
    await p.greet();
  }
  p.grant(await p.next("acquire"), 6, { keys: ["b", "a"] });
  const hold = await within("the grant", acquiring);
  assert.deepEqual(Object.fromEntries(hold.tokens), { b: 6, a: 7 });
});

test("what is left of a grant that was not heard is given back", async () => {
  const { client, peer } = await server.client();
  const failing = fails(client.acquire(["a", "b"]), latchkey.ForcedError);
  await peer.next("acquire");
  peer.cut();
  const second = await server.peer();
  await second.greet("S1", { grace: 2940 });
  const again = await second.next("acquire");
  second.grant({ ...again, keys: ["b"] });
  const release = await second.next("release");
  assert.equal(release.id, again.id);
  assert.equal(await failing, "forced");
});

test("another session than the one resumed vouches for nothing", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const entry = { id: hold.id, keys: ["a"], tokens: [17], ttl: 30000, remaining: 30000 };
  peer.cut();
  const second = await server.peer();
  await second.greet("S2", { leases: [entry] });
  await second.end();
  const third = await server.peer();
  const open = await third.greet("S1", { leases: [entry] });
  assert.equal(open.resume, "S1");
  await until("it is connected again", () => client.connected);
  assert.ok(hold.isSafe);
});

test("a request that just fits a frame can be sent again", async () => {
  const { client, peer } = await server.client();
  const keys = Array.from({ length: 42 }, (_, i) => "\u0001".repeat(256) + String(i + 10));
  const fitting: Promise<unknown>[] = [];
  let refused = 0;
  for (let size = 200; size < 340; size++) {
    const asked = client.acquire([...keys, "x".repeat(400), "y".repeat(size)]).catch((e: unknown) => {
      if (codeOf(e) === "refused") refused++;
    });
    fitting.push(asked);
  }
  await until("some are refused", () => refused > 0);
  assert.ok(refused < 140);
  for (let i = 0; i < 140 - refused; i++) await peer.next("acquire");
  peer.cut();
  const second = await server.peer();
  second.limit = 65_536;
  await second.greet();
  for (let i = 0; i < 140 - refused; i++) await second.next("acquire");
  await client.close();
  await Promise.all(fitting);
});

test("unknown fields are ignored, and unknown codes keep their name", async () => {
  const { client, peer } = await server.client();
  const hold = client.acquire("a");
  peer.grant(await peer.next("acquire"), 3, { region: { name: "eu" }, note: null });
  await within("the grant", hold);
  const failing = client.acquire("b");
  const frame = await peer.next("acquire");
  peer.send({ n: frame.n, ok: false, code: "preempted", op: "acquire", key: "b" });
  const error = await failing.catch((e: unknown) => e);
  assert.ok(error instanceof latchkey.InternalError);
  assert.equal(error.code, "preempted");
  assert.equal(error.kind, "defect");
});

test("what breaks a rule is refused here, by name, and nothing is sent", async () => {
  const { client, peer } = await server.client();
  const bad: [string | string[], latchkey.AcquireOptions][] = [
    ["", {}],
    [[], {}],
    [["a", "a"], {}],
    ["k".repeat(513), {}],
    ["\ud800", {}],
    ["a", { ttl: 99 }],
    ["a", { ttl: 1000.5 }],
    ["a", { ttl: Number.NaN }],
    ["a", { wait: 0 }],
    ["a", { try: true, wait: 5 }],
    ["a", { max: 2 }],
    ["a", { mode: "counted" }],
    ["a", { preferReaders: true }],
    ["a", { id: "" }],
    [Array.from({ length: 64 }, (_, i) => String.fromCharCode(1).repeat(500) + i), {}],
  ];
  for (const [keys, options] of bad) {
    assert.equal(await fails(client.acquire(keys, options), latchkey.RefusedError), "refused", JSON.stringify(options));
  }
  const hold = await held(peer, client.acquire("a", { id: "mine" }));
  assert.equal(await fails(client.acquire("b", { id: "mine" })), "refused");
  assert.equal(peer.unread, 0);
  assert.equal(hold.id, "mine");
});

test("more than 10 000 unanswered requests are refused", async () => {
  const { client } = await server.client();
  const all = Array.from({ length: 9984 }, (_, i) => client.acquire(`k${i}`));
  for (const p of all) p.catch(() => {});
  assert.equal(await fails(client.acquire("one too many")), "refused");
  await client.close();
  assert.equal(await fails(all[0] as Promise<Hold>), "closed");
});

test("many requests share a write", async () => {
  const { client, peer } = await server.client();
  const all = Array.from({ length: 100 }, (_, i) => client.acquire(`k${i}`));
  for (let i = 0; i < 100; i++) peer.grant(await peer.next("acquire"), i + 1);
  const holds = await within("all grants", Promise.all(all));
  assert.deepEqual(
    holds.map((h) => h.token),
    Array.from({ length: 100 }, (_, i) => i + 1),
  );
});

test("do returns what the function does, and releases whatever happens", async () => {
  const { client, peer } = await server.client();
  const serve = async (): Promise<void> => {
    peer.grant(await peer.next("acquire"));
    const frame = await peer.next("release");
    peer.send({ n: frame.n, ok: true, id: frame.id, key: "a", token: 17 });
  };
  let serving = serve();
  assert.equal(await client.do("a", (hold) => hold.token + 1), 18);
  await serving;
  serving = serve();
  await assert.rejects(
    client.do("a", { label: "x" }, () => {
      throw new Error("body");
    }),
    /body/,
  );
  await serving;
});

test("do tells its body of the loss, and rejects with it", async () => {
  const { client, peer } = await server.client();
  const doing = client.do("a", async (hold, signal) => {
    peer.send({ lost: "expired", id: hold.id, key: "a", token: 17 });
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    throw new Error("half done");
  });
  peer.grant(await peer.next("acquire"));
  const frame = await peer.next("release");
  peer.send({ n: frame.n, ok: false, code: "not_held", op: "release" });
  const error = (await doing.catch((e: unknown) => e)) as latchkey.LatchkeyError;
  assert.ok(error instanceof latchkey.ExpiredError);
  assert.equal((error.cause as Error).message, "half done");
});

test("whatever ends a hold while it is held is a LossError, in do and at a signal", async () => {
  const { client, peer } = await server.client();
  const released = client.do("a", async (hold) => {
    peer.send({ lost: "not_held", id: hold.id, key: "a", token: 17 });
    await aborted(hold);
    assert.ok(hold.lost instanceof latchkey.HoldReleasedError && hold.lost.kind === "loss");
    assert.throws(() => hold.check(), latchkey.LossError);
    throw new Error("half done");
  });
  peer.grant(await peer.next("acquire"));
  const frame = await peer.next("release");
  peer.send({ n: frame.n, ok: false, code: "not_held", op: "release" });
  assert.equal(await fails(released, latchkey.HoldReleasedError), "not_held");
  const strange = await held(peer, client.acquire("b"));
  peer.send({ lost: "preempted", id: strange.id, key: "b", token: 17 });
  assert.ok((await aborted(strange)) instanceof latchkey.LossError);
  assert.equal(strange.lost?.code, "preempted");
  // Nobody tells of the end; only the release finds out.
  const silent = client.do("c", () => 1);
  peer.grant(await peer.next("acquire"));
  const last = await peer.next("release");
  peer.send({ n: last.n, ok: false, code: "not_held", op: "release" });
  assert.equal(await fails(silent, latchkey.LossError), "expired");
  const closed = client.do("d", async (hold) => {
    void client.close();
    await aborted(hold);
  });
  peer.grant(await peer.next("acquire"));
  assert.equal(await fails(closed, latchkey.HoldClosedError), "closed");
});

test("requests inside of do declare its hold, as long as it is held", async () => {
  const { client, peer } = await server.client();
  const { client: other, peer: peer2 } = await server.client();
  const outer = client.do("a", async (hold) => {
    const inner = client.do("b", { declared: ["x", hold] }, async (second) => {
      const third = other.acquire("c");
      const asked = await peer2.next("acquire");
      assert.deepEqual(asked.declared, [hold.id, second.id]);
      peer2.send({
        n: asked.n,
        ok: false,
        code: "deadlock",
        op: "acquire",
        key: "c",
        cycle: [{ who: "cron on vm pid 7", key: "c" }],
      });
      const error = (await third.catch((e: unknown) => e)) as latchkey.DeadlockError;
      assert.ok(error instanceof latchkey.DeadlockError);
      assert.equal(error.message, 'acquire "c": deadlock: you already hold this key: "c", as cron on vm pid 7');
    });
    const asked = await peer.next("acquire");
    assert.deepEqual(asked.declared, ["x", hold.id]);
    peer.grant(asked);
    const release = await peer.next("release");
    peer.send({ n: release.n, ok: true, id: release.id, key: "b", token: 17 });
    await inner;
    const releasing = hold.release();
    const frame = await peer.next("release");
    peer.send({ n: frame.n, ok: true, id: hold.id, key: "a", token: 17 });
    await releasing;
    void client.acquire("d").catch(() => {});
    assert.equal((await peer.next("acquire")).declared, undefined);
  });
  const first = await peer.next("acquire");
  assert.equal(first.declared, undefined);
  peer.grant(first);
  await within("do is done", outer);
});

test("an error says who is in the way, and where", async () => {
  const { client, peer } = await server.client();
  const acquiring = client.acquire("a", { try: true });
  const frame = await peer.next("acquire");
  const holder = { session: "cron", label: "nightly", host: "vm", pid: 23827, mode: "exclusive", since: 5 };
  peer.send({ n: frame.n, ok: false, code: "busy", op: "acquire", key: "a", holders: [{ ...holder, remaining: 7 }] });
  await assert.rejects(acquiring, /held by cron \(nightly\) on vm pid 23827 for 5 ms, 7 ms left/);
});

test("do leaves nothing at a signal that outlives it", async () => {
  const { client, peer } = await server.client();
  const long = new AbortController();
  let seen: AbortSignal | undefined;
  const doing = client.do("a", { signal: long.signal }, (_hold, signal) => {
    seen = signal;
  });
  peer.grant(await peer.next("acquire"));
  const release = await peer.next("release");
  peer.send({ n: release.n, ok: true, id: release.id, key: "a", token: 17 });
  await within("do is done", doing);
  assert.equal(getEventListeners(long.signal, "abort").length, 0);
  long.abort();
  assert.equal(seen?.aborted, false);
});

test("await using releases at the end of the scope", async () => {
  const { client, peer } = await server.client();
  const serving = (async () => {
    peer.grant(await peer.next("acquire"));
    const frame = await peer.next("release");
    peer.send({ n: frame.n, ok: true, id: frame.id, key: "a", token: 17 });
  })();
  {
    await using hold = await client.acquire("a");
    assert.ok(hold.isSafe);
  }
  await within("the release", serving);
});

test("close ends every call, tells every hold, and says goodbye", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const calls = [client.acquire("b"), client.list(), client.force("c"), client.watch(), hold.renew()].map((p) =>
    fails(p),
  );
  for (let i = 0; i < calls.length; i++) await peer.next();
  const closing = client.close();
  const frame = await peer.next("close");
  assert.deepEqual(
    await Promise.all(calls),
    calls.map(() => "closed"),
  );
  assert.equal(codeOf(hold.signal.reason), "closed");
  peer.send({ n: frame.n, ok: true });
  await within("close", closing);
  await client.close();
  assert.equal(await fails(client.acquire("d")), "closed");
  assert.equal(await fails(hold.release()), "closed");
});

test("close does not wait for a broker that does not answer", async () => {
  const { client, peer } = await server.client();
  peer.pongs = false;
  await within("close", client.close(), 5000);
});

test("close without a connection: the next one says goodbye, if it comes in time", async () => {
  const { client, peer } = await server.client();
  await held(peer, client.acquire("a"));
  peer.cut();
  const second = await server.peer();
  const closing = client.close();
  const open = await second.greet("S1", { grace: 2940 });
  assert.equal(open.resume, "S1");
  const goodbye = await second.next("close");
  second.send({ n: goodbye.n, ok: true });
  await within("close", closing);

  const { client: away, peer: last } = await server.client();
  last.cut();
  const third = await server.peer();
  const leaving = away.close();
  await third.next();
  third.send({ latchkey: 1 });
  const asked = await third.next("open");
  third.send({ n: asked.n, ok: false, code: "session_lost", op: "open" });
  await within("close", leaving);
  assert.equal(third.unread, 0, "no other session is opened");
});

test("a second client that resumes the session: this one does not take it back", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  peer.send({ ok: false, code: "session_lost", reason: "another connection resumed the session" });
  assert.equal(codeOf(await aborted(hold)), "session_lost");
  const open = await (await server.peer()).greet("S2");
  assert.equal(open.resume, undefined);
});

test("a resume of its own that the broker comes to late is taken for what it is", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const waiting = fails(client.acquire("b"));
  const asked = await peer.next("acquire");
  const lease = { id: hold.id, keys: ["a"], tokens: [17], ttl: 30_000, remaining: 30_000, waited: 0 };
  const taken = { ok: false, code: "session_lost", reason: "another connection resumed the session" };
  peer.cut();
  for (let i = 0; i < 2; i++) {
    const unanswered = await server.peer();
    await unanswered.next();
    unanswered.send({ latchkey: 1, features: [] });
    assert.equal((await unanswered.next("open")).resume, "S1");
    unanswered.cut();
  }
  const second = await server.peer();
  assert.equal((await second.greet("S1", { leases: [lease] })).resume, "S1");
  assert.equal((await second.next("acquire")).id, asked.id);
  second.send(taken);

  // It may also be told in place of the answer.
  const third = await server.peer();
  await third.next();
  third.send({ latchkey: 1, features: [] });
  assert.equal((await third.next("open")).resume, "S1");
  third.send(taken);
  const fourth = await server.peer();
  assert.equal((await fourth.greet("S1", { leases: [lease] })).resume, "S1");
  const again = await fourth.next("acquire");
  assert.equal(again.id, asked.id);
  assert.equal(hold.lost, undefined);
  assert.ok(hold.isSafe);

  // Nothing is left to excuse it: now it was somebody else.
  fourth.send(taken);
  assert.equal(codeOf(await aborted(hold)), "session_lost");
  assert.equal((await (await server.peer()).greet("S2")).resume, undefined);
  assert.equal(await waiting, "session_lost");
});

test("a takeover in place of the answer to a resume, with nothing to excuse it", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  peer.cut();
  const second = await server.peer();
  await second.next();
  second.send({ latchkey: 1, features: [] });
  await second.next("open");
  second.send({ ok: false, code: "session_lost", reason: "another connection resumed the session" });
  assert.equal(codeOf(await aborted(hold)), "session_lost");
  assert.equal((await (await server.peer()).greet("S2")).resume, undefined);
});

test("watch: events in order, a gap after a reconnect, and an end", async () => {
  const { client, peer } = await server.client();
  const watching = client.watch({ prefix: "jobs/" });
  const frame = await peer.next("watch");
  assert.equal(frame.prefix, "jobs/");
  peer.send({ n: frame.n, ok: true }, { n: frame.n, event: "granted", key: "jobs/1", token: 5, mode: "shared" });
  const watch = await watching;
  assert.deepEqual((await watch.next()).value, { event: "granted", key: "jobs/1", token: 5, mode: "shared" });
  peer.cut();
  const second = await server.peer();
  await second.greet();
  const again = await second.next("watch");
  second.send({ n: again.n, ok: true }, { n: again.n, event: "released", key: "jobs/1" });
  assert.deepEqual((await watch.next()).value, { event: "gap" });
  assert.deepEqual((await watch.next()).value, { event: "released", key: "jobs/1" });
  const closing = watch.close();
  const stop = await second.next("unwatch");
  assert.equal(stop.watch, again.n);
  second.send({ n: stop.n, ok: true });
  await closing;
  assert.deepEqual(await watch.next(), { done: true, value: undefined });
});

test("a watch that is not read keeps a gap instead of a heap", async () => {
  const watch = new Watch(3, async () => {});
  for (let i = 0; i < 10; i++) watch.push({ event: "granted", key: `k${i}` });
  watch.push({ event: "granted", key: "after" });
  const seen: unknown[] = [];
  for (let last: unknown; last !== "after"; ) {
    const { value } = await watch.next();
    last = value?.key ?? value?.event;
    seen.push(last);
  }
  assert.equal(seen[0], "gap", "whoever reads learns first that it is not all");
  assert.ok(seen.length <= 3);
});

test("callbacks that throw cost nobody a lease", async () => {
  const boom = (): never => {
    throw new Error("boom");
  };
  const { client, peer } = await server.client({ logger: { info: boom, warn: boom }, onTroubled: boom });
  const acquiring = client.acquire("a", { onQueued: boom });
  const other = client.acquire("b", { onQueued: async () => boom() });
  other.catch(() => {});
  const frame = await peer.next("acquire");
  const second = await peer.next("acquire");
  peer.send({ n: second.n, queued: true, id: second.id, key: "b", position: 0 });
  peer.send({ n: frame.n, queued: true, id: frame.id, key: "a", position: 0 });
  peer.grant(frame);
  const hold = await within("the grant", acquiring);
  peer.cut();
  await (await server.peer()).greet("S1", {
    leases: [{ id: hold.id, keys: ["a"], tokens: [17], ttl: 30000, remaining: 30000 }],
  });
  await until("it is connected again", () => client.connected);
  assert.ok(hold.isSafe);
});

test("whoever asks again at once when told of a loss is sent once", async () => {
  const { client, peer } = await server.client();
  const hold = await held(peer, client.acquire("a"));
  const again = later<Hold>();
  hold.signal.addEventListener("abort", () => void client.acquire("a").then(again.resolve));
  peer.cut();
  const second = await server.peer();
  await second.greet("S1", { leases: [] });
  second.grant(await second.next("acquire"), 18);
  assert.equal((await within("the grant", again.promise)).token, 18);
  assert.equal(second.unread, 0);
});

test("many requests may share a signal", async () => {
  const { client, peer } = await server.client();
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on("warning", warned);
  const giveUp = new AbortController();
  const all = Array.from({ length: 30 }, (_, i) => fails(client.acquire(`k${i}`, { signal: giveUp.signal })));
  for (let i = 0; i < 30; i++) await peer.next("acquire");
  giveUp.abort();
  for (let i = 0; i < 30; i++) peer.send({ n: (await peer.next("cancel")).n, ok: true });
  assert.deepEqual(new Set(await Promise.all(all)), new Set(["cancelled"]));
  await new Promise(setImmediate);
  process.off("warning", warned);
  assert.deepEqual(warnings, []);
});
