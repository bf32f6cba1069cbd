/** The watches of a client, which go on over connections that break. */

import { type Call, closedError, decodeEvent } from "./call.js";
import type { Calls } from "./calls.js";
import { describe, refuse } from "./errors.js";
import { MAX_WATCHES } from "./limits.js";
import { checkRequest, type Fields } from "./request.js";
import { Watch } from "./watch.js";
import type { JsonObject } from "./wire.js";

const nothing = (): void => {};

export class Watches {
  readonly #calls: Calls;
  readonly #all = new Map<number, { readonly watch: Watch; readonly fields: Fields }>();

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Begins a watch; the promise resolves when the broker has it. */
  begin(fields: Fields, buffer: number): Promise<Watch> {
    return new Promise((resolve, reject) => {
      checkRequest("watch", fields);
      if (this.#all.size >= MAX_WATCHES) throw refuse(`at most ${MAX_WATCHES} watches of a client (MaxWatches)`);
      const watch = new Watch(buffer, () => this.#unwatch(call.n));
      const call = this.#calls.make("watch", fields, {
        resolve: () => {
          this.#all.set(call.n, { watch, fields });
          resolve(watch);
        },
        reject: (error) => reject(describe(error, "watch")),
      });
      this.#calls.submit(call);
    });
  }

  push(n: number, body: JsonObject): void {
    this.#all.get(n)?.watch.push(decodeEvent(body));
  }

  /** Has each begun again with what is sent on the next connection. */
  again(): void {
    for (const [n, { fields }] of this.#all) {
      if (!this.#calls.has(n)) this.#calls.keep(this.#call(n, fields));
    }
  }

  /** The call that begins a watch again on another connection. */
  #call(n: number, fields: Fields): Call {
    return {
      ...this.#calls.make("watch", fields, {
        ours: true,
        resolve: () => this.#all.get(n)?.watch.gap(),
        reject: (error) => {
          this.#all.get(n)?.watch.end(error);
          this.#all.delete(n);
        },
      }),
      n,
    };
  }

  async #unwatch(n: number): Promise<void> {
    this.#all.delete(n);
    const call = this.#calls.get(n);
    if (call !== undefined) this.#calls.drop(call);
    if (!this.#calls.connection) return; // the next one does not begin it
    await this.#calls.command("unwatch", { watch: n }).catch(nothing);
  }

  /** Ends them all: the client is closed. */
  close(): void {
    for (const { watch } of this.#all.values()) watch.end(closedError("watch"));
    this.#all.clear();
  }
}
