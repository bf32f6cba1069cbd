/// <reference lib="esnext.disposable" preserve="true" />

import { setMaxListeners } from "node:events";
import { Alarm, type Clock } from "./clock.js";
import { type Grant, leaseDeadline, safeUntil } from "./deadlines.js";
import {
  codeOf,
  FencingUnknown,
  type LatchkeyError,
  type LossError,
  makeError,
  makeLoss,
  refuse,
  UnavailableError,
} from "./errors.js";
import { DEFAULT_TTL, MIN_TTL, RELEASE_WAIT } from "./limits.js";
import type { Fields, Op } from "./request.js";
import { decodeGrant, type JsonObject } from "./wire.js";

/** @internal An answer, and when the request that it is for was sent. */
export interface Answer {
  readonly body: JsonObject;
  readonly sent: number;
}

/** @internal What a hold needs of the session that it belongs to. */
export interface HoldHost {
  readonly clock: Clock;
  /** The deadline of the session. */
  readonly until: number;
  command(op: Op, fields: Fields, hold?: Hold): Promise<Answer>;
  /** The hold has ended on this side. */
  forget(hold: Hold): void;
  troubled(hold: Hold, error: LatchkeyError): void;
  /** A release at the end of a scope failed or took too long. */
  unconfirmed(hold: Hold, error: unknown): void;
}

type Phase = "held" | "lost" | "released";

/** A time to live in milliseconds, or `"forever"`: until it is released or its session ends. */
export type Ttl = number | "forever";

/** @internal The fields of a ttl; the default is spelled out, so that sending again means the same. */
export function ttlFields(ttl: Ttl | undefined): Fields {
  if (ttl === "forever") return { forever: true };
  if (typeof ttl === "number" && ttl > 0 && ttl < MIN_TTL) {
    throw refuse(`ttl is ${ttl} ms, under ${MIN_TTL}: the safety margin and a scheduling delay would use it up`);
  }
  return { ttl: ttl ?? DEFAULT_TTL };
}

/**
 * A lease that is held. It is renewed each third of its ttl unless asked otherwise, and watched:
 * {@link Hold.signal} aborts before another holder can be granted the key.
 *
 * The loss of one key of several is the loss of the whole hold; `release` gives back the others.
 */
export class Hold implements AsyncDisposable {
  /** The keys, sorted by the broker when there are several. */
  readonly keys: readonly string[];
  /** How long the request waited in the queue, in milliseconds. */
  readonly waited: number;

  readonly #id: string; // not a field of its own, which console.log would show
  readonly #host: HoldHost;
  readonly #tokens: readonly (number | undefined)[];
  readonly #renews: boolean;
  readonly #alarm: Alarm;
  #phase: Phase = "held";
  #cause: LossError | undefined;
  #controller: AbortController | undefined;
  #until = 0; // of the lease, or what was safe when it was lost
  #ttl = 0;
  #detached = false;
  #renewAt = Number.POSITIVE_INFINITY;
  #sentAt: number | undefined; // of the renewal in flight
  #overdue = false;
  #failures = 0;
  #trouble: LatchkeyError | undefined;
  #given = false;
  #releasing: Promise<void> | undefined;

  /** @internal */
  constructor(host: HoldHost, grant: Grant, sent: number, renews: boolean) {
    this.#host = host;
    this.#id = grant.id;
    this.keys = grant.keys;
    this.waited = grant.waited;
    this.#tokens = grant.tokens;
    this.#renews = renews;
    this.#alarm = new Alarm(host.clock, () => this.#tick());
    this.#take(grant, sent);
    // From the deadline, not from now: the answer may be late.
    if (renews && grant.ttl < Number.POSITIVE_INFINITY) {
      this.#renewAt = sent + grant.elapsed + grant.remaining - (2 * grant.ttl) / 3;
    }
  }

  /** Names the hold. Keep it to yourself: whoever knows it can release the hold. */
  get id(): string {
    return this.#id;
  }

  /** The key; of several, the first. */
  get key(): string {
    return this.keys[0] as string;
  }

  /**
   * The fencing token of the only key. Send it along with every write to what the lease protects, and
   * let that refuse a token lower than the highest it has seen.
   *
   * Throws {@link FencingUnknown} when the broker sent none that is a safe integer, and
   * `RefusedError` for a hold of several keys, which has {@link Hold.tokens}.
   */
  get token(): number {
    if (this.keys.length > 1) {
      throw refuse("a hold of several keys has several tokens: read tokens", { op: "token", key: this.key });
    }
    return this.#tokenAt(0);
  }

  /** The fencing token of each key. Throws {@link FencingUnknown} as {@link Hold.token} does. */
  get tokens(): ReadonlyMap<string, number> {
    return new Map(this.keys.map((key, i) => [key, this.#tokenAt(i)]));
  }

  #tokenAt(i: number): number {
    const token = this.#tokens[i];
    if (token === undefined) throw new FencingUnknown(this.keys[i] as string);
    return token;
  }

  /** The ttl as of the last renewal, in milliseconds; Infinity: without end. */
  get ttl(): number {
    return this.#ttl;
  }

  /** Whether the hold outlives its session. */
  get detached(): boolean {
    return this.#detached;
  }

  /**
   * Aborts when the hold is lost, with why as its reason: a `LossError`. It does not abort on `release`.
   */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      setMaxListeners(0, this.#controller.signal); // many may have to stop
      if (this.#cause !== undefined) this.#controller.abort(this.#cause);
    }
    return this.#controller.signal;
  }

  /** Why the hold was lost, and undefined while it was not. It does not look at the clock. */
  get lost(): LossError | undefined {
    return this.#cause;
  }

  /**
   * The instant up to which it is safe to act, on the clock of `performance.now()`, unless a renewal
   * or a ping moves it ahead. Infinity when nothing ends by itself. Section 6 of the protocol.
   */
  get safeUntil(): number {
    if (this.#phase === "lost") return this.#until;
    return safeUntil(this.#until, this.#host.until, this.#detached);
  }

  /** Milliseconds that are left until {@link Hold.safeUntil}; not above zero when it has passed. */
  safeFor(): number {
    return this.safeUntil - this.#host.clock.look();
  }

  /**
   * Whether it is safe to act now. It looks at the clock, so that it is right also in a process that
   * was stopped and whose timers have not run yet; a deadline that has passed ends the hold.
   */
  get isSafe(): boolean {
    return this.#ended() === undefined;
  }

  /** Throws why the hold has ended, if it has; see {@link Hold.isSafe}. */
  check(): void {
    const ended = this.#ended();
    if (ended !== undefined) throw ended;
  }

  #ended(): LatchkeyError | undefined {
    if (this.#phase === "held") this.sweep(this.#host.clock.look());
    if (this.#phase === "held") return undefined;
    return this.#cause ?? makeError("not_held", { op: "hold", key: this.key, reason: "it was released" });
  }

  /**
   * Starts the ttl anew, from now, and changes it when one is given. It fails with the loss when the
   * hold is lost. Holds are renewed by themselves unless `renew` was false.
   */
  async renew(ttl?: Ttl): Promise<void> {
    const fields: Fields = ttl === undefined ? {} : ttlFields(ttl);
    this.check();
    await this.#extend("renew", fields);
  }

  /**
   * Lets the hold outlive its session: it lasts until its ttl when this process goes. It is renewed
   * until then as before.
   */
  async detach(): Promise<void> {
    this.check();
    await this.#extend("detach", {});
  }

  async #extend(op: "renew" | "detach", fields: Fields): Promise<void> {
    let answer: Answer;
    try {
      answer = await this.#host.command(op, { id: this.id, ...fields }, this);
    } catch (error) {
      this.#judge(error as LatchkeyError);
      if (this.#cause !== undefined) throw this.#cause;
      throw error;
    }
    this.#fresh(answer);
    if (this.#cause !== undefined) throw this.#cause;
  }

  /**
   * Ends the hold and waits for the broker's answer. After a loss it gives back what is left and
   * rejects with the loss, so that success means: held without a gap until now. When it is not
   * answered the error is `UnknownOutcomeError`, the hold then ends with its ttl or session, and
   * release may be called again. Once it succeeded, further calls succeed too.
   */
  release(): Promise<void> {
    this.#releasing ??= this.#release().finally(() => {
      this.#releasing = undefined;
    });
    return this.#releasing;
  }

  async #release(): Promise<void> {
    this.sweep(this.#host.clock.look());
    if (this.#phase === "held") {
      this.#phase = "released";
      this.#alarm.clear();
    }
    this.#host.forget(this);
    if (!this.#given) {
      try {
        await this.#host.command("release", { id: this.id }, this);
        this.#given = true;
      } catch (error) {
        const code = codeOf(error);
        if (code === "not_held" || code === "over") this.#given = true;
        if (this.#cause === undefined) throw error;
      }
    }
    if (this.#cause !== undefined) throw this.#cause;
  }

  /** Releases at the end of a scope: `await using hold = await client.acquire(…)`. Throws the loss only. */
  async [Symbol.asyncDispose](): Promise<void> {
    let limit: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const reason = "not answered in time";
      limit = setTimeout(() => reject(makeError("unknown", { op: "release", key: this.key, reason })), RELEASE_WAIT);
    });
    const releasing = this.release();
    releasing.catch(() => {});
    try {
      await Promise.race([releasing, late]);
    } catch (error) {
      const code = codeOf(error);
      if (this.#cause === undefined && (code === "not_held" || code === "over")) {
        const reason = "the broker did not know the hold any more when it was released";
        this.#cause = makeLoss("expired", { op: "release", key: this.key, reason, cause: error });
      }
      // What was done under the lease was done under it, also when its release is not confirmed.
      if (this.#cause === undefined) this.#host.unconfirmed(this, error);
    } finally {
      clearTimeout(limit);
    }
    if (this.#cause !== undefined) throw this.#cause;
  }

  // What follows is for the session.

  /** @internal Whether it is not known to have ended. It does not look at the clock. */
  get keeps(): boolean {
    return this.#phase === "held";
  }

  /** @internal Starts the watch over the hold, once the session knows it. */
  arm(): void {
    if (this.#phase !== "held") return;
    let next = this.#until;
    if (this.#sentAt === undefined) next = Math.min(next, this.#renewAt);
    else if (!this.#overdue) next = Math.min(next, this.#sentAt + patience(this.#ttl));
    this.#alarm.set(next);
  }

  /** @internal Ends the hold if its time has passed. */
  sweep(now: number): void {
    if (this.#phase !== "held" || now < this.safeUntil) return;
    const details = { op: "hold", key: this.key };
    if (this.#failures > 0 || this.#sentAt !== undefined || now < this.#until) {
      const reason = "not confirmed by the broker up to its deadline";
      this.lose(makeLoss("service_gone", { ...details, reason, cause: this.#trouble }));
      return;
    }
    const reason = "its deadline passed: it was not renewed, reached its longest hold, or this process stood still";
    this.lose(makeLoss("expired", { ...details, reason }));
  }

  /** @internal Ends the hold from the broker's side, or by the clock. */
  lose(cause: LossError): void {
    if (this.#phase !== "held") return;
    this.#until = this.safeUntil;
    this.#phase = "lost";
    this.#cause = cause;
    // The session's end released it, and a closed client cannot ask.
    this.#given = cause.code === "session_lost" || cause.code === "closed";
    this.#alarm.clear();
    this.#host.forget(this);
    this.#controller?.abort(cause);
  }

  /** @internal Whether a notice or an entry of the broker is about what is held here. */
  holds(key: string, token: number | undefined): boolean {
    const i = this.keys.indexOf(key);
    if (i < 0) return false;
    const own = this.#tokens[i];
    return own === undefined || token === undefined || own === token;
  }

  /** @internal The broker still had it when the session was resumed. */
  resumed(grant: Grant, sent: number): void {
    this.sweep(this.#host.clock.look());
    if (this.#phase !== "held") return;
    this.#take(grant, sent);
    this.arm();
  }

  #take(grant: Grant, sent: number): void {
    this.#until = leaseDeadline(sent, grant);
    this.#ttl = grant.ttl;
    this.#detached = grant.detached || this.#detached;
  }

  #fresh(answer: Answer): void {
    // What has passed is over, whatever the broker says now: nobody knows who held it meanwhile.
    this.sweep(this.#host.clock.look());
    if (this.#phase !== "held") return;
    this.#failures = 0;
    this.#trouble = undefined;
    this.#take(decodeGrant(answer.body), answer.sent);
    // A broker that grants no time is not asked without a pause.
    const next = Math.max(answer.sent + this.#ttl / 3, this.#host.clock.now() + LEAST_PAUSE);
    this.#renewAt = this.#renews ? next : Number.POSITIVE_INFINITY;
    this.arm();
  }

  #tick(): void {
    const now = this.#host.clock.look();
    this.sweep(now);
    if (this.#phase !== "held") return;
    if (this.#sentAt === undefined && now >= this.#renewAt) void this.#autoRenew(now);
    else if (this.#sentAt !== undefined && !this.#overdue && now >= this.#sentAt + patience(this.#ttl)) {
      this.#overdue = true;
      this.#tell(new UnavailableError("unavailable", { op: "renew", key: this.key, reason: "no answer yet" }));
    }
    this.arm();
  }

  async #autoRenew(now: number): Promise<void> {
    this.#sentAt = now;
    this.#overdue = false;
    try {
      const answer = await this.#host.command("renew", { id: this.id }, this);
      this.#sentAt = undefined;
      this.#fresh(answer);
    } catch (error) {
      this.#sentAt = undefined;
      this.#judge(error as LatchkeyError);
      if (this.#phase !== "held") return;
      const then = this.#host.clock.look();
      this.#renewAt = then + pause(this.#ttl, this.safeUntil - then, this.#failures);
      this.#failures++;
      this.#tell(error as LatchkeyError);
      this.arm();
    }
  }

  #tell(error: LatchkeyError): void {
    this.#trouble = error;
    this.#host.troubled(this, error);
  }

  /** Ends the hold when an answer about it proves that it is lost. */
  #judge(error: LatchkeyError): void {
    const code = codeOf(error);
    const lost = code === "not_held" || code === "over" ? "expired" : code;
    if (lost !== "expired" && lost !== "forced" && lost !== "session_lost") return;
    const reason = "the broker does not know the hold any more";
    this.lose(makeLoss(lost, { op: "hold", key: this.key, reason, cause: error }));
  }
}

/** The shortest time between an answer to a renewal and the next one. */
const LEAST_PAUSE = 10;

/** How long a renewal may stay unanswered before that is told. */
function patience(ttl: number): number {
  return Math.min(ttl / 6, 5000);
}

/**
 * The pause before the next try of a failed renewal: doubling from a thirtieth of the ttl to a sixth,
 * at most 5 s and half of what is left, at least 10 ms; half of it is random.
 */
function pause(ttl: number, left: number, failures: number): number {
  const wanted = Math.min(ttl / 30, 1000) * 2 ** Math.min(failures, 10);
  const d = Math.max(Math.min(wanted, ttl / 6, 5000, left / 2), LEAST_PAUSE);
  return d / 2 + (Math.random() * d) / 2;
}
