/** What callers pass in and get told. */

import type { Holder, LatchkeyError } from "./errors.js";
import type { Hold, Ttl } from "./hold.js";

/** Gets what cannot be returned: broken connections, lost sessions, failing renewals. */
export interface Logger {
  info(message: string, details: Readonly<Record<string, unknown>>): void;
  warn(message: string, details: Readonly<Record<string, unknown>>): void;
}

/** Told once when a request has to wait. */
export interface Queued {
  /** The first key in the way. */
  readonly key: string;
  /** Requests that are ahead there. */
  readonly position: number;
  /** Up to eight holders of that key. */
  readonly ahead: readonly Holder[];
}

/** Options of `connect`. Durations are milliseconds. */
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
  /**
   * Holds that will not be released before this request is answered, for finding deadlocks. Those of
   * the calls of `do` around this one are added.
   */
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

/** Options of `Client.list`. */
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

/** Options of `Client.watch`: one key, a prefix, or all. */
export interface WatchOptions {
  key?: string | undefined;
  prefix?: string | undefined;
  /** Events that are kept for a slow reader before they are dropped with a `gap`; default 1024. */
  buffer?: number | undefined;
}

/** Options of `Client.force`. */
export interface ForceOptions {
  /** Only the hold with this token; otherwise all of the key. */
  token?: number | undefined;
  /** Who does it, and why; the holders are told. */
  by?: string | undefined;
  reason?: string | undefined;
}
