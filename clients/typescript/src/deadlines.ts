/** When a holder must stop: section 6 of the protocol. All times are milliseconds of one monotonic clock. */

/** A grant, a renewal, or an entry of what a resumed session holds. */
export interface Grant {
  readonly id: string;
  readonly keys: readonly string[];
  /** Undefined where the broker sent no token that is a safe integer. */
  readonly tokens: readonly (number | undefined)[];
  /** Infinity: without end. */
  readonly ttl: number;
  readonly elapsed: number;
  /** Infinity: it has no end of its own. */
  readonly remaining: number;
  readonly waited: number;
  readonly detached: boolean;
}

/** What is kept back from a time x, so that this side always stops first. */
export function margin(x: number): number {
  return Math.min(Math.max(10, x * 0.02), 1000);
}

/** Until when a lease is the holder's by its own time, when its request was sent at `sent`. */
export function leaseDeadline(sent: number, grant: Grant): number {
  return sent + grant.elapsed + grant.remaining - margin(grant.ttl);
}

/** Until when the session lives for certain, after an answered sign of life sent at `sent`. */
export function sessionDeadline(sent: number, grace: number): number {
  return grace > 0 ? sent + grace - margin(grace) : Number.POSITIVE_INFINITY;
}

/** The instant up to which the holder may act; Infinity when nothing ends by itself. */
export function safeUntil(lease: number, session: number, detached: boolean): number {
  return detached ? lease : Math.min(lease, session);
}
