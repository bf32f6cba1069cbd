// Every case of the vectors that a client can play.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { decodeKeyState } from "../src/client.js";
import { leaseDeadline, safeUntil, sessionDeadline } from "../src/deadlines.js";
import { InternalError, LatchkeyError, makeError } from "../src/errors.js";
import { checkRequest, encodeRequest, type Fields, type Op } from "../src/request.js";
import {
  decodeFailure,
  decodeGrant,
  decodeHello,
  decodeHolder,
  decodeHolds,
  decodeLeases,
  decodeReply,
  HELLO,
  type JsonObject,
  LineSplitter,
  objects,
} from "../src/wire.js";

type Case = { name: string; line?: string; base64?: string } & Record<string, unknown>;

// biome-ignore lint/suspicious/noExplicitAny: what a case means has another form in each file
type Means = any;

const folder = fileURLToPath(new URL("../../../vectors/", import.meta.url));

function cases(file: string): Case[] {
  return JSON.parse(readFileSync(folder + file, "utf8")) as Case[];
}

function bytes(c: Case): Buffer {
  return c.base64 === undefined ? Buffer.from(c.line ?? "") : Buffer.from(c.base64, "base64");
}

let played = 0;
let left = 0;

function play(file: string, c: Case, f: () => void): void {
  try {
    f();
  } catch (error) {
    throw new Error(`${file}, case "${c.name}"`, { cause: error });
  }
  played++;
}

test("hello.json", () => {
  for (const c of cases("hello.json")) {
    if (c.from === "client") {
      if (c.name !== "client") {
        left++; // what only a server reads
        continue;
      }
      play("hello.json", c, () => assert.equal(HELLO, `${c.line}\n`));
      continue;
    }
    play("hello.json", c, () => {
      if (c.code !== undefined) {
        assert.throws(
          () => decodeHello(bytes(c)),
          (e) => e instanceof LatchkeyError && e.code === c.code && e.message.includes(c.reason as string),
        );
        return;
      }
      const { Version, Features, Server, Durability, Fencing } = c.means as Means;
      assert.deepEqual(decodeHello(bytes(c)), {
        version: Version,
        features: Features,
        server: Server,
        durability: Durability,
        fencing: Fencing,
      });
    });
  }
});

test("replies.json", () => {
  for (const c of cases("replies.json")) play("replies.json", c, () => comparesReply(bytes(c), c.means as Means));
});

function comparesReply(line: Buffer, means: Means): void {
  const { kind, n, body } = decodeReply(line);
  assert.equal(kind, means.kind);
  assert.equal(n, means.n ?? 0);
  if (kind === "failed") {
    const e = decodeFailure(body);
    const { code, op, key, reason, holders = [], cycle = [] } = means;
    assert.deepEqual({ code: e.code, op: e.op, key: e.key, reason: e.reason }, { code, op, key, reason });
    assert.deepEqual(e.holders, holders);
    assert.deepEqual(
      e.cycle.map((w) => `${w.who} waits for ${w.key}`),
      cycle,
    );
    return;
  }
  if (means.holds !== undefined) {
    const { keys, tokens } = decodeHolds(body);
    assert.deepEqual(Object.fromEntries(keys.map((key, i) => [key, tokens[i]])), means.holds);
  }
  if (means.ttl !== undefined) assert.deepEqual(plainGrant(body), { ...means, kind: undefined, n: undefined });
  if (kind === "ok" && means.keys !== undefined) assert.deepEqual(listing(body), listing(means));
  if (means.leases !== undefined) {
    assert.deepEqual(
      decodeLeases(body, 0).map((g) => ({
        detached: g.detached,
        holds: Object.fromEntries(g.keys.map((key, i) => [key, g.tokens[i]])),
        id: g.id,
        ...(g.remaining === Number.POSITIVE_INFINITY ? {} : { remaining: g.remaining }),
        ttl: g.ttl === Number.POSITIVE_INFINITY ? -1 : g.ttl,
        waited: g.waited,
      })),
      means.leases,
    );
  }
  if (kind === "queued") assert.deepEqual(objects(body, "ahead").map(decodeHolder), means.holders ?? []);
  for (const name of ["id", "session", "fence", "position", "more", "event", "mode", "max", "by", "label"]) {
    if (means[name] !== undefined) assert.deepEqual(body[name], means[name], name);
  }
  if (means.grace !== undefined) assert.equal(body.grace, Math.max(means.grace, 0));
  if (kind === "lost") assert.equal(body.lost, means.code);
}

function plainGrant(body: JsonObject): Record<string, unknown> {
  const g = decodeGrant(body);
  return {
    elapsed: g.elapsed,
    holds: Object.fromEntries(g.keys.map((key, i) => [key, g.tokens[i]])),
    id: g.id,
    kind: undefined,
    n: undefined,
    ...(g.remaining === Number.POSITIVE_INFINITY ? {} : { remaining: g.remaining }),
    ttl: g.ttl === Number.POSITIVE_INFINITY ? -1 : g.ttl,
    waited: g.waited,
    ...(g.detached ? { detached: true } : {}),
  };
}

function listing(o: JsonObject): unknown {
  return objects(o, "keys").map(decodeKeyState);
}

test("requests.json", () => {
  for (const c of cases("requests.json")) {
    if (c.loose === true) {
      left++; // other spellings, which servers read and clients do not write
      continue;
    }
    play("requests.json", c, () => {
      const { n, do: op, keys, ttl, grace, ...rest } = c.means as Means;
      const fields: Fields = { ...rest };
      if (keys?.length === 1) fields.key = keys[0];
      else if (keys !== undefined) fields.keys = keys;
      if (ttl === -1) fields.forever = true;
      else if (ttl !== undefined) fields.ttl = ttl;
      if (grace !== undefined) fields.grace = Math.max(grace, 0);
      checkRequest(op as Op, fields);
      assert.equal(encodeRequest(n, op as Op, fields), `${c.line}\n`);
    });
  }
});

test("refused.json: none of it is ever sent", () => {
  for (const c of cases("refused.json")) {
    let frame: Fields;
    try {
      frame = JSON.parse(c.line ?? "") as Fields;
    } catch {
      left++; // no object of this language is written like that
      continue;
    }
    // The client counts n itself, has no field twice, and writes numbers without exponent.
    if (c.n === undefined || /twice|exponent/.test(c.name) === true) {
      if (c.name !== "the same key twice") {
        left++;
        continue;
      }
    }
    play("refused.json", c, () => {
      const { n: _, do: op, ...fields } = frame;
      assert.throws(
        () => checkRequest(op as Op, fields),
        (e) => e instanceof LatchkeyError && e.code === "refused",
      );
    });
  }
});

test("streams.json", () => {
  for (const c of cases("streams.json")) {
    play("streams.json", c, () => {
      const splitter = new LineSplitter(c.limit as number);
      const lines: string[] = [];
      let error = "";
      try {
        for (let i = 0; i < ((c.repeat as number | undefined) ?? 1); i++) {
          for (const chunk of c.chunks as string[]) {
            splitter.push(Buffer.from(chunk, "base64"), (line) => lines.push(line.toString("base64")));
          }
        }
      } catch (e) {
        assert.ok(e instanceof LatchkeyError && e.code === "protocol");
        error = e.message;
      }
      assert.deepEqual(lines, c.lines);
      assert.equal(error.includes("too long"), c.error === "too long", error);
    });
  }
});

test("deadlines.json", () => {
  for (const c of cases("deadlines.json")) {
    play("deadlines.json", c, () => {
      const grant = decodeGrant(decodeReply(bytes(c)).body);
      const session = sessionDeadline((c.ping_sent as number | undefined) ?? 0, (c.grace as number | undefined) ?? 0);
      const until = safeUntil(leaseDeadline(c.sent as number, grant), session, grant.detached);
      assert.equal(until === Number.POSITIVE_INFINITY ? null : until, c.safe_until);
    });
  }
});

test("codes.json", () => {
  for (const c of cases("codes.json")) {
    play("codes.json", c, () => {
      const error = makeError(c.code as string);
      assert.equal(error.kind, c.kind);
      assert.equal(error.code, c.code);
      if (c.code !== "internal") assert.ok(!(error instanceof InternalError), "each code has a type");
    });
  }
  const unknown = makeError("preempted");
  assert.ok(unknown instanceof InternalError);
  assert.equal(unknown.code, "preempted");
});

test("how many", (t) => {
  t.diagnostic(`vectors: ${played} cases played, ${left} that only a server can play left out`);
  assert.ok(played > 150, `only ${played} cases were played`);
});
