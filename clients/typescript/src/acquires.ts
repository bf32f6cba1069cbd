/** Requests for leases: made, queued, taken back, granted. */

import { onAbort } from "./abort.js";
import { type AcquireHooks, type Call, cancelled, keyOf } from "./call.js";
import type { Calls } from "./calls.js";
import { describe, type LatchkeyError, makeError, refuse } from "./errors.js";
import { Hold } from "./hold.js";
import type { Holds } from "./holds.js";
import { CANCEL_WAIT } from "./limits.js";
import { checkRequest, type Fields } from "./request.js";
import type { Teller } from "./teller.js";
import { breach, decodeGrant, decodeHolder, type JsonObject, objects, text, whole } from "./wire.js";

const nothing = (): void => {};

export class Acquires {
  readonly #calls: Calls;
  readonly #holds: Holds;
  readonly #teller: Teller;
  readonly #waiting = new Set<string>(); // ids

  constructor(calls: Calls, holds: Holds, teller: Teller) {
    this.#calls = calls;
    this.#holds = holds;
    this.#teller = teller;
  }

  /** Asks for a lease. */
  ask(fields: Fields, hooks: AcquireHooks): Promise<Hold> {
    return new Promise((resolve, reject) => {
      checkRequest("acquire", fields);
      const id = fields.id as string;
      const key = keyOf({ fields });
      if (hooks.signal?.aborted) throw cancelled(key, hooks.signal.reason);
      if (this.#holds.has(id) || this.#waiting.has(id)) {
        throw refuse("this client holds, or waits, under the same id; leave it out for one of its own", {
          op: "acquire",
          key,
        });
      }
      let quiet = nothing;
      const done = (): void => {
        this.#waiting.delete(id);
        quiet();
      };
      const call = this.#calls.make("acquire", fields, {
        hooks,
        resolve: (_answer, hold) => {
          done();
          resolve(hold as Hold);
        },
        reject: (error) => {
          done();
          reject(describe(error, "acquire", key));
        },
      });
      this.#calls.submit(call);
      this.#waiting.add(id);
      if (hooks.signal !== undefined) {
        quiet = onAbort(hooks.signal, () => this.#abandon(call, key, hooks.signal?.reason));
      }
    });
  }

  /** Takes a request back whose caller gave up. */
  #abandon(call: Call, key: string, cause: unknown): void {
    if (!this.#calls.has(call.n)) return;
    if (call.sent === undefined) {
      this.#calls.reject(call, cancelled(key, cause));
      return;
    }
    call.abandoned = true;
    const finish = (error: LatchkeyError): void => {
      clearTimeout(limit);
      this.#calls.drop(call);
      call.reject(error);
    };
    const unknown = (reason: string): LatchkeyError =>
      makeError("unknown", { op: "acquire", key, reason: `${reason}; a grant ends with its ttl`, cause });
    // The cancel stays on its way also when nobody waits for its answer any more.
    const limit = setTimeout(() => call.reject(unknown("the cancel was not answered")), CANCEL_WAIT);
    this.#calls.ours(
      "cancel",
      { id: call.fields.id },
      {
        resolve: () => finish(cancelled(key, cause)),
        reject: (error) => finish(unknown(`the cancel failed: ${error.message}`)),
      },
    );
  }

  /** The broker says that it has to wait. */
  queued(call: Call, body: JsonObject): void {
    if (call.told) return; // what is sent again is queued again
    call.told = true;
    const f = call.hooks?.onQueued;
    if (f === undefined || call.abandoned) return;
    const queued = {
      key: text(body, "key"),
      position: whole(body, "position") ?? 0,
      ahead: objects(body, "ahead").map(decodeHolder),
    };
    this.#teller.guard("onQueued", () => f(queued));
  }

  /** The broker granted it. */
  granted(call: Call, body: JsonObject): void {
    const sent = call.sent ?? call.start;
    const grant = decodeGrant(body); // a breach leaves the call to be asked again
    if (grant.id !== call.fields.id) throw breach("a grant names another id than the request");
    const missing = missingKeys(grant.keys, call.fields);
    if (missing === undefined || (missing > 0 && !call.again)) {
      throw breach("a grant names other keys than the request");
    }
    this.#calls.drop(call);
    if (call.abandoned) {
      this.#calls.keep(call); // it crossed the cancel, which releases it
      return;
    }
    if (missing > 0) {
      this.#calls.ours("release", { id: grant.id });
      const reason = "a key was taken away before the grant was heard; the others were given back";
      call.reject(makeError("forced", { reason }));
      return;
    }
    const hooks = call.hooks as AcquireHooks;
    const hold = new Hold(this.#holds, grant, sent, hooks.renew);
    if (this.#holds.clock.now() >= hold.safeUntil) {
      // Giving it back is kinder than letting the key idle until the broker ends it.
      this.#calls.ours("release", { id: grant.id });
      const reason = "the grant arrived when its time was already up; it was given back";
      call.reject(makeError("expired", { reason }));
      return;
    }
    this.#holds.add(hold, hooks);
    call.resolve({ body, sent }, hold);
  }
}

/** How many of its keys a grant does not have; undefined if it has others, or one twice. */
function missingKeys(granted: readonly string[], fields: Fields): number | undefined {
  const left = new Set(fields.keys === undefined ? [fields.key] : (fields.keys as string[]));
  return granted.every((key) => left.delete(key)) ? left.size : undefined;
}
