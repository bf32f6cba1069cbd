/// <reference lib="esnext.disposable" preserve="true" />

import { type LatchkeyError, makeError } from "./errors.js";

/** What happened to a key. */
export interface WatchEvent {
  /**
   * `granted`, `released`, `expired`, `forced`, `ended` (with its session), `queued`, `dequeued` (left
   * without a grant), `detached`; `gap`: events were dropped or missed, so list again. A later broker
   * may send others.
   */
  readonly event: string;
  /** Absent for a gap. */
  readonly key?: string;
  readonly session?: string;
  readonly host?: string;
  readonly pid?: number;
  readonly label?: string;
  readonly mode?: "exclusive" | "shared" | "counted";
  readonly max?: number;
  readonly token?: number;
  /** Milliseconds that it waited (`granted`, `dequeued`) or was held (the ends). */
  readonly after?: number;
  /** Why a request left without a grant. */
  readonly code?: string;
}

const GAP: WatchEvent = { event: "gap" };

interface Waiting {
  resolve(result: IteratorResult<WatchEvent, undefined>): void;
  reject(error: unknown): void;
}

/**
 * The events of one watch, in order: `for await (const event of watch)`. Leaving the loop ends the
 * watch. It survives reconnects, with a `gap` event after each; so does a reader that is too slow
 * for the buffer get a `gap`.
 */
export class Watch implements AsyncIterableIterator<WatchEvent, undefined>, AsyncDisposable {
  readonly #limit: number;
  readonly #stop: (watch: Watch) => Promise<void>;
  #events: WatchEvent[] = [];
  #waiting: Waiting[] = [];
  #ended = false;
  #error: LatchkeyError | undefined;

  /** @internal */
  constructor(limit: number, stop: (watch: Watch) => Promise<void>) {
    this.#limit = limit;
    this.#stop = stop;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next event; rejects when the client was closed or the broker refuses the watch. */
  next(): Promise<IteratorResult<WatchEvent, undefined>> {
    const event = this.#events.shift();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.#error !== undefined) {
      const error = this.#error;
      this.#error = undefined; // told once; then it is over
      return Promise.reject(error);
    }
    if (this.#ended) return Promise.resolve({ done: true, value: undefined });
    if (this.#waiting.length >= this.#limit) {
      return Promise.reject(makeError("refused", { op: "watch", reason: "too many calls of next wait already" }));
    }
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Ends the watch; events that are buffered are dropped. A second call is harmless. */
  async close(): Promise<void> {
    if (this.#ended) return;
    this.end();
    await this.#stop(this);
  }

  async return(): Promise<IteratorResult<WatchEvent, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  push(event: WatchEvent): void {
    if (this.#ended) return;
    const first = this.#waiting.shift();
    if (first !== undefined) {
      first.resolve({ done: false, value: event });
      return;
    }
    if (this.#events.length < this.#limit) {
      this.#events.push(event);
      return;
    }
    // What is kept would tell half a story: the reader has to list anyway.
    this.#events = [GAP];
  }

  /** @internal */
  gap(): void {
    if (this.#events.at(-1)?.event !== "gap") this.push(GAP);
  }

  /** @internal */
  end(error?: LatchkeyError): void {
    if (this.#ended) return;
    this.#ended = true;
    if (error === undefined) this.#events = [];
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const w of waiting) {
      if (error === undefined) w.resolve({ done: true, value: undefined });
      else w.reject(error);
    }
    if (waiting.length === 0) this.#error = error;
  }
}
