// The client against the real broker: killed, restarted, stopped.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as latchkey from "../src/index.js";
import { type Client, codeOf, connect, type Hold } from "../src/index.js";
import { Broker } from "./broker.js";
import { LONG, later, until, within } from "./scripted.js";

let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), "latchkey-ts-"));
});
after(() => rm(folder, { recursive: true, force: true }));

/** Runs a test with a broker and what connects to it. */
async function stage(
  args: string[],
  run: (broker: Broker, connecting: (options?: latchkey.ConnectOptions) => Promise<Client>) => Promise<void>,
): Promise<void> {
  const broker = await Broker.start(...args);
  const clients: Client[] = [];
  try {
    await run(broker, async (options) => {
      const client = await connect({ address: broker.address, grace: LONG, ...options });
      clients.push(client);
      return client;
    });
  } finally {
    broker.signal("SIGCONT");
    for (const client of clients) await client.close();
    await broker.kill();
  }
}

function aborted(hold: Hold): Promise<string | undefined> {
  const lost = later<string | undefined>();
  if (hold.signal.aborted) lost.resolve(codeOf(hold.signal.reason));
  else hold.signal.addEventListener("abort", () => lost.resolve(codeOf(hold.signal.reason)), { once: true });
  return within("the hold is lost", lost.promise);
}

/** The promise of a request, once it is known to wait. */
async function waiting(
  client: Client,
  key: string,
  options: latchkey.AcquireOptions = {},
): Promise<{ grant: Promise<Hold> }> {
  const queued = later<latchkey.Queued>();
  const grant = client.acquire(key, { ...options, onQueued: queued.resolve });
  grant.catch(() => {});
  await within(`${key} is queued for`, queued.promise);
  return { grant };
}

test("modes, many keys, busy, timeout, order, tokens", () =>
  stage([], async (_, connecting) => {
    const [a, b] = [await connecting({ name: "a" }), await connecting({ name: "b" })];
    assert.equal(a.server.durability, "memory");
    assert.equal(a.server.fencing, "clock");
    const first = await a.acquire("k", { label: "nightly" });
    const busy = (await b.acquire("k", { try: true }).catch((e: unknown) => e)) as latchkey.BusyError;
    assert.ok(busy instanceof latchkey.BusyError);
    assert.equal(busy.holders[0]?.label, "nightly");
    assert.equal(busy.holders[0]?.token, first.token);
    await assert.rejects(b.acquire("k", { wait: 20 }), latchkey.TimeoutError);
    const second = await waiting(b, "k");
    const third = await waiting(a, "k");
    await first.release();
    const hold = await second.grant;
    assert.ok(hold.token > first.token);
    await hold.release();
    await (await third.grant).release();

    const shared = await Promise.all([a.acquire("s", { mode: "shared" }), b.acquire("s", { mode: "shared" })]);
    await assert.rejects(b.acquire("s", { try: true }), latchkey.BusyError);
    const counted = await Promise.all([1, 2].map(() => a.acquire("c", { mode: "counted", max: 2 })));
    await assert.rejects(b.acquire("c", { mode: "counted", max: 2, try: true }), latchkey.BusyError);
    const many = await a.acquire(["m2", "m1"]);
    assert.deepEqual([...many.tokens.keys()], ["m1", "m2"]);
    assert.throws(() => many.token, latchkey.RefusedError);
    const forever = await a.acquire("f", { ttl: "forever" });
    assert.equal(forever.ttl, Number.POSITIVE_INFINITY);
    await Promise.all([...shared, ...counted, many, forever].map((h) => h.release()));
    assert.deepEqual((await a.list()).keys, []);
  }));

test("deadlocks of declared holds are refused, and name the cycle", () =>
  stage([], async (_, connecting) => {
    const [a, b] = [await connecting({ name: "a" }), await connecting({ name: "b" })];
    const [x, y] = [await a.acquire("x"), await b.acquire("y")];
    const waits = await waiting(a, "y", { declared: [x] });
    const error = await b.acquire("x", { declared: [y.id] }).catch((e: unknown) => e);
    assert.ok(error instanceof latchkey.DeadlockError);
    assert.equal(error.cycle.length, 2);
    await y.release();
    await (await waits.grant).release();
    await x.release();
    // A do in a do on the same key would wait for itself.
    const alone = a.do("k", () => b.do("k", { ttl: "forever" }, () => assert.fail("it has the key twice")));
    await assert.rejects(within("a do in a do", alone), (e) => {
      assert.ok(e instanceof latchkey.DeadlockError && e.message.includes('you already hold this key: "k"'), String(e));
      return true;
    });
  }));

test("cancel leaves nothing, and a sight of it", () =>
  stage([], async (_, connecting) => {
    const [a, b] = [await connecting(), await connecting()];
    const watch = await b.watch({ key: "k" });
    const hold = await a.acquire("k");
    const giveUp = new AbortController();
    const waits = await waiting(b, "k", { signal: giveUp.signal });
    const [state] = (await a.list({ prefix: "k" })).keys;
    assert.equal(state?.waiting, 1);
    assert.equal(state?.holders.length, 1);
    giveUp.abort();
    await assert.rejects(waits.grant, latchkey.CancelledError);
    assert.equal((await a.list({ key: "k" })).keys[0]?.waiting, 0);
    await hold.release();
    const seen: string[] = [];
    for await (const event of watch) {
      seen.push(event.event);
      if (event.event === "released") break;
    }
    assert.deepEqual(seen, ["granted", "queued", "dequeued", "released"]);
    const stats = await a.stats();
    assert.equal(stats.granted, 1);
    assert.equal(stats.waiters, 0);
  }));

test("force ends a hold at once, and its fence is above the token", () =>
  stage([], async (_, connecting) => {
    const [a, b] = [await connecting(), await connecting()];
    const hold = await a.acquire("k");
    const forced = await b.force("k", { by: "alice", reason: "stuck" });
    assert.deepEqual(forced.tokens, [hold.token]);
    assert.ok(forced.fence > hold.token);
    assert.equal(await aborted(hold), "forced");
    await assert.rejects(hold.release(), latchkey.ForcedError);
    await assert.rejects(b.force("k"), latchkey.NotHeldError);
  }));

test("a broker with a directory that is killed and started again: holds and places are kept", () =>
  stage(["--data", join(folder, "durable")], async (broker, connecting) => {
    const [a, b] = [await connecting(), await connecting()];
    const hold = await a.acquire("k");
    const second = await waiting(b, "k");
    // Places come back by age, which is told in milliseconds and as exactly as the machine is quick.
    await until("it has an age", async () => ((await a.list({ key: "k" })).keys[0]?.waiters[0]?.age ?? 0) >= 1000);
    const third = await waiting(a, "k");
    await broker.kill();
    await until("the client has noticed", () => !a.connected && !b.connected);
    await broker.start();
    await until("both sessions are resumed", () => a.connected && b.connected);
    // Each is sent again on a connection of its own; before both are there, the key goes to whoever is.
    await until("both wait again", async () => {
      const [state] = (await a.list({ key: "k" })).keys;
      return state?.waiters.length === 2 && state.waiters.every((w) => !w.broken);
    });
    assert.ok(hold.isSafe);
    await hold.release();
    const next = await within("the second grant", second.grant);
    assert.ok(next.token > hold.token);
    await next.release();
    await (await within("the third grant", third.grant)).release();
  }));

test("a broker without one that is killed: losses are told, waiters go on in a new session", () =>
  stage([], async (broker, connecting) => {
    const [a, b] = [await connecting(), await connecting()];
    const hold = await a.acquire("k");
    const { grant } = await waiting(b, "k");
    await broker.kill();
    await broker.start();
    assert.equal(await aborted(hold), "session_lost");
    assert.ok(!hold.isSafe);
    const next = await within("the grant", grant);
    await next.release();
  }));

test("a broker that is stopped: the loss is told before another could be granted the key", () =>
  stage([], async (broker, connecting) => {
    const troubled = later<string>();
    const client = await connecting({ grace: 6000, onTroubled: (_, error) => troubled.resolve(error.code) });
    const hold = await client.acquire("k");
    broker.signal("SIGSTOP");
    assert.equal(await within("trouble is told", troubled.promise), "unavailable");
    assert.ok(hold.isSafe, "trouble is told before the loss");
    assert.equal(await aborted(hold), "service_gone");
    assert.ok(hold.safeFor() <= 0 && hold.safeFor() > -2000);
    broker.signal("SIGCONT");
    const next = await within("the next grant", client.acquire("k"));
    assert.ok(next.token > hold.token);
    await next.release();
  }));

test("a unix socket", () =>
  stage(["--unix", join(folder, "socket")], async (_, connecting) => {
    const address = `unix:${join(folder, "socket")}`;
    const connected = await until("the socket is there", async () => {
      try {
        const client = await connecting({ address });
        assert.equal(await client.do("k", (hold) => hold.key), "k");
        return true;
      } catch (error) {
        if (codeOf(error) === "unavailable") return false;
        throw error;
      }
    });
    assert.equal(connected, undefined);
  }));

test("after close no timer and no socket is left", () =>
  stage([], async (broker, connecting) => {
    const kinds = ["Timeout", "TCPSocketWrap", "TCPConnectWrap", "PipeWrap", "Immediate"];
    const left = (): string =>
      process
        .getActiveResourcesInfo()
        .filter((kind) => kinds.includes(kind))
        .sort()
        .join();
    const before = left();
    for (let i = 0; i < 3; i++) {
      const client = await connecting({ grace: 5000 });
      const watch = await client.watch();
      const holds = await Promise.all(["a", "b", "c"].map((key) => client.acquire(key, { ttl: 500 + i })));
      const waits = await waiting(client, "a", { wait: 60_000 });
      if (i === 1) broker.signal("SIGSTOP");
      if (i === 2) holds[0]?.release().catch(() => {});
      await client.close();
      broker.signal("SIGCONT");
      await waits.grant.catch(() => {});
      await watch.close();
    }
    await until(`only what was there before: ${before}`, () => left() === before);
  }));

test("a process whose client is closed ends by itself, and leaves nothing at the broker", () =>
  stage([], async (broker, connecting) => {
    const client = await connecting();
    const agent = fileURLToPath(new URL("../agent/agent.js", import.meta.url));
    const child = spawn(process.execPath, [agent], { stdio: ["pipe", "pipe", "inherit"] });
    const events: string[] = [];
    createInterface({ input: child.stdout }).on("line", (line) => events.push(line));
    const exit = once(child, "exit");
    const say = (o: object): void => void child.stdin.write(`${JSON.stringify(o)}\n`);
    say({ do: "connect", addr: broker.address, name: "child" });
    say({ do: "acquire", ref: "r1", keys: ["k"] });
    await until("it is granted", () => events.some((e) => e.includes('"granted"')));
    say({ do: "acquire", ref: "r2", keys: ["k"] });
    await until("it is queued", () => events.some((e) => e.includes('"queued"')));
    say({ do: "close" });
    assert.deepEqual(await within("it ends", exit), [0, null]);
    assert.deepEqual((await client.list()).keys, []);
    assert.equal((await client.stats()).sessions, 1);
  }));
