/**
 * Drives the client for the check across languages: commands as JSON lines on stdin, what happened as
 * JSON lines on stdout. It is no part of the package. When all is closed the process ends by itself,
 * which shows that the client left nothing behind.
 */

import { createInterface } from "node:readline";
import { type AcquireOptions, type Client, codeOf, connect, type Hold, LossError, type Watch } from "../src/index.js";

interface Command {
  do: string;
  ref?: string;
  addr?: string;
  name?: string;
  grace?: number;
  keys?: string[];
  key?: string;
  prefix?: string;
  mode?: "exclusive" | "shared" | "counted";
  max?: number;
  ttl?: number;
  wait?: number;
  try?: boolean;
  label?: string;
  renew?: boolean;
  forever?: boolean;
  detach?: boolean;
  id?: string;
  in_flight?: number;
  ms?: number;
}

let client: Client | undefined;
const holds = new Map<string, Hold>();
const pending = new Map<string, AbortController>();
const watches: Watch[] = [];

function say(event: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

function fault(error: unknown): void {
  say({ event: "error", text: error instanceof Error ? error.message : String(error) });
}

function theClient(): Client {
  if (client === undefined) throw new Error("not connected");
  return client;
}

function theHold(ref: string | undefined): Hold {
  const hold = holds.get(ref ?? "");
  if (hold === undefined) throw new NothingHeld(`no hold has the ref ${ref}`);
  return hold;
}

class NothingHeld extends Error {}

/** What is left; nothing is said of a hold without end. */
function left(hold: Hold): { safe_ms?: number } {
  const ms = hold.safeFor();
  return ms === Number.POSITIVE_INFINITY ? {} : { safe_ms: Math.floor(ms) };
}

async function acquire(c: Command): Promise<void> {
  const ref = c.ref ?? "";
  const giveUp = new AbortController();
  pending.set(ref, giveUp);
  const options: AcquireOptions = {
    mode: c.mode || undefined,
    max: c.max || undefined,
    ttl: c.forever ? "forever" : c.ttl || undefined,
    wait: c.wait || undefined,
    try: c.try,
    label: c.label,
    renew: c.renew,
    detach: c.detach,
    id: c.id || undefined,
    signal: giveUp.signal,
    onQueued: (q) => say({ event: "queued", ref, position: q.position, key: q.key }),
  };
  try {
    const hold = await theClient().acquire(c.keys ?? [c.key ?? ""], options);
    holds.set(ref, hold);
    say({ event: "granted", ref, tokens: Object.fromEntries(hold.tokens), ...left(hold) });
    const lost = (): void => {
      if (!(hold.signal.reason instanceof LossError) && codeOf(hold.signal.reason) === "closed") return;
      const late = Math.max(0, Math.ceil(-hold.safeFor()));
      say({ event: "lost", ref, code: codeOf(hold.signal.reason), late_ms: late, safe: hold.isSafe });
    };
    if (hold.signal.aborted) lost();
    else hold.signal.addEventListener("abort", lost, { once: true });
  } catch (error) {
    say({ event: "failed", ref, code: codeOf(error) ?? "internal", text: String(error) });
  } finally {
    pending.delete(ref);
  }
}

async function release(ref: string | undefined): Promise<void> {
  const hold = theHold(ref);
  try {
    await hold.release();
    holds.delete(ref ?? "");
    say({ event: "released", ref });
  } catch (error) {
    say({ event: "failed", ref, code: codeOf(error) ?? "internal", text: String(error) });
  }
}

async function renew(c: Command): Promise<void> {
  const hold = theHold(c.ref);
  try {
    await hold.renew(c.ttl || undefined);
    say({ event: "renewed", ref: c.ref, ...left(hold) });
  } catch (error) {
    say({ event: "failed", ref: c.ref, code: codeOf(error) ?? "internal", text: String(error) });
  }
}

async function watch(c: Command): Promise<void> {
  const w = await theClient().watch(c.prefix === undefined ? {} : { prefix: c.prefix });
  watches.push(w);
  say({ event: "watching" });
  try {
    for await (const e of w) say({ ...e, event: "seen", kind: e.event });
  } catch (error) {
    if (codeOf(error) !== "closed") throw error;
  }
}

async function bench(c: Command): Promise<void> {
  const until = performance.now() + (c.ms ?? 250);
  let pairs = 0;
  let errors = 0;
  const loop = async (i: number): Promise<void> => {
    while (performance.now() < until) {
      try {
        const hold = await theClient().acquire(`${c.key ?? "bench"}-${i}`, { renew: false });
        await hold.release();
        pairs++;
      } catch {
        errors++;
      }
    }
  };
  const start = performance.now();
  await Promise.all(Array.from({ length: c.in_flight ?? 1 }, (_, i) => loop(i)));
  say({ event: "bench", pairs, ms: Math.round(performance.now() - start), errors });
}

let closed = false;
async function close(): Promise<void> {
  if (closed) return;
  closed = true;
  input.close();
  await connecting.catch(() => {});
  await client?.close();
  say({ event: "closed" });
  process.stdin.destroy();
}

let connecting = Promise.resolve();

async function run(c: Command): Promise<void> {
  if (c.do !== "connect") await connecting;
  switch (c.do) {
    case "connect":
      connecting = connect({ address: c.addr, name: c.name, grace: c.grace }).then((it) => {
        client = it;
        say({ event: "connected" });
      });
      return connecting;
    case "acquire":
      return acquire(c);
    case "release":
      return release(c.ref);
    case "renew":
      return renew(c);
    case "cancel":
      pending.get(c.ref ?? "")?.abort(new Error("asked to"));
      return;
    case "check":
      say({ event: "checked", ref: c.ref, safe: theHold(c.ref).isSafe });
      return;
    case "watch":
      return watch(c);
    case "bench":
      return bench(c);
    case "close":
      return close();
    default:
      throw new Error(`${c.do} is not a command`);
  }
}

const input = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
input.on("line", (line) => {
  let command: Command;
  try {
    command = JSON.parse(line) as Command;
  } catch (error) {
    fault(error);
    return;
  }
  run(command).catch((error) => {
    if (error instanceof NothingHeld) say({ event: "failed", ref: command.ref, code: "not_held" });
    else fault(error);
  });
});
input.on("close", () => {
  close().catch(fault);
});
