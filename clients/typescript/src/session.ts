/** The session of a client over connections that break: section 7 of the protocol. */

import { onAbort } from "./abort.js";
import { type AcquireHooks, type Call, cancelled, closedError, decodeEvent, isDone, keyOf, waits } from "./call.js";
import { Calls } from "./calls.js";
import { Alarm, type Clock } from "./clock.js";
import { type Break, Connector, type ConnectorOwner, FOULS, type Opening } from "./connector.js";
import { type Grant, sessionDeadline } from "./deadlines.js";
import { describe, type LatchkeyError, makeError, makeLoss, refuse } from "./errors.js";
import { type Answer, Hold, type HoldHost } from "./hold.js";
import { CANCEL_WAIT, MAX_WATCHES } from "./limits.js";
import { type Link, type Target, unavailable } from "./link.js";
import type { Logger } from "./options.js";
import { checkRequest, encodeRequest, type Fields, type Op } from "./request.js";
import { Watch } from "./watch.js";
import {
  breach,
  decodeFailure,
  decodeGrant,
  decodeHolder,
  decodeLeases,
  type Hello,
  type JsonObject,
  objects,
  type Reply,
  text,
  token,
  whole,
} from "./wire.js";

export interface SessionOptions {
  readonly address: string;
  readonly target: Target;
  readonly name: string | undefined;
  readonly host: string | undefined;
  readonly pid: number | undefined;
  readonly grace: number;
  readonly connectTimeout: number;
  readonly clock: Clock;
  readonly logger: Logger | undefined;
  readonly onTroubled: ((hold: Hold, error: LatchkeyError) => void) | undefined;
}

/** Between pings when there is no grace that would say. */
const IDLE_PING = 5000;

const nothing = (): void => {};

export class Session implements ConnectorOwner, HoldHost {
  readonly clock: Clock;
  readonly #o: SessionOptions;
  readonly #calls: Calls;
  readonly #holds = new Map<string, Hold>();
  readonly #hooks = new WeakMap<Hold, AcquireHooks>();
  readonly #waiting = new Set<string>(); // ids of acquires
  readonly #watches = new Map<number, Watch>();

  readonly #connector: Connector;

  #id = ""; // empty while there is no session at the broker
  #opened = false;
  #grace: number;
  until = Number.POSITIVE_INFINITY;

  #probe: { sent: number } | undefined; // the ping that is not answered
  readonly #pinger: Alarm;
  readonly #reaper: Alarm; // the session's deadline

  #first: { resolve: () => void; reject: (error: LatchkeyError) => void } | undefined;
  #closing: Promise<void> | undefined;
  #farewell: (() => void) | undefined; // ends the wait for the goodbye's answer

  constructor(options: SessionOptions) {
    this.#o = options;
    this.clock = options.clock;
    this.#grace = options.grace;
    this.#connector = new Connector(options.target, options.address, this.clock, this);
    this.#calls = new Calls(this.#connector, options.address, this.clock);
    this.#pinger = new Alarm(this.clock, () => this.#ping());
    this.#reaper = new Alarm(this.clock, () => this.#reap());
  }

  get id(): string {
    return this.#id;
  }

  get connected(): boolean {
    return this.#connector.line !== undefined;
  }

  /** What the broker said of itself. */
  get server(): Hello | undefined {
    return this.#connector.server;
  }

  // Connecting.

  /** Makes the first connection and opens the session: one attempt. */
  open(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        const reason = "the caller gave up";
        this.#refuseOpen(makeError("cancelled", { op: "connect", reason, cause: signal?.reason }));
      };
      let quiet = nothing;
      this.#first = {
        resolve: () => {
          quiet();
          resolve();
        },
        reject: (error) => {
          quiet();
          reject(error);
        },
      };
      if (signal?.aborted) {
        abort();
        return;
      }
      if (signal !== undefined) quiet = onAbort(signal, abort);
      this.#connector.start();
    });
  }

  #refuseOpen(error: LatchkeyError): void {
    const first = this.#first;
    this.#first = undefined;
    this.#closing ??= Promise.resolve();
    this.#clearAlarms();
    const link = this.#connector.stop();
    this.#connector.forget();
    link?.drop();
    first?.reject(error);
  }

  opening(): { n: number; fields: Fields; resume: boolean } {
    const n = this.#calls.number();
    if (this.#id !== "") return { n, fields: { resume: this.#id }, resume: true };
    const { name, host, pid } = this.#o;
    return { n, fields: { name, host, pid, grace: this.#grace }, resume: false };
  }

  patience(): number {
    const patience = this.#o.connectTimeout;
    // Time for more than one attempt while the session lives.
    return this.#opened && this.#grace > 0 ? Math.min(patience, Math.max(this.#grace / 3, 250)) : patience;
  }

  notResumed(): boolean {
    this.#loseSession();
    this.#farewell?.(); // there is nobody to say goodbye to
    return this.#closing === undefined;
  }

  opened(link: Link, opening: Opening, body: JsonObject, proceed: () => void): void {
    const id = text(body, "session");
    if (id === "") throw breach("the answer to open names no session");
    if (opening.resume && id !== this.#id) throw breach("the answer to a resume names another session");
    const elapsed = whole(body, "elapsed") ?? 0;
    const leases = [...opening.parts.map((part) => ({ ...part, elapsed })), ...decodeLeases(body, elapsed)];
    const fresh = !opening.resume;
    const first = !this.#opened;
    if (fresh) this.#grace = whole(body, "grace") ?? this.#grace;
    this.#id = id;
    this.#opened = true;
    this.#calls.connected();
    // Callers that are told of a loss may ask for something at once: it waits with what is sent again.
    if (!fresh) this.#reconcile(leases, opening.sent);
    // Losses are told before the deadline moves, so that no hold of before looks safe for a moment.
    if (fresh) this.until = sessionDeadline(opening.sent, this.#grace);
    else this.#proof(opening.sent);
    if (!first) this.#log("info", "connected to the broker again", { resumed: opening.resume });
    proceed();
    this.#sendAgain(link, fresh);
    this.#probe = undefined;
    this.#pinger.set(this.clock.now() + this.#pingEvery());
    this.#first?.resolve();
    this.#first = undefined;
  }

  broke({ error, ready, hopeless }: Break): boolean {
    this.#pinger.clear();
    if (this.#farewell !== undefined) {
      const taken = error.code === "session_lost" && !this.#connector.excuse();
      if (!ready && !taken) return true; // the next one says goodbye if it comes in time
      this.#farewell();
      return false;
    }
    if (this.#first !== undefined) {
      const reason = `no broker reached at ${this.#o.address}: ${error.reason ?? error.message}`;
      const cause = error.cause ?? error;
      const lost = error.code === "unavailable" && error.op === undefined;
      this.#refuseOpen(lost ? makeError("unavailable", { op: "connect", reason, cause }) : describe(error, "connect"));
      return false;
    }
    this.#calls.trouble = error;
    // A takeover may also be told in place of the answer to the open.
    if (ready || error.code === "session_lost") this.#broken(error, error.code === "protocol");
    if (hopeless) for (const call of this.#calls.all()) this.#calls.giveUp(call);
    return this.#closing === undefined; // a callback may have closed the client
  }

  /** Adjusts everything to having no connection. */
  #broken(error: LatchkeyError, foul: boolean): void {
    this.#probe = undefined;
    this.#calls.broken(this.until);
    if (error.code === "session_lost" && this.#id !== "" && !this.#connector.excuse()) {
      // Another connection resumed it: its holds are that one's now, and are not taken back.
      for (const call of this.#calls.all()) {
        if (call.op !== "list" && call.op !== "stats" && call.op !== "watch") {
          this.#calls.reject(call, makeError("session_lost", { reason: "another connection resumed the session" }));
        }
      }
      this.#loseSession();
    }
    for (const call of this.#calls.all()) {
      if (call.op === "ping") this.#calls.drop(call);
      if (call.sent === undefined) continue;
      call.again = true;
      if (foul && !call.told && ++call.fouls >= FOULS) this.#calls.giveUp(call);
    }
    if (this.#grace <= 0 && this.#id !== "") this.#loseSession(); // it ended with its connection
    this.#log("warn", "the connection to the broker broke", { error });
    for (const hold of [...this.#holds.values()]) {
      if (!hold.detached) this.troubled(hold, unavailable("the connection to the broker broke", error));
    }
    this.#calls.hasten();
  }

  /** Takes the end of the session at the broker: holds are lost, what waits stays for the next one. */
  #loseSession(): void {
    if (this.#id === "") return;
    this.#id = "";
    this.#log("warn", "the broker ended the session", { holds: this.#holds.size });
    const reason = "the broker ended the session";
    for (const call of this.#calls.all()) this.#loseCall(call);
    for (const hold of [...this.#holds.values()]) {
      if (!hold.detached) hold.lose(makeLoss("session_lost", { op: "hold", key: hold.key, reason }));
    }
  }

  /** Settles a call about a hold of the session that is gone. */
  #loseCall(call: Call): void {
    const answer = { body: {}, sent: call.start };
    switch (call.op) {
      case "acquire":
        if (!call.abandoned) return;
        this.#calls.drop(call);
        // The end released it, but for a grant that outlives it.
        if (call.again && call.fields.detach) this.#calls.ours("release", { id: call.fields.id });
        return;
      case "cancel":
      case "unwatch":
        this.#calls.resolve(call, answer);
        return;
      case "release":
      case "renew":
      case "detach":
        if (call.hold === undefined || call.hold.detached) return; // it outlives this session
        if (call.op === "release" && call.hold.lost === undefined) {
          this.#calls.resolve(call, answer); // if it was not carried out, the end did the same
          return;
        }
        this.#calls.reject(call, makeError("session_lost", { reason: "the session ended, and the hold with it" }));
    }
  }

  /** Compares what is held here with what the broker says after a resume. */
  #reconcile(leases: readonly Grant[], sent: number): void {
    const listed = new Map(leases.map((grant) => [grant.id, grant]));
    const wanted = new Set<unknown>(); // a call that is not answered is about it
    for (const call of this.#calls.all()) wanted.add(call.fields.id);
    const now = this.clock.look();
    for (const hold of [...this.#holds.values()]) {
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

  /** Sends everything that has no answer, in the old order. */
  #sendAgain(link: Link, fresh: boolean): void {
    for (const [n, watch] of this.#watches) {
      if (!this.#calls.has(n)) this.#calls.keep(this.#watchCall(n, this.#watchFields.get(watch) ?? {}));
    }
    for (const call of this.#calls.all()) {
      if (call.abandoned) {
        this.#calls.drop(call); // its cancel follows
        continue;
      }
      if (fresh && call.again && call.op === "acquire" && call.fields.detach) {
        // A grant that nobody was told of would be in the way until its ttl.
        link.send(encodeRequest(this.#calls.number(), "release", { id: call.fields.id }));
      }
      this.#calls.transmit(link, call);
    }
  }

  // Calls.

  /** Asks for a lease. */
  acquire(fields: Fields, hooks: AcquireHooks): Promise<Hold> {
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
      this.#submit(call);
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

  /** Runs one command and resolves with its answer. */
  command(op: Op, fields: Fields, hold?: Hold): Promise<Answer> {
    return new Promise((resolve, reject) => {
      checkRequest(op, fields);
      const key = hold?.key ?? (fields.key as string | undefined);
      this.#submit(
        this.#calls.make(op, fields, { hold, resolve, reject: (error) => reject(describe(error, op, key)) }),
      );
    });
  }

  /** Begins a watch; the promise resolves when the broker has it. */
  watch(fields: Fields, buffer: number): Promise<Watch> {
    return new Promise((resolve, reject) => {
      checkRequest("watch", fields);
      if (this.#watches.size >= MAX_WATCHES) throw refuse(`at most ${MAX_WATCHES} watches of a client (MaxWatches)`);
      const watch = new Watch(buffer, () => this.#unwatch(call.n));
      const call = this.#calls.make("watch", fields, {
        resolve: () => {
          this.#watches.set(call.n, watch);
          this.#watchFields.set(watch, fields);
          resolve(watch);
        },
        reject: (error) => reject(describe(error, "watch")),
      });
      this.#submit(call);
    });
  }

  readonly #watchFields = new WeakMap<Watch, Fields>();

  /** The call that begins a watch again on another connection. */
  #watchCall(n: number, fields: Fields): Call {
    return {
      ...this.#calls.make("watch", fields, {
        ours: true,
        resolve: () => this.#watches.get(n)?.gap(),
        reject: (error) => {
          this.#watches.get(n)?.end(error);
          this.#watches.delete(n);
        },
      }),
      n,
    };
  }

  async #unwatch(n: number): Promise<void> {
    this.#watches.delete(n);
    const call = this.#calls.get(n);
    if (call !== undefined) this.#calls.drop(call);
    if (this.#connector.line === undefined) return; // the next connection does not begin it
    await this.command("unwatch", { watch: n }).catch(nothing);
  }

  #submit(call: Call): void {
    if (this.#closing !== undefined) throw closedError(call.op);
    this.#calls.submit(call);
  }

  // Answers.

  take(link: Link, reply: Reply): void {
    const { n, body } = reply;
    switch (reply.kind) {
      case "lost":
        this.#noticed(link, body);
        return;
      case "event":
        this.#watches.get(n)?.push(decodeEvent(body));
        return;
      case "queued":
        this.#queued(n, body);
        return;
      case "ok": {
        const call = this.#calls.get(n);
        if (call !== undefined) this.#succeeded(call, body);
        return;
      }
      case "failed": {
        const call = this.#calls.get(n);
        if (call !== undefined) this.#failed(link, call, decodeFailure(body));
      }
    }
  }

  #queued(n: number, body: JsonObject): void {
    const call = this.#calls.get(n);
    if (call === undefined || call.told) return; // what is sent again is queued again
    call.told = true;
    const f = call.hooks?.onQueued;
    if (f === undefined || call.abandoned) return;
    const queued = {
      key: text(body, "key"),
      position: whole(body, "position") ?? 0,
      ahead: objects(body, "ahead").map(decodeHolder),
    };
    this.#guard("onQueued", () => f(queued));
  }

  #succeeded(call: Call, body: JsonObject): void {
    const sent = call.sent ?? call.start;
    if (call.op !== "acquire") {
      if (call.op === "ping") {
        this.#probe = undefined;
        this.#proof(sent);
      }
      this.#calls.resolve(call, { body, sent });
      return;
    }
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
    const hold = new Hold(this, grant, sent, hooks.renew);
    if (this.clock.now() >= hold.safeUntil) {
      // Giving it back is kinder than letting the key idle until the broker ends it.
      this.#calls.ours("release", { id: grant.id });
      const reason = "the grant arrived when its time was already up; it was given back";
      call.reject(makeError("expired", { reason }));
      return;
    }
    this.#holds.set(hold.id, hold);
    if (hooks.onTroubled !== undefined) this.#hooks.set(hold, hooks);
    hold.arm();
    this.#reaper.hasten(this.until);
    call.resolve({ body, sent }, hold);
  }

  #failed(link: Link, call: Call, error: LatchkeyError): void {
    const gone = error.code === "session_lost";
    if (call.op === "ping") {
      this.#calls.drop(call);
      this.#probe = undefined;
      if (!gone) {
        link.fail(error); // a broker that closes; the next one will say
        return;
      }
    } else if (call.op === "acquire" && !call.abandoned && (gone || (error.code === "closed" && waits(call)))) {
      // Nothing was done, and nothing is lost by asking again once there is a connection.
      call.sent = undefined;
    } else if (isDone(call, error)) {
      this.#calls.resolve(call, { body: {}, sent: call.start });
    } else if (call.abandoned && error.code !== "unknown") {
      this.#calls.reject(call, cancelled(keyOf(call), call.hooks?.signal?.reason));
    } else {
      this.#calls.reject(call, error);
    }
    if (gone) this.#lostSession(link);
  }

  #noticed(link: Link, body: JsonObject): void {
    const id = text(body, "id");
    if (id === "") {
      this.#lostSession(link);
      return;
    }
    const hold = this.#holds.get(id);
    const key = text(body, "key");
    if (hold === undefined || (key !== "" && !hold.holds(key, token(body.token)))) return;
    const code = text(body, "lost");
    const by = text(body, "by");
    const reason = noticeReasons.get(code) ?? "the broker ended it";
    hold.lose(makeLoss(code, { op: "hold", key: key || hold.key, reason: by ? `${reason}: ${by}` : reason }));
  }

  /** The broker's word that the session is gone; the next one gets a connection of its own. */
  #lostSession(link: Link): void {
    this.#loseSession();
    link.fail(makeError("session_lost", { reason: "the broker ended the session" }));
  }

  // Signs of life.

  /** The broker had a sign of life that was sent then. */
  #proof(sent: number): void {
    const until = sessionDeadline(sent, this.#grace);
    if (until <= this.until && this.until !== Number.POSITIVE_INFINITY) return;
    this.#sweep();
    this.until = until;
  }

  #pingEvery(): number {
    return this.#grace > 0 ? Math.max(this.#grace / 3, 1) : IDLE_PING;
  }

  #ping(): void {
    const link = this.#connector.line;
    if (link === undefined) return;
    const now = this.clock.look();
    if (this.#probe === undefined) {
      this.#probe = { sent: now };
      this.#calls.ours("ping", {});
    } else if (this.#connector.heard ? this.#grace > 0 && now - this.#probe.sent >= this.#grace : true) {
      // A process that stood still has not looked yet at what came: let it read first.
      const probe = this.#probe;
      const heard = this.#connector.heard;
      setImmediate(() => {
        if (this.#connector.line !== link || this.#probe !== probe || (!heard && this.#connector.heard)) return;
        link.fail(unavailable("the broker answers no ping"));
      });
    }
    this.#connector.heard = false;
    this.#pinger.set(this.clock.now() + this.#pingEvery());
  }

  /** Ends what is past its deadline, when the session's has passed. */
  #reap(): void {
    const now = this.clock.look();
    if (now >= this.until) this.#sweep();
    else if (this.#holds.size > 0) this.#reaper.set(this.until);
  }

  #sweep(): void {
    const now = this.clock.look();
    for (const hold of [...this.#holds.values()]) hold.sweep(now);
    if (this.#holds.size > 0 && this.until > now) this.#reaper.hasten(this.until);
  }

  // For holds.

  forget(hold: Hold): void {
    if (this.#holds.get(hold.id) === hold) this.#holds.delete(hold.id);
  }

  /** The release at the end of a scope was not confirmed: the hold ends with its ttl or session. */
  unconfirmed(hold: Hold, error: unknown): void {
    this.#log("warn", "a release is not confirmed; the lease ends with its ttl", { key: hold.key, error });
  }

  troubled(hold: Hold, error: LatchkeyError): void {
    this.#log("warn", "a lease is not confirmed; trying again until its deadline", { key: hold.key, error });
    const own = this.#hooks.get(hold)?.onTroubled;
    const all = this.#o.onTroubled;
    if (own !== undefined) this.#guard("onTroubled", () => own(hold, error));
    if (all !== undefined) this.#guard("onTroubled", () => all(hold, error));
  }

  // The end.

  /** Says goodbye, which releases what is not detached, and leaves nothing behind. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    // The rest runs once close is marked as begun, so that no callback begins anything.
    await Promise.resolve();
    this.#clearAlarms();
    for (const hold of [...this.#holds.values()]) {
      const reason = "the client was closed";
      hold.lose(makeLoss("closed", { op: "hold", key: hold.key, reason }));
    }
    for (const call of this.#calls.all()) {
      const lasting = call.sent !== undefined && call.op === "acquire" && call.fields.detach;
      if (lasting) {
        const reason = "the client was closed before the answer; a grant lasts until its ttl";
        this.#calls.reject(call, makeError("unknown", { reason }));
      } else this.#calls.reject(call, closedError(call.op));
    }
    for (const watch of this.#watches.values()) watch.end(closedError("watch"));
    this.#watches.clear();
    if (this.#id !== "") await this.#goodbye();
    this.#clearAlarms();
    const link = this.#connector.stop();
    this.#connector.forget();
    link?.drop();
    await link?.gone();
  }

  /** Without a connection, the next one says it if it comes in time: others may wait for what was held. */
  #goodbye(): Promise<void> {
    return new Promise((resolve) => {
      const limit = setTimeout(() => {
        this.#log("warn", "the goodbye was not answered; what was held ends with the grace", {});
        this.#farewell?.();
      }, CANCEL_WAIT);
      this.#farewell = () => {
        clearTimeout(limit);
        resolve();
      };
      const done = (): void => this.#farewell?.();
      this.#calls.ours("close", {}, { resolve: done, reject: done });
      this.#connector.hasten();
    });
  }

  #clearAlarms(): void {
    this.#calls.stop();
    for (const alarm of [this.#pinger, this.#reaper]) alarm.clear();
  }

  #guard(what: string, f: () => unknown): void {
    const threw = (error: unknown): void => this.#log("warn", `${what} threw`, { error });
    try {
      const result = f();
      // A function that returns a promise passes for one that returns nothing.
      if (result instanceof Promise) result.catch(threw);
    } catch (error) {
      threw(error);
    }
  }

  #log(level: "info" | "warn", message: string, details: Record<string, unknown>): void {
    try {
      this.#o.logger?.[level](`latchkey: ${message}`, { broker: this.#o.address, ...details });
    } catch {
      // A logger that throws must not end a lease.
    }
  }
}

const noticeReasons: ReadonlyMap<string, string> = new Map([
  ["expired", "its time ran out"],
  ["forced", "an administrator took it away"],
  ["not_held", "it was released by its id from elsewhere"],
  ["session_lost", "the broker ended the session"],
]);

/** How many of its keys a grant does not have; undefined if it has others, or one twice. */
function missingKeys(granted: readonly string[], fields: Fields): number | undefined {
  const left = new Set(fields.keys === undefined ? [fields.key] : (fields.keys as string[]));
  return granted.every((key) => left.delete(key)) ? left.size : undefined;
}
