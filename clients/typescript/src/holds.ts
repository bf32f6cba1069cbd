/** The holds of a client: how long each is safe, and how each ends. */

import type { AcquireHooks } from "./call.js";
import type { Calls } from "./calls.js";
import { Alarm, type Clock } from "./clock.js";
import { type Grant, sessionDeadline } from "./deadlines.js";
import { type LatchkeyError, makeLoss } from "./errors.js";
import type { Answer, Hold, HoldHost } from "./hold.js";
import { unavailable } from "./link.js";
import type { Fields, Op } from "./request.js";
import type { Teller } from "./teller.js";
import { type JsonObject, text, token } from "./wire.js";

type OnTroubled = (hold: Hold, error: LatchkeyError) => void;

export class Holds implements HoldHost {
  readonly clock: Clock;
  /** The deadline of the session. */
  until = Number.POSITIVE_INFINITY;
  readonly #calls: Calls;
  readonly #teller: Teller;
  readonly #onTroubled: OnTroubled | undefined;
  readonly #all = new Map<string, Hold>();
  readonly #hooks = new WeakMap<Hold, OnTroubled>();
  readonly #reaper: Alarm; // the session's deadline

  constructor(calls: Calls, clock: Clock, teller: Teller, onTroubled: OnTroubled | undefined) {
    this.clock = clock;
    this.#calls = calls;
    this.#teller = teller;
    this.#onTroubled = onTroubled;
    this.#reaper = new Alarm(clock, () => this.#reap());
  }

  get size(): number {
    return this.#all.size;
  }

  has(id: string): boolean {
    return this.#all.has(id);
  }

  /** Takes a hold in, and watches over it from now on. */
  add(hold: Hold, hooks: AcquireHooks): void {
    this.#all.set(hold.id, hold);
    if (hooks.onTroubled !== undefined) this.#hooks.set(hold, hooks.onTroubled);
    hold.arm();
    this.#reaper.hasten(this.until);
  }

  // What the session says.

  /** A new session was asked for then. */
  opened(sent: number, grace: number): void {
    this.until = sessionDeadline(sent, grace);
  }

  /** The broker had a sign of life that was sent then. */
  proof(sent: number, grace: number): void {
    const until = sessionDeadline(sent, grace);
    if (until <= this.until && this.until !== Number.POSITIVE_INFINITY) return;
    this.#sweep();
    this.until = until;
  }

  /** Compares what is held here with what the broker says after a resume. */
  reconcile(leases: readonly Grant[], sent: number): void {
    const listed = new Map(leases.map((grant) => [grant.id, grant]));
    const wanted = new Set<unknown>(); // a call that is not answered is about it
    for (const call of this.#calls.all()) wanted.add(call.fields.id);
    const now = this.clock.look();
    for (const hold of [...this.#all.values()]) {
      const grant = listed.get(hold.id);
      hold.sweep(now);
      if (hold.lost !== undefined) continue; // given up, so that it is given back
      wanted.add(hold.id);
      const tokens = new Map(grant?.keys.map((key, i) => [key, grant.tokens[i]]));
      if (grant !== undefined && hold.keys.every((key) => tokens.has(key) && hold.holds(key, tokens.get(key)))) {
        hold.resumed(grant, sent);
        continue;
      }
      const reason = "it ended while the connection was broken";
      hold.lose(makeLoss("forced", { op: "hold", key: hold.key, reason }));
    }
    for (const id of listed.keys()) if (!wanted.has(id)) this.#calls.ours("release", { id });
  }

  /** A notice says that the broker ended one. */
  noticed(body: JsonObject): void {
    const hold = this.#all.get(text(body, "id"));
    const key = text(body, "key");
    if (hold === undefined || (key !== "" && !hold.holds(key, token(body.token)))) return;
    const code = text(body, "lost");
    const by = text(body, "by");
    const reason = noticeReasons.get(code) ?? "the broker ended it";
    hold.lose(makeLoss(code, { op: "hold", key: key || hold.key, reason: by ? `${reason}: ${by}` : reason }));
  }

  /** There is no connection any more. */
  disconnected(error: LatchkeyError): void {
    for (const hold of [...this.#all.values()]) {
      if (!hold.detached) this.troubled(hold, unavailable("the connection to the broker broke", error));
    }
  }

  /** The session ended at the broker. */
  sessionLost(): void {
    const reason = "the broker ended the session";
    for (const hold of [...this.#all.values()]) {
      if (!hold.detached) hold.lose(makeLoss("session_lost", { op: "hold", key: hold.key, reason }));
    }
  }

  /** Ends them all: the client is closed. */
  close(): void {
    for (const hold of [...this.#all.values()]) {
      const reason = "the client was closed";
      hold.lose(makeLoss("closed", { op: "hold", key: hold.key, reason }));
    }
  }

  stop(): void {
    this.#reaper.clear();
  }

  // Deadlines.

  /** Ends what is past its deadline, when the session's has passed. */
  #reap(): void {
    const now = this.clock.look();
    if (now >= this.until) this.#sweep();
    else if (this.#all.size > 0) this.#reaper.set(this.until);
  }

  #sweep(): void {
    const now = this.clock.look();
    for (const hold of [...this.#all.values()]) hold.sweep(now);
    if (this.#all.size > 0 && this.until > now) this.#reaper.hasten(this.until);
  }

  // For holds.

  command(op: Op, fields: Fields, hold?: Hold): Promise<Answer> {
    return this.#calls.command(op, fields, hold);
  }

  forget(hold: Hold): void {
    if (this.#all.get(hold.id) === hold) this.#all.delete(hold.id);
  }

  /** The release at the end of a scope was not confirmed: the hold ends with its ttl or session. */
  unconfirmed(hold: Hold, error: unknown): void {
    this.#teller.log("warn", "a release is not confirmed; the lease ends with its ttl", { key: hold.key, error });
  }

  troubled(hold: Hold, error: LatchkeyError): void {
    this.#teller.log("warn", "a lease is not confirmed; trying again until its deadline", { key: hold.key, error });
    const own = this.#hooks.get(hold);
    const all = this.#onTroubled;
    if (own !== undefined) this.#teller.guard("onTroubled", () => own(hold, error));
    if (all !== undefined) this.#teller.guard("onTroubled", () => all(hold, error));
  }
}

const noticeReasons: ReadonlyMap<string, string> = new Map([
  ["expired", "its time ran out"],
  ["forced", "an administrator took it away"],
  ["not_held", "it was released by its id from elsewhere"],
  ["session_lost", "the broker ended the session"],
]);
