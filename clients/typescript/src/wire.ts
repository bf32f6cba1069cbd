/** Frames: lines cut from a stream, what servers send, and what clients send. */

import { isUtf8 } from "node:buffer";
import type { Grant } from "./deadlines.js";
import type { CycleEntry, Holder, LatchkeyError } from "./errors.js";
import { makeError, ProtocolError } from "./errors.js";

/** A breach of the protocol by the peer. */
export function breach(reason: string): LatchkeyError {
  return new ProtocolError("protocol", { reason });
}

const NEWLINE = 0x0a;

/**
 * Cuts a stream of bytes into lines. What is left of an unfinished line is kept, up to the limit.
 */
export class LineSplitter {
  readonly #limit: number;
  #parts: Buffer[] = [];
  #kept = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Calls `take` for each line that is complete now; throws when one is longer than the limit. */
  push(chunk: Buffer, take: (line: Buffer) => void): void {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      let line = chunk.subarray(start, end);
      if (this.#kept > 0) {
        this.#parts.push(line);
        line = Buffer.concat(this.#parts);
        this.#parts = [];
        this.#kept = 0;
      }
      if (line.length > this.#limit) throw this.#tooLong();
      start = end + 1;
      take(line);
    }
    if (start < chunk.length) {
      this.#kept += chunk.length - start;
      if (this.#kept > this.#limit) throw this.#tooLong();
      this.#parts.push(chunk.subarray(start));
      if (this.#parts.length >= 1024) this.#parts = [Buffer.concat(this.#parts)];
    }
  }

  #tooLong(): LatchkeyError {
    this.#parts = [];
    this.#kept = 0;
    return breach(`the broker sent a line that is too long: over ${this.#limit} bytes`);
  }
}

/** Any JSON object. */
export type JsonObject = { readonly [name: string]: unknown };

/** Decodes one line as a JSON object. */
export function decodeObject(line: Buffer): JsonObject {
  const text = line.toString("utf8");
  if (text.includes("\ufffd") && !isUtf8(line)) throw breach("a line is not valid UTF-8");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw breach(`not JSON; each line must be a JSON object, got ${excerpt(text)}`);
  }
  if (!isObject(value)) throw breach(`each line must be a JSON object, got ${excerpt(text)}`);
  return value;
}

function excerpt(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a server says of itself in its first line. */
export interface Hello {
  readonly version: number;
  readonly features: readonly string[];
  /** Product and version, for people. */
  readonly server: string;
  /** `memory`, or how what is acknowledged survives a crash. */
  readonly durability: string;
  /** `journal`: tokens rise for ever; `clock`: as long as the broker's clock is not set back. */
  readonly fencing: string;
}

/** Decodes a server's first line. Throws what the server answered instead, or a breach. */
export function decodeHello(line: Buffer): Hello {
  const o = decodeObject(line);
  if (o.ok === false) {
    throw makeError(text(o, "code") || "internal", { reason: text(o, "reason"), op: "connect" });
  }
  const version = o.latchkey;
  if (version === undefined) throw breach("what answers is no broker: its first line has no latchkey");
  if (version !== 1) throw breach(`the broker speaks version ${JSON.stringify(version)}, this client version 1`);
  const features = o.features ?? [];
  if (!Array.isArray(features) || features.some((f) => typeof f !== "string")) {
    throw breach("features must be an array of strings");
  }
  return {
    version,
    features: features as string[],
    server: text(o, "server"),
    durability: text(o, "durability"),
    fencing: text(o, "fencing"),
  };
}

/** The line that a client begins with. */
export const HELLO = '{"latchkey":1,"features":[]}\n';

/** What a frame of a server is. */
export type ReplyKind = "ok" | "failed" | "queued" | "part" | "event" | "lost";

/** A frame of a server whose kind and number are checked; the rest is read by who knows what it asked for. */
export interface Reply {
  readonly kind: ReplyKind;
  /** The request that it is about; 0 when it is about the connection. */
  readonly n: number;
  readonly body: JsonObject;
}

/** Decodes any frame of a server after the first. */
export function decodeReply(line: Buffer): Reply {
  const body = decodeObject(line);
  const n = body.n === undefined ? 0 : body.n;
  if (typeof n !== "number" || !Number.isSafeInteger(n) || n < 0 || (n === 0 && body.n !== undefined)) {
    throw breach(`n must be an integer from 1, got ${JSON.stringify(body.n)}`);
  }
  if (body.ok === true) {
    if (n === 0) throw breach("an answer has no n");
    return { kind: "ok", n, body };
  }
  if (body.ok === false) {
    if (typeof body.code !== "string" || body.code === "") throw breach("a failure has no code");
    return { kind: "failed", n, body };
  }
  if (body.ok !== undefined) throw breach("ok must be true or false");
  if (n === 0) {
    if (typeof body.lost === "string" && body.lost !== "") return { kind: "lost", n, body };
    throw breach("a frame has neither n nor lost nor ok");
  }
  if (body.queued === true) return { kind: "queued", n, body };
  if (typeof body.event === "string" && body.event !== "") return { kind: "event", n, body };
  if (body.leases !== undefined) return { kind: "part", n, body };
  throw breach("a frame is neither an answer nor a notice");
}

/** A text field; absent is empty. */
export function text(o: JsonObject, name: string): string {
  const value = o[name];
  if (value === undefined) return "";
  if (typeof value !== "string") throw breach(`${name} must be a string`);
  return value;
}

/** A field that is a whole number of at least 0; absent is undefined. */
export function whole(o: JsonObject, name: string): number | undefined {
  const value = o[name];
  if (value === undefined) return undefined;
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw breach(`${name} must be an integer from 0 and below 2^53`);
  }
  return value;
}

function flag(o: JsonObject, name: string): boolean {
  const value = o[name];
  if (value === undefined) return false;
  if (typeof value !== "boolean") throw breach(`${name} must be true or false`);
  return value;
}

/** A token as it came: anything but an integer between 0 and 2^53 is unknown. */
export function token(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value > 0 ? value : undefined;
}

/** Keys and tokens of an answer, whether it has one key or several. */
export function decodeHolds(o: JsonObject): { keys: readonly string[]; tokens: readonly (number | undefined)[] } {
  if (o.keys === undefined) {
    return o.key === undefined ? { keys: [], tokens: [] } : { keys: [text(o, "key")], tokens: [token(o.token)] };
  }
  const keys = o.keys;
  if (!Array.isArray(keys) || keys.some((k) => typeof k !== "string")) throw breach("keys must be an array of strings");
  const tokens: unknown[] = Array.isArray(o.tokens) ? o.tokens : [];
  return { keys: keys as string[], tokens: keys.map((_, i) => token(tokens[i])) };
}

/** Decodes what is held: the answer to an acquire, renew or detach, or an entry of `leases`. */
export function decodeGrant(o: JsonObject, elapsed?: number): Grant {
  const { keys, tokens } = decodeHolds(o);
  if (keys.length === 0) throw breach("a grant names no key");
  const forever = flag(o, "forever");
  const ttl = whole(o, "ttl");
  const remaining = whole(o, "remaining");
  // A missing end must not be taken for no end.
  if (!forever && (ttl === undefined || remaining === undefined)) throw breach("a grant has no ttl or no remaining");
  return {
    id: text(o, "id"),
    keys,
    tokens,
    ttl: forever || ttl === undefined ? Number.POSITIVE_INFINITY : ttl,
    elapsed: elapsed ?? whole(o, "elapsed") ?? 0,
    remaining: remaining ?? Number.POSITIVE_INFINITY,
    waited: whole(o, "waited") ?? 0,
    detached: flag(o, "detached"),
  };
}

/** Decodes the leases of a resumed session; `elapsed` is that of the answer. */
export function decodeLeases(o: JsonObject, elapsed: number): Grant[] {
  if (o.leases === undefined) return [];
  return objects(o, "leases").map((entry) => decodeGrant(entry, elapsed));
}

/** A field that is an array of objects; absent is empty. */
export function objects(o: JsonObject, name: string): JsonObject[] {
  const value = o[name];
  if (value === undefined) return [];
  if (!Array.isArray(value) || !value.every(isObject)) throw breach(`${name} must be an array of objects`);
  return value;
}

/** Decodes a holder, as in `ahead`, `holders` and events. */
export function decodeHolder(o: JsonObject): Holder {
  const out: Record<string, unknown> = {};
  for (const name of ["session", "host", "label"]) if (o[name] !== undefined) out[name] = text(o, name);
  const mode = text(o, "mode");
  out.mode = mode === "shared" || mode === "counted" ? mode : "exclusive";
  for (const name of ["pid", "max", "since", "ttl", "remaining"]) if (o[name] !== undefined) out[name] = whole(o, name);
  for (const name of ["forever", "detached", "broken"]) if (o[name] !== undefined) out[name] = flag(o, name);
  const t = token(o.token);
  if (t !== undefined) out.token = t;
  return out as unknown as Holder;
}

/** Makes the error of a failure frame. */
export function decodeFailure(o: JsonObject): LatchkeyError {
  const cycle: CycleEntry[] = objects(o, "cycle").map((w) => ({ who: text(w, "who"), key: text(w, "key") }));
  return makeError(text(o, "code"), {
    op: text(o, "op") || undefined,
    key: text(o, "key") || undefined,
    reason: text(o, "reason") || undefined,
    holders: objects(o, "holders").map(decodeHolder),
    cycle,
  });
}
