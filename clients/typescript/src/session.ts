/** The session of a client over connections that break: section 7 of the protocol. */

import { Alarm, type Clock } from "./clock.js";
import { type Grant, sessionDeadline } from "./deadlines.js";
import { describe, type LatchkeyError, makeError, refuse } from "./errors.js";
import { type Answer, Hold, type HoldHost } from "./hold.js";
import { CANCEL_WAIT, DEFAULT_GRACE, MAX_IN_FLIGHT, MAX_UNSENT_BYTES, MAX_WATCHES } from "./limits.js";
import { Link, type LinkOwner, type Target, unavailable } from "./link.js";
import type { Logger, Queued } from "./options.js";
import { checkFrame, checkRequest, encodeRequest, type Fields, type Op } from "./request.js";
import { Watch, type WatchEvent } from "./watch.js";
import {
  breach,
  decodeFailure,
  decodeGrant,
  decodeHello,
  decodeHolder,
  decodeLeases,
  decodeReply,
  HELLO,
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

export interface AcquireHooks {
  readonly renew: boolean;
  readonly signal: AbortSignal | undefined;
  readonly onQueued: ((queued: Queued) => void) | undefined;
  readonly onTroubled: ((hold: Hold, error: LatchkeyError) => void) | undefined;
}

/** One request, from when it is made to its answer. It keeps its `n` on every connection. */
interface Call {
  readonly n: number;
  readonly op: Op;
  readonly fields: Fields;
  readonly start: number;
  /** When it was last sent; undefined while the broker has certainly not seen it. */
  sent: number | undefined;
  /** It was sent on an earlier connection, so that it may have been carried out. */
  again: boolean;
  /** `queued` was told. */
  told: boolean;
  /** Connections that ended in a breach of the protocol while it was on them. */
  fouls: number;
  /** Nobody waits for it; the session sent it. */
  readonly ours: boolean;
  /** The caller gave up; its cancel is on the way. */
  abandoned: boolean;
  readonly hold: Hold | undefined;
  readonly hooks: AcquireHooks | undefined;
  readonly resolve: (answer: Answer, hold?: Hold) => void;
  readonly reject: (error: LatchkeyError) => void;
}

const FIRST_PAUSE = 20;
const LONGEST_PAUSE = 1000;
/** What a connection must live for the pauses to start small again. */
const SETTLED_LIFE = 100;
/** Breaches of the protocol in a row after which callers are told rather than kept waiting. */
const FOULS = 3;
/** Between pings when there is no grace that would say. */
const IDLE_PING = 5000;

const nothing = (): void => {};

export class Session implements LinkOwner, HoldHost {
  readonly clock: Clock;
  readonly #o: SessionOptions;
  readonly #calls = new Map<number, Call>();
  readonly #holds = new Map<string, Hold>();
  readonly #hooks = new WeakMap<Hold, AcquireHooks>();
  readonly #waiting = new Set<string>(); // ids of acquires
  readonly #watches = new Map<number, Watch>();
  #lastN = 0;

  #link: Link | undefined;
  #ready = false; // the session is open on the link
  #linkedAt = 0;
  #hello: Hello | undefined; // of this connection
  #greeting: { n: number; sent: number; resume: boolean; parts: Grant[] } | undefined;
  #greetFouls = 0;
  #pauseNext = 0;
  #trouble: LatchkeyError | undefined; // why there is no connection
  #patient = 0; // until when calls that cannot wait are kept without one

  #id = ""; // empty while there is no session at the broker
  #opened = false;
  #grace: number;
  until = Number.POSITIVE_INFINITY;

  #probe: { sent: number } | undefined; // the ping that is not answered
  #heard = false; // something came since the last tick
  readonly #attempt: Alarm; // bounds an attempt to connect, and the pause before it
  readonly #pinger: Alarm;
  readonly #reaper: Alarm; // the session's deadline
  readonly #overdue: Alarm; // gives calls up without a connection

  #first: { resolve: () => void; reject: (error: LatchkeyError) => void } | undefined;
  #closing: Promise<void> | undefined;
  #farewell: (() => void) | undefined; // ends the wait for the goodbye's answer

  /** What the broker said of itself. */
  server: Hello | undefined;

  constructor(options: SessionOptions) {
    this.#o = options;
    this.clock = options.clock;
    this.#grace = options.grace;
    this.#attempt = new Alarm(this.clock, () => this.#attemptDue());
    this.#pinger = new Alarm(this.clock, () => this.#ping());
    this.#reaper = new Alarm(this.clock, () => this.#reap());
    this.#overdue = new Alarm(this.clock, () => this.#giveUpOverdue());
  }

  get id(): string {
    return this.#id;
  }

  get connected(): boolean {
    return this.#ready;
  }

  // Connecting.

  /** Makes the first connection and opens the session: one attempt. */
  open(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        const reason = "the caller gave up";
        this.#refuseOpen(makeError("cancelled", { op: "connect", reason, cause: signal?.reason }));
      };
      this.#first = {
        resolve: () => {
          signal?.removeEventListener("abort", abort);
          resolve();
        },
        reject: (error) => {
          signal?.removeEventListener("abort", abort);
          reject(error);
        },
      };
      if (signal?.aborted) {
        abort();
        return;
      }
      signal?.addEventListener("abort", abort, { once: true });
      this.#connect();
    });
  }

  #refuseOpen(error: LatchkeyError): void {
    const first = this.#first;
    this.#first = undefined;
    this.#closing ??= Promise.resolve();
    this.#clearAlarms();
    const link = this.#link;
    this.#link = undefined;
    link?.drop();
    first?.reject(error);
  }

  #connect(): void {
    this.#hello = undefined;
    this.#greeting = undefined;
    this.#link = new Link(this.#o.target, this);
    let patience = this.#o.connectTimeout;
    // Time for more than one attempt while the session lives.
    if (this.#opened && this.#grace > 0) patience = Math.min(patience, Math.max(this.#grace / 3, 250));
    this.#attempt.set(this.clock.now() + patience);
  }

  #attemptDue(): void {
    if (this.#link === undefined) this.#connect();
    else if (!this.#ready) this.#link.fail(unavailable(`no answer from ${this.#o.address} in time`));
  }

  linkUp(link: Link): void {
    link.send(HELLO);
    this.#greet(link);
  }

  #greet(link: Link): void {
    const n = ++this.#lastN;
    const resume = this.#id !== "";
    const { name, host, pid } = this.#o;
    this.#greeting = { n, sent: this.clock.now(), resume, parts: [] };
    const fields = resume ? { resume: this.#id } : { name, host, pid, grace: this.#grace };
    link.send(encodeRequest(n, "open", fields));
  }

  linkLine(link: Link, line: Buffer): void {
    if (link !== this.#link) return;
    this.#heard = true;
    if (this.#hello === undefined) {
      this.#hello = decodeHello(line);
      this.server = this.#hello;
      return;
    }
    const reply = decodeReply(line);
    if (reply.kind === "failed" && reply.n === 0) {
      link.fail(decodeFailure(reply.body)); // the last frame of a connection
      return;
    }
    if (this.#ready) this.#take(link, reply);
    else this.#greeted(link, reply);
  }

  #greeted(link: Link, reply: Reply): void {
    const g = this.#greeting;
    if (g === undefined || reply.n !== g.n) return;
    if (reply.kind === "part") {
      g.parts.push(...decodeLeases(reply.body, 0));
    } else if (reply.kind === "ok") {
      this.#install(link, g, reply.body);
    } else if (reply.kind === "failed") {
      const error = decodeFailure(reply.body);
      if (!g.resume || error.code !== "session_lost") {
        link.fail(error);
        return;
      }
      this.#loseSession();
      if (link === this.#link) this.#greet(link);
    }
  }

  /** Puts a connection with an open session to use. */
  #install(link: Link, g: { sent: number; resume: boolean; parts: Grant[] }, body: JsonObject): void {
    const id = text(body, "session");
    if (id === "") throw breach("the answer to open names no session");
    const elapsed = whole(body, "elapsed") ?? 0;
    const leases = [...g.parts.map((part) => ({ ...part, elapsed })), ...decodeLeases(body, elapsed)];
    const grace = whole(body, "grace");
    if (!g.resume) this.#grace = grace ?? this.#grace;
    const fresh = !g.resume;
    const first = !this.#opened;
    this.#id = id;
    this.#opened = true;
    this.#ready = true;
    this.#linkedAt = this.clock.now();
    this.#greeting = undefined;
    this.#greetFouls = 0;
    this.#trouble = undefined;
    this.#attempt.clear();
    this.#overdue.clear();
    if (g.resume) this.#reconcile(leases, g.sent);
    // Losses are told before the deadline moves, so that no hold of before looks safe for a moment.
    if (fresh) this.until = sessionDeadline(g.sent, this.#grace);
    else this.#proof(g.sent);
    if (!first) this.#log("info", "connected to the broker again", { resumed: g.resume });
    this.#sendAgain(link, fresh);
    this.#probe = undefined;
    this.#pinger.set(this.clock.now() + this.#pingEvery());
    this.#first?.resolve();
    this.#first = undefined;
  }

  linkDown(link: Link, error: LatchkeyError): void {
    if (link !== this.#link) return;
    const wasReady = this.#ready;
    this.#link = undefined;
    this.#ready = false;
    this.#pinger.clear();
    this.#attempt.clear();
    if (this.#farewell !== undefined) {
      this.#farewell();
      return;
    }
    if (this.#first !== undefined) {
      const reason = `no broker reached at ${this.#o.address}: ${error.reason ?? error.message}`;
      const cause = error.cause ?? error;
      if (error.code === "unavailable" && error.op === undefined) {
        this.#refuseOpen(makeError("unavailable", { op: "connect", reason, cause }));
      } else {
        this.#refuseOpen(describe(error, "connect"));
      }
      return;
    }
    this.#trouble = error;
    const foul = error.code === "protocol";
    if (wasReady) {
      if (this.clock.now() - this.#linkedAt >= SETTLED_LIFE) this.#pauseNext = 0;
      this.#broken(error, foul);
    } else if (foul && ++this.#greetFouls >= FOULS) {
      this.#greetFouls = 0;
      for (const call of [...this.#calls.values()]) this.#giveUp(call);
    }
    if (this.#closing !== undefined) return; // a callback closed the client
    const pause = this.#pauseNext;
    this.#pauseNext = Math.min(Math.max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE);
    // Between half of a pause and all of it, so that many clients do not come back in step.
    this.#attempt.set(this.clock.now() + (pause / 2) * (1 + Math.random()));
  }

  /** Adjusts everything to having no connection. */
  #broken(error: LatchkeyError, foul: boolean): void {
    this.#probe = undefined;
    const now = this.clock.now();
    this.#patient = this.until === Number.POSITIVE_INFINITY ? now + DEFAULT_GRACE : this.until;
    if (error.code === "session_lost" && this.#id !== "") {
      // Another connection resumed it: its holds are that one's now, and are not taken back.
      for (const call of [...this.#calls.values()]) {
        if (call.op !== "list" && call.op !== "stats" && call.op !== "watch") {
          this.#reject(call, makeError("session_lost", { reason: "another connection resumed the session" }));
        }
      }
      this.#loseSession();
    }
    for (const call of [...this.#calls.values()]) {
      if (call.op === "ping") this.#drop(call);
      if (call.sent === undefined) continue;
      call.again = true;
      if (foul && !call.told && ++call.fouls >= FOULS) this.#giveUp(call);
    }
    if (this.#grace <= 0 && this.#id !== "") this.#loseSession(); // it ended with its connection
    this.#log("warn", "the connection to the broker broke", { error });
    for (const hold of [...this.#holds.values()]) {
      if (!hold.detached) this.troubled(hold, unavailable("the connection to the broker broke", error));
    }
    for (const call of this.#calls.values()) this.#overdue.hasten(this.#due(call));
  }

  /** Takes the end of the session at the broker: holds are lost, what waits stays for the next one. */
  #loseSession(): void {
    if (this.#id === "") return;
    this.#id = "";
    this.#log("warn", "the broker ended the session", { holds: this.#holds.size });
    const reason = "the broker ended the session";
    for (const call of [...this.#calls.values()]) this.#loseCall(call);
    for (const hold of [...this.#holds.values()]) {
      if (!hold.detached) hold.lose(makeError("session_lost", { op: "hold", key: hold.key, reason }));
    }
  }

  /** Settles a call about a hold of the session that is gone. */
  #loseCall(call: Call): void {
    const answer = { body: {}, sent: call.start };
    switch (call.op) {
      case "acquire":
        if (!call.abandoned) return;
        this.#drop(call);
        // The end released it, but for a grant that outlives it.
        if (call.again && call.fields.detach) this.#ours("release", { id: call.fields.id });
        return;
      case "cancel":
      case "unwatch":
        this.#resolve(call, answer);
        return;
      case "release":
      case "renew":
      case "detach":
        if (call.hold === undefined || call.hold.detached) return; // it outlives this session
        if (call.op === "release" && call.hold.lost === undefined) {
          this.#resolve(call, answer); // if it was not carried out, the end did the same
          return;
        }
        this.#reject(call, makeError("session_lost", { reason: "the session ended, and the hold with it" }));
    }
  }

  /** Compares what is held here with what the broker says after a resume. */
  #reconcile(leases: readonly Grant[], sent: number): void {
    const listed = new Map(leases.map((grant) => [grant.id, grant]));
    const wanted = new Set<unknown>(); // a call that is not answered is about it
    for (const call of this.#calls.values()) wanted.add(call.fields.id);
    const now = this.clock.look();
    for (const hold of [...this.#holds.values()]) {
      const grant = listed.get(hold.id);
      wanted.add(hold.id);
      hold.sweep(now);
      if (hold.lost !== undefined) continue;
      const tokens = new Map(grant?.keys.map((key, i) => [key, grant.tokens[i]]));
      if (grant !== undefined && hold.keys.every((key) => tokens.has(key) && hold.holds(key, tokens.get(key)))) {
        hold.resumed(grant, sent);
        continue;
      }
      const reason = "it ended while the connection was broken";
      hold.lose(makeError("forced", { op: "hold", key: hold.key, reason }));
    }
    for (const id of listed.keys()) if (!wanted.has(id)) this.#ours("release", { id });
  }

  /** Sends everything that has no answer, in the old order. */
  #sendAgain(link: Link, fresh: boolean): void {
    for (const [n, watch] of this.#watches) {
      if (!this.#calls.has(n)) this.#calls.set(n, this.#watchCall(n, this.#watchFields.get(watch) ?? {}));
    }
    for (const call of [...this.#calls.values()]) {
      if (call.abandoned) {
        this.#drop(call); // its cancel follows
        continue;
      }
      if (fresh && call.again && call.op === "acquire" && call.fields.detach) {
        // A grant that nobody was told of would be in the way until its ttl.
        link.send(encodeRequest(++this.#lastN, "release", { id: call.fields.id }));
      }
      this.#transmit(link, call);
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
      let abort: (() => void) | undefined;
      const done = (): void => {
        this.#waiting.delete(id);
        if (abort !== undefined) hooks.signal?.removeEventListener("abort", abort);
      };
      const call = this.#newCall("acquire", fields, {
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
        abort = () => this.#abandon(call, key, hooks.signal?.reason);
        hooks.signal.addEventListener("abort", abort, { once: true });
      }
    });
  }

  /** Takes a request back whose caller gave up. */
  #abandon(call: Call, key: string, cause: unknown): void {
    if (!this.#calls.has(call.n)) return;
    if (call.sent === undefined) {
      this.#reject(call, cancelled(key, cause));
      return;
    }
    call.abandoned = true;
    const finish = (error: LatchkeyError): void => {
      clearTimeout(limit);
      this.#drop(call);
      call.reject(error);
    };
    const unknown = (reason: string): LatchkeyError =>
      makeError("unknown", { op: "acquire", key, reason: `${reason}; a grant ends with its ttl`, cause });
    // The cancel stays on its way also when nobody waits for its answer any more.
    const limit = setTimeout(() => call.reject(unknown("the cancel was not answered")), CANCEL_WAIT);
    this.#ours(
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
      this.#submit(this.#newCall(op, fields, { hold, resolve, reject: (error) => reject(describe(error, op, key)) }));
    });
  }

  /** Begins a watch; the promise resolves when the broker has it. */
  watch(fields: Fields, buffer: number): Promise<Watch> {
    return new Promise((resolve, reject) => {
      checkRequest("watch", fields);
      if (this.#watches.size >= MAX_WATCHES) throw refuse(`at most ${MAX_WATCHES} watches of a client (MaxWatches)`);
      const watch = new Watch(buffer, () => this.#unwatch(call.n));
      const call = this.#newCall("watch", fields, {
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
      ...this.#newCall("watch", fields, {
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
    if (call !== undefined) this.#drop(call);
    if (!this.#ready) return; // the next connection does not begin it
    await this.command("unwatch", { watch: n }).catch(nothing);
  }

  #newCall(op: Op, fields: Fields, more: Partial<Call>): Call {
    return {
      n: ++this.#lastN,
      op,
      fields,
      start: this.clock.now(),
      sent: undefined,
      again: false,
      told: false,
      fouls: 0,
      ours: false,
      abandoned: false,
      hold: undefined,
      hooks: undefined,
      resolve: nothing,
      reject: nothing,
      ...more,
    };
  }

  /** Sends a call that is the session's own. */
  #ours(op: Op, fields: Fields, more: Partial<Call> = {}): void {
    const call = this.#newCall(op, fields, { ours: true, ...more });
    this.#calls.set(call.n, call);
    if (this.#ready && this.#link !== undefined) this.#transmit(this.#link, call);
  }

  /** Sends a call, keeps it for the next connection, or throws. */
  #submit(call: Call): void {
    if (this.#closing !== undefined) throw closedError(call.op);
    if (this.#calls.size >= MAX_IN_FLIGHT) {
      throw refuse(`${this.#calls.size} requests have no answer yet, no more are allowed (MaxInFlight)`, {
        op: call.op,
      });
    }
    const link = this.#ready ? this.#link : undefined;
    if (link === undefined && !waits(call) && call.start >= this.#patient) {
      throw makeError("unavailable", { op: call.op, reason: this.#away(), cause: this.#trouble });
    }
    if (link !== undefined && link.unsent > MAX_UNSENT_BYTES) {
      const reason = "the broker does not read what is sent (MaxUnsent)";
      throw makeError("unavailable", { op: call.op, reason });
    }
    // Nothing else can grow beyond a frame.
    if (call.fields.keys !== undefined || call.fields.declared !== undefined) {
      checkFrame(encodeRequest(call.n, call.op, call.fields), call.op);
    }
    this.#calls.set(call.n, call);
    if (link !== undefined) this.#transmit(link, call);
    else this.#overdue.hasten(this.#due(call));
  }

  #away(): string {
    return `the broker at ${this.#o.address} cannot be reached`;
  }

  #transmit(link: Link, call: Call): void {
    const now = this.clock.now();
    let fields = call.fields;
    const age = Math.floor(now - call.start);
    if (call.op === "acquire" && age >= 1) {
      fields = { ...fields, waited: age };
      if (typeof fields.wait === "number") fields.wait = Math.max(fields.wait - age, 1);
    }
    call.sent = now;
    link.send(encodeRequest(call.n, call.op, fields));
  }

  #drop(call: Call): void {
    this.#calls.delete(call.n);
  }

  #resolve(call: Call, answer: Answer): void {
    this.#drop(call);
    call.resolve(answer);
  }

  #reject(call: Call, error: LatchkeyError): void {
    this.#drop(call);
    call.reject(error);
  }

  /** Until when a call is kept without a connection. */
  #due(call: Call): number {
    if (call.ours) return Number.POSITIVE_INFINITY;
    if (!waits(call)) return this.#patient;
    return typeof call.fields.wait === "number" ? call.start + call.fields.wait : Number.POSITIVE_INFINITY;
  }

  #giveUpOverdue(): void {
    if (this.#ready) return;
    const now = this.clock.now();
    for (const call of [...this.#calls.values()]) if (this.#due(call) <= now) this.#giveUp(call);
    for (const call of this.#calls.values()) this.#overdue.hasten(this.#due(call));
  }

  /** Answers a call while there is no connection. What was sent has an outcome that cannot be known. */
  #giveUp(call: Call): void {
    if (call.ours) return;
    const cause = this.#trouble;
    const foul = cause?.code === "protocol" ? `: ${cause.message}` : "";
    if (call.sent === undefined) {
      const code = foul ? "protocol" : waits(call) ? "timeout" : "unavailable";
      this.#reject(call, makeError(code, { reason: this.#away() + foul, cause }));
      return;
    }
    this.#reject(call, makeError("unknown", { reason: this.#away() + foul, cause }));
    // The next connection undoes it.
    if (call.op === "acquire" && !call.abandoned) this.#ours("cancel", { id: call.fields.id });
  }

  // Answers.

  #take(link: Link, reply: Reply): void {
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
      this.#resolve(call, { body, sent });
      return;
    }
    const grant = decodeGrant(body); // a breach leaves the call to be asked again
    if (grant.id !== call.fields.id) throw breach("a grant names another id than the request");
    this.#drop(call);
    if (call.abandoned) {
      this.#calls.set(call.n, call); // it crossed the cancel, which releases it
      return;
    }
    const hooks = call.hooks as AcquireHooks;
    const hold = new Hold(this, grant, sent, hooks.renew);
    if (this.clock.now() >= hold.safeUntil) {
      // Giving it back is kinder than letting the key idle until the broker ends it.
      this.#ours("release", { id: grant.id });
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
      this.#drop(call);
      this.#probe = undefined;
      if (!gone) {
        link.fail(error); // a broker that closes; the next one will say
        return;
      }
    } else if (call.op === "acquire" && !call.abandoned && (gone || (error.code === "closed" && waits(call)))) {
      // Nothing was done, and nothing is lost by asking again once there is a connection.
      call.sent = undefined;
    } else if (isDone(call, error)) {
      this.#resolve(call, { body: {}, sent: call.start });
    } else if (call.abandoned && error.code !== "unknown") {
      this.#reject(call, cancelled(keyOf(call), call.hooks?.signal?.reason));
    } else {
      this.#reject(call, error);
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
    hold.lose(makeError(code, { op: "hold", key: key || hold.key, reason: by ? `${reason}: ${by}` : reason }));
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
    if (!this.#ready || this.#link === undefined) return;
    const link = this.#link;
    const now = this.clock.look();
    if (this.#probe === undefined) {
      this.#probe = { sent: now };
      this.#ours("ping", {});
    } else if (this.#heard ? this.#grace > 0 && now - this.#probe.sent >= this.#grace : true) {
      // A process that stood still has not looked yet at what came: let it read first.
      const probe = this.#probe;
      const heard = this.#heard;
      setImmediate(() => {
        if (this.#link !== link || this.#probe !== probe || (!heard && this.#heard)) return;
        link.fail(unavailable("the broker answers no ping"));
      });
    }
    this.#heard = false;
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
    const link = this.#link;
    const ready = this.#ready;
    this.#clearAlarms();
    for (const hold of [...this.#holds.values()]) {
      const reason = "the client was closed";
      hold.lose(makeError("closed", { op: "hold", key: hold.key, reason }));
    }
    for (const call of [...this.#calls.values()]) {
      const lasting = call.sent !== undefined && call.op === "acquire" && call.fields.detach;
      if (lasting) {
        const reason = "the client was closed before the answer; a grant lasts until its ttl";
        this.#reject(call, makeError("unknown", { reason }));
      } else this.#reject(call, closedError(call.op));
    }
    for (const watch of this.#watches.values()) watch.end(closedError("watch"));
    this.#watches.clear();
    if (link === undefined) return;
    if (ready) await this.#goodbye(link);
    this.#ready = false;
    this.#link = undefined;
    link.drop();
    await link.gone();
  }

  #goodbye(link: Link): Promise<void> {
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
      this.#ours("close", {}, { resolve: done, reject: done });
      if (link !== this.#link) done();
    });
  }

  #clearAlarms(): void {
    for (const alarm of [this.#attempt, this.#pinger, this.#reaper, this.#overdue]) alarm.clear();
  }

  #guard(what: string, f: () => void): void {
    try {
      f();
    } catch (error) {
      this.#log("warn", `${what} threw`, { error });
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

/** Whether a call may wait for its turn, and so for a broker that is away. */
function waits(call: Call): boolean {
  return call.op === "acquire" && !call.fields.try;
}

/** Whether a failure says that the first sending had done it. */
function isDone(call: Call, error: LatchkeyError): boolean {
  if (error.code !== "not_held" && error.code !== "over") return false;
  if (call.op === "cancel") return true;
  return call.op === "release" && call.again && (call.hold === undefined || call.hold.lost === undefined);
}

/** The first key of a request, for errors. */
function keyOf(call: { readonly fields: Fields }): string {
  return (call.fields.key ?? (call.fields.keys as string[])[0]) as string;
}

function decodeEvent(body: JsonObject): WatchEvent {
  const out: Record<string, unknown> = { event: body.event };
  for (const name of ["key", "session", "host", "label", "mode", "code"]) {
    if (body[name] !== undefined) out[name] = text(body, name);
  }
  for (const name of ["pid", "max", "after"]) if (body[name] !== undefined) out[name] = whole(body, name);
  const t = token(body.token);
  if (t !== undefined) out.token = t;
  return out as unknown as WatchEvent;
}

function cancelled(key: string, cause: unknown): LatchkeyError {
  return makeError("cancelled", { op: "acquire", key, reason: "the caller gave up; nothing is held or queued", cause });
}

function closedError(op: string): LatchkeyError {
  return makeError("closed", { op, reason: "the client was closed" });
}
