import { uptime } from "node:os";
import { performance } from "node:perf_hooks";

/** A monotonic clock, in milliseconds from anywhere. Tests bring their own. */
export interface Clock {
  /** The time now; cheap. It never goes back. */
  now(): number;
  /** The time now, with what the machine has slept; it may cost a system call. */
  look(): number;
}

/** Less than this is what the two clocks differ by reading them. */
const GRAIN_MS = 50;

/**
 * The monotonic clock of the operating system. It goes on while the process is stopped. On Linux it
 * stands still while the machine sleeps, and the time since boot does not: `look` adds the difference,
 * so that a lease is over after a suspend even if no timer has run yet.
 */
export function systemClock(): Clock {
  let slept = 0;
  let base: number | undefined;
  const ahead = (): number | undefined => {
    if (process.platform !== "linux") return undefined;
    try {
      return uptime() * 1000 - performance.now();
    } catch {
      return undefined; // not readable in this sandbox: the monotonic clock alone then
    }
  };
  base = ahead();
  return {
    now: () => performance.now() + slept,
    look: () => {
      const difference = base === undefined ? undefined : ahead();
      if (difference !== undefined && base !== undefined && difference - base > slept + GRAIN_MS) {
        slept = difference - base;
      }
      return performance.now() + slept;
    },
  };
}

/** One timer that can be set again and again, and costs nothing while it rests. */
export class Alarm {
  readonly #clock: Clock;
  readonly #ring: () => void;
  #timer: NodeJS.Timeout | undefined;
  #at = Number.POSITIVE_INFINITY;

  constructor(clock: Clock, ring: () => void) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /** Rings at `at`, and at no other time that was set before. Infinity: never. */
  set(at: number): void {
    if (at === this.#at) return;
    this.clear();
    if (at === Number.POSITIVE_INFINITY) return;
    this.#at = at;
    // Longer than a timer can be: ring early and be set again.
    const delay = Math.min(Math.max(Math.ceil(at - this.#clock.now()), 0), 2 ** 31 - 1);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#at = Number.POSITIVE_INFINITY;
      this.#ring();
    }, delay);
  }

  /** Lets it ring at `at` if that is sooner than it would. */
  hasten(at: number): void {
    if (at < this.#at) this.set(at);
  }

  clear(): void {
    if (this.#timer !== undefined) clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#at = Number.POSITIVE_INFINITY;
  }
}
