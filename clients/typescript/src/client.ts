import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { type Clock, systemClock } from "./clock.js";
import { FencingUnknown, type Holder, type LatchkeyError, makeError, refuse } from "./errors.js";
import { Hold, type Ttl, ttlFields } from "./hold.js";
import {
  DEFAULT_CONNECT_TIMEOUT,
  DEFAULT_GRACE,
  DEFAULT_WATCH_BUFFER,
  MAX_LABEL_BYTES,
  RELEASE_WAIT,
} from "./limits.js";
import { parseAddress } from "./link.js";
import { checkRequest, type Fields } from "./request.js";
import { type Logger, type Queued, Session } from "./session.js";
import type { Watch } from "./watch.js";
import { breach, decodeHolder, decodeHolds, type JsonObject, objects, text, token, whole } from "./wire.js";

/** Options of {@link connect}. Durations are milliseconds. */
export interface ConnectOptions {
  /** `host:port` or `unix:PATH`; by default `LATCHKEY_SERVER`, or `127.0.0.1:6970`. */
  address?: string | undefined;
  /** Who this is, shown to people; up to 256 bytes. */
  name?: string | undefined;
  /** How long the session outlives the last sign of life; default 3000, up to an hour. 0: not at all. */
  grace?: number | undefined;
  /** Bounds each attempt to connect; default 3000. */
  connectTimeout?: number | undefined;
  /** Gives the first connection up. */
  signal?: AbortSignal | undefined;
  /** Gets what cannot be returned, such as broken connections. `console` will do. */
  logger?: Logger | undefined;
  /** Told of every renewal that failed or is late, and of a broken connection, while the lease is still held. */
  onTroubled?: ((hold: Hold, error: LatchkeyError) => void) | undefined;
}

/** Options of a request for a lease. Durations are milliseconds. */
export interface AcquireOptions {
  /** `exclusive` (the default), `shared` with other shared holds, or `counted`: up to `max` holds. */
  mode?: "exclusive" | "shared" | "counted" | undefined;
  /** Counted only: 1 to 1000. */
  max?: number | undefined;
  /** Time to live; default 30 000, at least 100. `"forever"`: until it is released or its session ends. */
  ttl?: Ttl | undefined;
  /** Waits at most so long, then fails with `TimeoutError`. Without it there is no bound. */
  wait?: number | undefined;
  /** Fails at once with `BusyError` instead of waiting. */
  try?: boolean | undefined;
  /** Shown to people; up to 256 bytes. */
  label?: string | undefined;
  /** Shared only: passes writers that wait, which may starve them. */
  preferReaders?: boolean | undefined;
  /** The longest total time of the hold, renewals included. */
  maxHold?: number | undefined;
  /** After an involuntary loss the keys stay unavailable that long. */
  lockDelay?: number | undefined;
  /** The hold outlives its session, until its ttl. */
  detach?: boolean | undefined;
  /** Holds that will not be released before this request is answered, for finding deadlocks. */
  declared?: readonly (string | Hold)[] | undefined;
  /** Names the request and the hold; random when absent. Whoever knows it can release the hold. */
  id?: string | undefined;
  /** Renews each third of the ttl (the default). If false, only the deadline is watched. */
  renew?: boolean | undefined;
  /** Takes the request back: it fails with `CancelledError`, and nothing stays behind. */
  signal?: AbortSignal | undefined;
  /** Told once if the request has to wait. */
  onQueued?: ((queued: Queued) => void) | undefined;
  /** As {@link ConnectOptions.onTroubled}, for this hold. */
  onTroubled?: ((hold: Hold, error: LatchkeyError) => void) | undefined;
}

/** Options of {@link Client.list}. */
export interface ListOptions {
  /** One key; excludes `prefix`. */
  key?: string | undefined;
  prefix?: string | undefined;
  /** Keys that sort after this one, for the next page. */
  after?: string | undefined;
  /** 1 to 10 000; default 1000. */
  limit?: number | undefined;
  /** Only keys with waiters, most first, in one page. */
  contended?: boolean | undefined;
  /** Leaves the waiters out, and tells only how many there are. */
  brief?: boolean | undefined;
}

/** A request that waits for a key. */
export interface Waiter {
  readonly session?: string;
  readonly host?: string;
  readonly pid?: number;
  readonly label?: string;
  readonly mode: "exclusive" | "shared" | "counted";
  readonly max?: number;
  /** Keys of the request. */
  readonly keys?: number;
  /** Milliseconds that it has waited. */
  readonly age?: number;
  /** Milliseconds until its bound; absent: none. */
  readonly left?: number;
  readonly broken?: boolean;
}

/** One key of a listing. */
export interface KeyState {
  readonly key: string;
  /** In the order of their grants. */
  readonly holders: readonly Holder[];
  /** In the order of their arrival; the first ones when there are many. */
  readonly waiters: readonly Waiter[];
  /** How many wait. */
  readonly waiting: number;
  /** What is left of a lock-delay. */
  readonly delay?: number;
}

/** A page of a listing. */
export interface Listing {
  readonly keys: readonly KeyState[];
  /** There are more keys: ask again with `after` set to the last key. */
  readonly more: boolean;
}

/** Options of {@link Client.watch}: one key, a prefix, or all. */
export interface WatchOptions {
  key?: string | undefined;
  prefix?: string | undefined;
  /** Events that are kept for a slow reader before they are dropped with a `gap`; default 1024. */
  buffer?: number | undefined;
}

/** Options of {@link Client.force}. */
export interface ForceOptions {
  /** Only the hold with this token; otherwise all of the key. */
  token?: number | undefined;
  /** Who does it, and why; the holders are told. */
  by?: string | undefined;
  reason?: string | undefined;
}

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
    const signal = options.signal === undefined ? hold.signal : AbortSignal.any([hold.signal, options.signal]);
    let failure: { error: unknown } | undefined;
    let result: T | undefined;
    try {
      result = await fn(hold, signal);
    } catch (error) {
      failure = { error };
    }
    await releaseInTime(hold);
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
   * not answer. A second call is harmless.
   */
  close(): Promise<void> {
    return this.#session.close();
  }

  /** Closes at the end of a scope: `await using client = await connect()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function acquireFields(keys: string | readonly string[], o: AcquireOptions): Fields {
  const single = typeof keys === "string" ? keys : keys.length === 1 ? keys[0] : undefined;
  return {
    id: o.id ?? randomBytes(16).toString("hex"),
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
    declared: o.declared?.length ? o.declared.map((d) => (d instanceof Hold ? d.id : d)) : undefined,
  };
}

/** Releases, for a bounded time: what is not confirmed ends with its ttl or session. */
async function releaseInTime(hold: Hold): Promise<void> {
  let limit: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    limit = setTimeout(resolve, RELEASE_WAIT);
  });
  await Promise.race([hold.release().catch(() => {}), late]);
  clearTimeout(limit);
}

function lossOf(lost: LatchkeyError, failure: { error: unknown } | undefined): LatchkeyError {
  const error = failure?.error;
  if (error === undefined || error === lost || (error instanceof Error && error.cause === lost)) return lost;
  return makeError(lost.code, { op: lost.op, key: lost.key, reason: lost.reason, cause: error });
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
