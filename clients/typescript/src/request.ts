/** What clients send, and what they never send. */

import type { LatchkeyError } from "./errors.js";
import { refuse } from "./errors.js";
import {
  MAX_DECLARED,
  MAX_HOLDERS,
  MAX_HOUR,
  MAX_ID_BYTES,
  MAX_KEY_BYTES,
  MAX_KEYS,
  MAX_LABEL_BYTES,
  MAX_LISTED,
  MAX_REQUEST_BYTES,
  MAX_TTL,
} from "./limits.js";

/** Operations of the protocol. */
export type Op =
  | "open"
  | "acquire"
  | "renew"
  | "release"
  | "detach"
  | "cancel"
  | "ping"
  | "close"
  | "list"
  | "watch"
  | "unwatch"
  | "force"
  | "stats";

/** The fields of a request, named and ordered as on the wire; `n` and `do` come first. */
export type Fields = { [name: string]: unknown };

/** The order is that of the vectors, so that frames are the same from every client. */
const fieldsOf: { readonly [op in Op]: readonly string[] } = {
  open: ["name", "host", "pid", "grace", "resume"],
  acquire: [
    "id",
    "key",
    "keys",
    "mode",
    "max",
    "ttl",
    "forever",
    "try",
    "wait",
    "waited",
    "prefer_readers",
    "max_hold",
    "lock_delay",
    "detach",
    "label",
    "declared",
  ],
  renew: ["id", "key", "token", "ttl", "forever"],
  release: ["id", "key", "token"],
  detach: ["id", "token"],
  cancel: ["id"],
  ping: [],
  close: [],
  list: ["key", "prefix", "after", "limit", "contended", "brief"],
  watch: ["key", "prefix"],
  unwatch: ["watch"],
  force: ["key", "token", "by", "reason"],
  stats: [],
};

/** Encodes a request that was checked. */
export function encodeRequest(n: number, op: Op, fields: Fields): string {
  const frame: Fields = { n, do: op };
  for (const name of fieldsOf[op]) {
    const value = fields[name];
    if (value !== undefined && value !== false && !(name === "mode" && value === "exclusive")) frame[name] = value;
  }
  return `${JSON.stringify(frame)}\n`;
}

/** Refuses what a server would refuse, or close the connection for: one bad frame must not cost all. */
export function checkRequest(op: Op, f: Fields): void {
  const known = fieldsOf[op];
  if (known === undefined) throw refuse(`${JSON.stringify(op)} is not an operation`);
  for (const name of Object.keys(f)) {
    if (f[name] !== undefined && !known.includes(name)) throw refuse(`unknown field "${name}" for ${op}`, { op });
  }
  try {
    checks[op]?.(f);
  } catch (error) {
    throw Object.assign(error as LatchkeyError, { op });
  }
}

const checks: { readonly [op in Op]?: (f: Fields) => void } = {
  open(f) {
    text(f, "name", MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "host", MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "resume", MAX_ID_BYTES, "MaxIDLength");
    if (f.resume === "") throw refuse("resume is empty");
    number(f, "pid", 0, Number.MAX_SAFE_INTEGER);
    number(f, "grace", 0, MAX_HOUR, "MaxGrace");
  },
  acquire: checkAcquire,
  renew(f) {
    checkHold(f);
    checkTtl(f);
  },
  release: checkHold,
  detach: checkHold,
  cancel(f) {
    text(f, "id", MAX_ID_BYTES, "MaxIDLength");
    if (!f.id) throw refuse("id is missing: cancel needs the id of the request");
  },
  list(f) {
    checkSelection(f);
    text(f, "after", MAX_KEY_BYTES, "MaxKeyLength");
    number(f, "limit", 1, MAX_LISTED, "MaxListed");
    boolean(f, "contended");
    boolean(f, "brief");
  },
  watch: checkSelection,
  unwatch(f) {
    if (f.watch === undefined) throw refuse("watch is missing");
    number(f, "watch", 1, Number.MAX_SAFE_INTEGER);
  },
  force(f) {
    if (f.key === undefined) throw refuse("key is missing");
    key(f.key);
    number(f, "token", 1, Number.MAX_SAFE_INTEGER);
    text(f, "by", MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "reason", MAX_LABEL_BYTES, "MaxLabelLength");
  },
};

function checkAcquire(f: Fields): void {
  if (f.key !== undefined) {
    if (f.keys !== undefined) throw refuse("key and keys exclude each other");
    key(f.key);
  } else if (f.keys !== undefined) {
    checkKeys(f.keys);
  } else {
    throw refuse("key is missing");
  }
  text(f, "id", MAX_ID_BYTES, "MaxIDLength");
  if (f.id === "") throw refuse("id is empty: leave it out for a random one");
  const mode = f.mode ?? "exclusive";
  if (mode !== "exclusive" && mode !== "shared" && mode !== "counted") {
    throw refuse(`mode must be exclusive, shared or counted, got ${JSON.stringify(mode)}`);
  }
  if (mode === "counted" && f.max === undefined) throw refuse("max must be a positive integer, and is missing");
  if (mode !== "counted" && f.max !== undefined) throw refuse("max: only a counted request has one");
  number(f, "max", 1, MAX_HOLDERS, "MaxHolders");
  checkTtl(f);
  for (const name of ["try", "prefer_readers", "detach"]) boolean(f, name);
  number(f, "wait", 1, MAX_TTL, "MaxWait", "leave it out to wait without bound, or use try");
  if (f.try && f.wait !== undefined) throw refuse("a try does not wait: leave out wait");
  number(f, "waited", 0, Number.MAX_SAFE_INTEGER);
  if (f.prefer_readers && mode !== "shared") throw refuse("prefer_readers: only a shared request has it");
  number(f, "max_hold", 1, MAX_TTL, "MaxTTL");
  number(f, "lock_delay", 0, MAX_HOUR, "MaxLockDelay");
  text(f, "label", MAX_LABEL_BYTES, "MaxLabelLength");
  if (f.declared !== undefined) checkDeclared(f.declared);
}

function checkKeys(keys: unknown): void {
  if (!Array.isArray(keys)) throw refuse("keys must be an array of strings");
  if (keys.length === 0) throw refuse("keys is empty: at least one key is needed");
  if (keys.length > MAX_KEYS) throw refuse(`${keys.length} keys, at most ${MAX_KEYS} are allowed (MaxKeys)`);
  const seen = new Set<unknown>();
  for (const k of keys) {
    key(k);
    if (seen.has(k)) throw refuse(`key ${JSON.stringify(k)} appears twice`);
    seen.add(k);
  }
}

function checkDeclared(ids: unknown): void {
  if (!Array.isArray(ids)) throw refuse("declared must be an array of ids");
  if (ids.length > MAX_DECLARED) throw refuse(`${ids.length} declared, at most ${MAX_DECLARED} (MaxDeclared)`);
  for (const id of ids) {
    if (typeof id !== "string" || id === "") throw refuse("declared must be ids of holds, none empty");
    bytes("a declared id", id, MAX_ID_BYTES, "MaxIDLength");
  }
}

function checkTtl(f: Fields): void {
  boolean(f, "forever");
  if (f.forever && f.ttl !== undefined) throw refuse("ttl and forever exclude each other");
  number(f, "ttl", 1, MAX_TTL, "MaxTTL", "for a hold without end use forever");
}

function checkHold(f: Fields): void {
  if (f.id !== undefined && f.token !== undefined) throw refuse("id and token exclude each other");
  if (f.id === undefined && f.token === undefined) throw refuse("id is missing, and there is no token");
  text(f, "id", MAX_ID_BYTES, "MaxIDLength");
  if (f.id === "") throw refuse("id is empty");
  number(f, "token", 1, Number.MAX_SAFE_INTEGER);
  if (f.key !== undefined) key(f.key);
}

function checkSelection(f: Fields): void {
  if (f.key !== undefined && f.prefix !== undefined) throw refuse("key and prefix exclude each other");
  if (f.key !== undefined) key(f.key);
  text(f, "prefix", MAX_KEY_BYTES, "MaxKeyLength");
}

function key(value: unknown): void {
  if (typeof value !== "string") throw refuse(`key must be a string, got ${typeof value}`);
  if (value === "") throw refuse("key is empty");
  bytes("key", value, MAX_KEY_BYTES, "MaxKeyLength");
}

function text(f: Fields, name: string, limit: number, limitName: string): void {
  const value = f[name];
  if (value === undefined) return;
  if (typeof value !== "string") throw refuse(`${name} must be a string, got ${typeof value}`);
  bytes(name, value, limit, limitName);
}

function bytes(name: string, value: string, limit: number, limitName: string): void {
  // At most three bytes a unit, so that short ones need not be measured.
  if (value.length * 3 > limit) {
    const size = Buffer.byteLength(value);
    if (size > limit) throw refuse(`${name} is ${size} bytes, at most ${limit} are allowed (${limitName})`);
  }
  if (/\p{Surrogate}/u.test(value)) throw refuse(`${name} has half of a surrogate pair`);
}

function number(f: Fields, name: string, least: number, most: number, limitName = "", hint = ""): void {
  const value = f[name];
  if (value === undefined) return;
  if (typeof value !== "number" || !Number.isSafeInteger(value)) {
    throw refuse(`${name} must be an integer, got ${JSON.stringify(value)}`);
  }
  const tail = hint === "" ? "" : `; ${hint}`;
  if (value < least) throw refuse(`${name} is ${value}, it must be at least ${least}${tail}`);
  if (value > most) {
    throw refuse(`${name} is ${value}, at most ${most} is allowed${limitName && ` (${limitName})`}${tail}`);
  }
}

function boolean(f: Fields, name: string): void {
  const value = f[name];
  if (value !== undefined && typeof value !== "boolean") throw refuse(`${name} must be true or false`);
}

/** Refuses a frame that a server would close the connection for. */
export function checkFrame(frame: string, op: Op, limit = MAX_REQUEST_BYTES): void {
  if (frame.length * 3 > limit && Buffer.byteLength(frame) - 1 > limit) {
    throw refuse(`the request is more than ${limit} bytes as a frame (MaxFrame)`, { op });
  }
}
