/// <reference lib="esnext.disposable" preserve="true" />

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { onAbort } from "./abort.js";
import { declaring, inside } from "./around.js";
import { type Clock, systemClock } from "./clock.js";
import { FencingUnknown, type LossError, makeLoss, refuse } from "./errors.js";
import { type Hold, ttlFields } from "./hold.js";
import { DEFAULT_CONNECT_TIMEOUT, DEFAULT_GRACE, DEFAULT_WATCH_BUFFER, MAX_LABEL_BYTES } from "./limits.js";
import { parseAddress } from "./link.js";
import type {
  AcquireOptions,
  ConnectOptions,
  ForceOptions,
  KeyState,
  Listing,
  ListOptions,
  Waiter,
  WatchOptions,
} from "./options.js";
import { checkRequest, type Fields } from "./request.js";
import { Session } from "./session.js";
import type { Watch } from "./watch.js";
import { breach, decodeHolder, decodeHolds, type JsonObject, objects, text, token, whole } from "./wire.js";

/** What {@link Client.force} ended. */
export class Forced {
  /** Tokens of the holds that were ended, as far as the broker told them. */
  readonly tokens: readonly number[];
  readonly #key: string;
  readonly #fence: number | undefined;

  /** @internal */
  constructor(key: string, tokens: readonly number[], fence: number | undefined) {
    this.#key = key;
    this.tokens = tokens;
    this.#fence = fence;
  }

  /**
   * A fresh token above all of them: telling it to the resource shuts the old holders out at once.
   * Throws {@link FencingUnknown} when the broker sent none that is a safe integer.
   */
  get fence(): number {
    if (this.#fence === undefined) throw new FencingUnknown(this.#key);
    return this.#fence;
  }
}

/**
 * Connects to a broker and opens a session there: one attempt. After that the connection is kept, and
 * made again when it breaks, until {@link Client.close}.
 *
 * Fails with `UnavailableError` when nobody answers, and with `ProtocolError` when what answers is no
 * broker.
 */
export async function connect(options: ConnectOptions | string = {}): Promise<Client> {
  return connectWith(options, systemClock());
}

/** @internal */
export async function connectWith(options: ConnectOptions | string, clock: Clock): Promise<Client> {
  const o: ConnectOptions = typeof options === "string" ? { address: options } : options;
  const address = o.address ?? (process.env.LATCHKEY_SERVER || "127.0.0.1:6970");
  const connectTimeout = o.connectTimeout ?? DEFAULT_CONNECT_TIMEOUT;
  if (!(connectTimeout > 0)) throw refuse("connectTimeout must be above 0", { op: "connect" });
  const host = hostname();
  const who = {
    name: o.name || undefined,
    host: host !== "" && Buffer.byteLength(host) <= MAX_LABEL_BYTES ? host : undefined,
    pid: process.pid,
    grace: o.grace ?? DEFAULT_GRACE,
  };
  checkRequest("open", who);
  const session = new Session({
    address,
    target: parseAddress(address),
    ...who,
    connectTimeout,
    clock,
    logger: o.logger,
    onTroubled: o.onTroubled,
  });
  await session.open(o.signal);
  return new Client(session);
}

/**
 * A session with a broker, on one connection, and the leases that are held through it. Made by
 * {@link connect}. All methods may be called at the same time.
 */
export class Client implements AsyncDisposable {
  readonly #session: Session;

  /** @internal */
  constructor(session: Session) {
    this.#session = session;
  }

  /** What the broker said of itself: product, durability, and where tokens come from. */
  get server(): { readonly server: string; readonly durability: string; readonly fencing: string } {
    const { server = "", durability = "", fencing = "" } = this.#session.server ?? {};
    return { server, durability, fencing };
  }

  /** Whether there is a connection just now. */
  get connected(): boolean {
    return this.#session.connected;
  }

  /**
   * Waits for a lease on a key, or on 1 to 64 keys, all or none, and keeps it until it is released or
   * lost. A connection that breaks meanwhile costs neither the place in the queue nor the lease, as
   * long as the session lives.
   */
  async acquire(keys: string | readonly string[], options: AcquireOptions = {}): Promise<Hold> {
    const o = options;
    return this.#session.acquire(acquireFields(keys, o), {
      renew: o.renew ?? true,
      signal: o.signal,
      onQueued: o.onQueued,
      onTroubled: o.onTroubled,
    });
  }

  /**
   * Waits for a lease, runs `fn` while it is held, and releases it when `fn` is done, whatever
   * happens. The signal that `fn` gets aborts when the lease is lost, and when `options.signal` does;
   * `fn` must then end.
   *
   * What is asked for inside of `fn`, by any client, declares the hold, so that asking for its key
   * again is a `DeadlockError` rather than a wait for oneself.
   *
   * Resolves with what `fn` returned if the lease was held throughout. If it was lost meanwhile it
   * rejects with the loss, whose `cause` is what `fn` threw, if that was something else.
   */
  do<T>(keys: string | readonly string[], fn: (hold: Hold, signal: AbortSignal) => T | Promise<T>): Promise<T>;
  do<T>(
    keys: string | readonly string[],
    options: AcquireOptions,
    fn: (hold: Hold, signal: AbortSignal) => T | Promise<T>,
  ): Promise<T>;
  async do<T>(
    keys: string | readonly string[],
    second: AcquireOptions | ((hold: Hold, signal: AbortSignal) => T | Promise<T>),
    third?: (hold: Hold, signal: AbortSignal) => T | Promise<T>,
  ): Promise<T> {
    const options = typeof second === "function" ? {} : second;
    const fn = typeof second === "function" ? second : third;
    if (typeof fn !== "function") throw refuse("do needs a function to run", { op: "do" });
    const hold = await this.acquire(keys, options);
    const { signal, quiet } = either(hold.signal, options.signal);
    let failure: { error: unknown } | undefined;
    let result: T | undefined;
    try {
      result = await inside(hold, () => fn(hold, signal));
    } catch (error) {
      failure = { error };
    }
    quiet();
    await hold[Symbol.asyncDispose]().catch(() => {}); // the loss is looked at next
    if (hold.lost !== undefined) throw lossOf(hold.lost, failure);
    if (failure !== undefined) throw failure.error;
    return result as T;
  }

  /** Lists who holds and who waits, a page at a time. */
  async list(options: ListOptions = {}): Promise<Listing> {
    const { body } = await this.#session.command("list", { ...options });
    return { keys: objects(body, "keys").map(decodeKeyState), more: body.more === true };
  }

  /** Watches what happens to a key, to keys with a prefix, or to all, from now on. */
  async watch(options: WatchOptions = {}): Promise<Watch> {
    const { buffer = DEFAULT_WATCH_BUFFER, ...selection } = options;
    if (!Number.isSafeInteger(buffer) || buffer < 1) throw refuse("buffer must be an integer from 1", { op: "watch" });
    return this.#session.watch(selection, buffer);
  }

  /** Ends every hold of a key, as an administrator, and tells the holders. `NotHeldError` if there was none. */
  async force(key: string, options: ForceOptions = {}): Promise<Forced> {
    const { body } = await this.#session.command("force", { key, ...options });
    const tokens = decodeHolds(body).tokens.filter((t) => t !== undefined);
    return new Forced(key, tokens, token(body.fence));
  }

  /** Counters, gauges and histograms of the broker; see section 10 of the protocol. */
  async stats(): Promise<Readonly<Record<string, unknown>>> {
    const { body } = await this.#session.command("stats", {});
    if (typeof body.stats !== "object" || body.stats === null) throw breach("the answer to stats has no stats");
    return body.stats as Readonly<Record<string, unknown>>;
  }

  /**
   * Says goodbye, which releases every hold that is not detached, and leaves no timer and no socket
   * behind. Whatever waits fails with `ClosedError`. It takes a second at most when the broker does
   * not answer, or when there is no connection: one that is made meanwhile is used to say it. A second
   * call is harmless.
   */
  close(): Promise<void> {
    return this.#session.close();
  }

  /** Closes at the end of a scope: `await using client = await connect()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/**
 * A signal that aborts when one of two does, until `quiet`. `AbortSignal.any` would leave something behind
 * at a signal that outlives many calls.
 */
function either(lost: AbortSignal, own: AbortSignal | undefined): { signal: AbortSignal; quiet: () => void } {
  if (own === undefined) return { signal: lost, quiet: () => {} };
  const controller = new AbortController();
  const quiet = [lost, own].map((signal) => {
    const abort = (): void => controller.abort(signal.reason);
    if (signal.aborted) abort();
    return onAbort(signal, abort);
  });
  return {
    signal: controller.signal,
    quiet: () => {
      for (const q of quiet) q();
    },
  };
}

let pool = Buffer.alloc(0);
let drawn = 0;

/** 128 random bits, drawn from the system for many ids at once. */
function randomId(): string {
  if (drawn === pool.length) {
    pool = randomBytes(16 * 64);
    drawn = 0;
  }
  drawn += 16;
  return pool.toString("hex", drawn - 16, drawn);
}

function acquireFields(keys: string | readonly string[], o: AcquireOptions): Fields {
  if (typeof keys !== "string" && !Array.isArray(keys)) {
    throw refuse("the key must be a string, or an array of strings for several", { op: "acquire" });
  }
  const id = o.id ?? randomId();
  const declared = declaring(o.declared, id);
  const single = typeof keys === "string" ? keys : keys.length === 1 ? (keys as string[])[0] : undefined;
  return {
    id,
    ...(single === undefined ? { keys: [...keys] } : { key: single }),
    mode: o.mode,
    max: o.max,
    ...ttlFields(o.ttl),
    try: o.try,
    wait: o.wait,
    prefer_readers: o.preferReaders,
    max_hold: o.maxHold,
    lock_delay: o.lockDelay || undefined,
    detach: o.detach,
    label: o.label || undefined,
    declared: declared.length > 0 ? declared : undefined,
  };
}

function lossOf(lost: LossError, failure: { error: unknown } | undefined): LossError {
  const error = failure?.error;
  if (error === undefined || error === lost || (error instanceof Error && error.cause === lost)) return lost;
  return makeLoss(lost.code, { op: lost.op, key: lost.key, reason: lost.reason, cause: error });
}

/** @internal */
export function decodeKeyState(o: JsonObject): KeyState {
  const delay = whole(o, "delay");
  return {
    key: text(o, "key"),
    holders: objects(o, "holders").map(decodeHolder),
    waiters: objects(o, "waiters").map(decodeWaiter),
    waiting: whole(o, "waiting") ?? 0,
    ...(delay === undefined ? {} : { delay }),
  };
}

function decodeWaiter(o: JsonObject): Waiter {
  const out: Record<string, unknown> = { ...decodeHolder(o) };
  for (const name of ["keys", "age", "left"]) if (o[name] !== undefined) out[name] = whole(o, name);
  return out as unknown as Waiter;
}
