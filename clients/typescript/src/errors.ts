/**
 * Errors. Every error of this package is a {@link LatchkeyError}; each code of the protocol has a
 * class of its own, below the class of its kind.
 */

/** Who holds a key, as the broker tells it. Durations are milliseconds. */
export interface Holder {
  /** Name of the session. */
  readonly session?: string;
  readonly host?: string;
  readonly pid?: number;
  readonly label?: string;
  readonly mode: "exclusive" | "shared" | "counted";
  readonly max?: number;
  /** Fencing token; absent when the broker sent none that is a safe integer. */
  readonly token?: number;
  /** How long it has been held. */
  readonly since?: number;
  /** Time to live; absent for a hold without end. */
  readonly ttl?: number;
  readonly forever?: boolean;
  /** What is left of it; absent for a hold without end. */
  readonly remaining?: number;
  readonly detached?: boolean;
  /** Its session has no connection just now. */
  readonly broken?: boolean;
}

/** One edge of a deadlock: `who` holds something and waits for `key`. The last waits for the first. */
export interface CycleEntry {
  readonly who: string;
  readonly key: string;
}

/** What an error is about. */
export type ErrorKind = "outcome" | "mistake" | "loss" | "retry" | "unknown" | "defect";

/** What there is to say about an error besides its code. */
export interface ErrorDetails {
  op?: string | undefined;
  key?: string | undefined;
  reason?: string | undefined;
  holders?: readonly Holder[] | undefined;
  cycle?: readonly CycleEntry[] | undefined;
  cause?: unknown;
}

/** Base of all errors of this package. */
export abstract class LatchkeyError extends Error {
  /** What the code is about: an outcome, a loss, something worth another try … */
  abstract readonly kind: ErrorKind;
  /** The stable name of what happened, for programs. */
  readonly code: string;
  /** What was attempted: acquire, renew, release, hold … */
  readonly op: string | undefined;
  /** The key that it is about, when there is one. */
  readonly key: string | undefined;
  /** For people: what is wrong and what to do. It is not stable. */
  readonly reason: string | undefined;
  /** Who is in the way, for `busy` and `timeout`; at most eight. */
  readonly holders: readonly Holder[];
  /** Who waits for whom, for `deadlock`. */
  readonly cycle: readonly CycleEntry[];

  constructor(code: string, details: ErrorDetails = {}) {
    super(render(code, details), details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.op = details.op;
    this.key = details.key;
    this.reason = details.reason;
    this.holders = details.holders ?? [];
    this.cycle = details.cycle ?? [];
  }
}

function render(code: string, d: ErrorDetails): string {
  const subject = [d.op, d.key === undefined ? undefined : JSON.stringify(d.key)];
  const head = subject.filter((part) => part !== undefined).join(" ");
  let text = head === "" ? "" : `${head}: `;
  text += code.replaceAll("_", " ");
  if (d.reason) text += `: ${d.reason}`;
  if (d.holders?.length) text += `: held by ${d.holders.map(renderHolder).join("; ")}`;
  const [alone, other] = d.cycle ?? [];
  if (alone && !other) text += `: you already hold this key: ${JSON.stringify(alone.key)}, as ${alone.who}`;
  else if (d.cycle?.length) {
    text += `: ${d.cycle.map((w) => `${w.who} waits for ${JSON.stringify(w.key)}`).join(", ")}`;
  }
  return text;
}

function renderHolder(h: Holder): string {
  let who = h.session || "an unnamed session";
  if (h.label) who += ` (${h.label})`;
  if (h.host) who += ` on ${h.host}`;
  if (h.pid) who += ` pid ${h.pid}`;
  if (h.since) who += ` for ${h.since} ms`;
  return h.remaining === undefined ? `${who}, never expires` : `${who}, ${h.remaining} ms left`;
}

/** How a request ended without a lease, or that there is no such hold. */
export class OutcomeError extends LatchkeyError {
  readonly kind = "outcome";
}
/** The request, or the peer, breaks a rule. Repeating it unchanged does not help. */
export class MistakeError extends LatchkeyError {
  readonly kind = "mistake";
}
/** A hold was lost. Whoever has it must stop. */
export class LossError extends LatchkeyError {
  readonly kind = "loss";
}
/** Nothing was changed; the same may succeed later. */
export class RetryError extends LatchkeyError {
  readonly kind = "retry";
}
/** What happened cannot be known. */
export class UnknownError extends LatchkeyError {
  readonly kind = "unknown";
}
/** A defect of the broker, or a code that this client does not know. */
export class DefectError extends LatchkeyError {
  readonly kind = "defect";
}

/** `busy`: a try found a holder, a lock-delay, or someone queued ahead. */
export class BusyError extends OutcomeError {}
/** `timeout`: the request's own bound on waiting passed. Nothing is held. */
export class TimeoutError extends OutcomeError {}
/** `cancelled`: the request was taken back. Nothing is held or queued. */
export class CancelledError extends OutcomeError {}
/** `deadlock`: the request waits for itself through declared holds; see `cycle`. Nothing is queued. */
export class DeadlockError extends OutcomeError {}
/** `not_held`: there is no such hold, or not any more. */
export class NotHeldError extends OutcomeError {}
/** `refused`: the request breaks a rule or a limit, named in `reason`. */
export class RefusedError extends MistakeError {}
/** `over`: the request with this id has ended; use a new id. */
export class OverError extends MistakeError {}
/** `protocol`: the peer sent what the protocol does not allow. */
export class ProtocolError extends MistakeError {}
/** `expired`: the ttl or the longest hold ran out, or this process stood still. */
export class ExpiredError extends LossError {}
/** `forced`: an administrator took the hold. */
export class ForcedError extends LossError {}
/** `session_lost`: the broker ended the session, and its holds with it. */
export class SessionLostError extends LossError {}
/** `service_gone`: nothing was confirmed by the broker up to this client's own deadline. */
export class ServiceGoneError extends LossError {}
/** `not_held` while it was held: another session released the hold by its id. */
export class HoldReleasedError extends LossError {}
/** `closed` while it was held: the client of the hold was closed. */
export class HoldClosedError extends LossError {}
/** `unavailable`: the broker cannot serve this now, or cannot be reached. */
export class UnavailableError extends RetryError {}
/** `closed`: the client was closed, or the broker shuts down. */
export class ClosedError extends RetryError {}
/** `unknown`: the lease may be held until its ttl. */
export class UnknownOutcomeError extends UnknownError {}
/** `internal`, and every code that this client does not know: `code` keeps its name. */
export class InternalError extends DefectError {}

/**
 * The broker granted the lease, but its fencing token is absent or no safe integer. It is thrown by
 * reading the token, so that no made-up number ever reaches the protected resource.
 */
export class FencingUnknown extends UnknownError {
  constructor(key: string) {
    super("fencing_unknown", {
      op: "token",
      key,
      reason: "the broker sent no token that can be represented; do not write what needs fencing",
    });
  }
}

type ErrorClass = new (code: string, details?: ErrorDetails) => LatchkeyError;

const classes: ReadonlyMap<string, ErrorClass> = new Map<string, ErrorClass>([
  ["busy", BusyError],
  ["timeout", TimeoutError],
  ["cancelled", CancelledError],
  ["refused", RefusedError],
  ["deadlock", DeadlockError],
  ["unknown", UnknownOutcomeError],
  ["over", OverError],
  ["not_held", NotHeldError],
  ["expired", ExpiredError],
  ["forced", ForcedError],
  ["session_lost", SessionLostError],
  ["service_gone", ServiceGoneError],
  ["unavailable", UnavailableError],
  ["closed", ClosedError],
  ["protocol", ProtocolError],
  ["internal", InternalError],
]);

/** Makes the error of a code; one that is not known becomes an {@link InternalError} of that name. */
export function makeError(code: string, details: ErrorDetails = {}): LatchkeyError {
  return new (classes.get(code) ?? InternalError)(code, details);
}

type LossClass = new (code: string, details?: ErrorDetails) => LossError;

const losses: ReadonlyMap<string, LossClass> = new Map<string, LossClass>([
  ["not_held", HoldReleasedError],
  ["expired", ExpiredError],
  ["forced", ForcedError],
  ["session_lost", SessionLostError],
  ["service_gone", ServiceGoneError],
  ["closed", HoldClosedError],
]);

/** Makes the error of the end of a hold: a {@link LossError}, whatever its code. */
export function makeLoss(code: string, details: ErrorDetails = {}): LossError {
  return new (losses.get(code) ?? LossError)(code, details);
}

/** Makes a {@link RefusedError}. */
export function refuse(reason: string, details: ErrorDetails = {}): LatchkeyError {
  return new RefusedError("refused", { ...details, reason });
}

/** The code of an error of this package, and undefined for any other value. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof LatchkeyError ? error.code : undefined;
}

/** The error that ended an attempt, with who attempted it filled in. */
export function describe(error: LatchkeyError, op: string, key?: string): LatchkeyError {
  if (error.op !== undefined) return error;
  return makeError(error.code, {
    op,
    key: error.key ?? key,
    reason: error.reason,
    holders: error.holders,
    cycle: error.cycle,
    cause: error.cause,
  });
}
