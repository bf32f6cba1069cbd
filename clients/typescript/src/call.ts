/** Requests on their way. */

import { type LatchkeyError, makeError } from "./errors.js";
import type { Answer, Hold } from "./hold.js";
import type { Queued } from "./options.js";
import type { Fields, Op } from "./request.js";
import type { WatchEvent } from "./watch.js";
import { type JsonObject, text, token, whole } from "./wire.js";

/** What a caller wants to be told about its request. */
export interface AcquireHooks {
  readonly renew: boolean;
  readonly signal: AbortSignal | undefined;
  readonly onQueued: ((queued: Queued) => void) | undefined;
  readonly onTroubled: ((hold: Hold, error: LatchkeyError) => void) | undefined;
}

/** One request, from when it is made to its answer. It keeps its `n` on every connection. */
export interface Call {
  readonly n: number;
  readonly op: Op;
  readonly fields: Fields;
  readonly start: number;
  /** When it was last sent; undefined while the broker has certainly not seen it. */
  sent: number | undefined;
  /** It was sent on an earlier connection, so that it may have been carried out. */
  again: boolean;
  /** `queued` was told. */
  told: boolean;
  /** Connections that ended in a breach of the protocol while it was on them. */
  fouls: number;
  /** Nobody waits for it; the session sent it. */
  readonly ours: boolean;
  /** The caller gave up; its cancel is on the way. */
  abandoned: boolean;
  readonly hold: Hold | undefined;
  readonly hooks: AcquireHooks | undefined;
  readonly resolve: (answer: Answer, hold?: Hold) => void;
  readonly reject: (error: LatchkeyError) => void;
}

/** Whether a call may wait for its turn, and so for a broker that is away. */
export function waits(call: Call): boolean {
  return call.op === "acquire" && !call.fields.try;
}

/** Whether a failure says that the first sending had done it. */
export function isDone(call: Call, error: LatchkeyError): boolean {
  if (error.code !== "not_held" && error.code !== "over") return false;
  if (call.op === "cancel") return true;
  return call.op === "release" && call.again && (call.hold === undefined || call.hold.lost === undefined);
}

/** The first key of a request, for errors. */
export function keyOf(call: { readonly fields: Fields }): string {
  return (call.fields.key ?? (call.fields.keys as string[])[0]) as string;
}

export function decodeEvent(body: JsonObject): WatchEvent {
  const out: Record<string, unknown> = { event: body.event };
  for (const name of ["key", "session", "host", "label", "mode", "code"]) {
    if (body[name] !== undefined) out[name] = text(body, name);
  }
  for (const name of ["pid", "max", "after"]) if (body[name] !== undefined) out[name] = whole(body, name);
  const t = token(body.token);
  if (t !== undefined) out.token = t;
  return out as unknown as WatchEvent;
}

export function cancelled(key: string, cause: unknown): LatchkeyError {
  return makeError("cancelled", { op: "acquire", key, reason: "the caller gave up; nothing is held or queued", cause });
}

export function closedError(op: string): LatchkeyError {
  return makeError("closed", { op, reason: "the client was closed" });
}
