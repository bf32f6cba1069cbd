/** The session of a client over connections that break: section 7 of the protocol. */

import { onAbort } from "./abort.js";
import { Acquires } from "./acquires.js";
import { type AcquireHooks, type Call, cancelled, closedError, isDone, keyOf, waits } from "./call.js";
import { Calls } from "./calls.js";
import type { Clock } from "./clock.js";
import { type Break, Connector, type ConnectorOwner, FOULS, type Opening } from "./connector.js";
import { describe, type LatchkeyError, makeError } from "./errors.js";
import type { Answer, Hold } from "./hold.js";
import { Holds } from "./holds.js";
import { CANCEL_WAIT } from "./limits.js";
import type { Link, Target } from "./link.js";
import type { Logger } from "./options.js";
import { Pulse } from "./pulse.js";
import { encodeRequest, type Fields, type Op } from "./request.js";
import { Teller } from "./teller.js";
import type { Watch } from "./watch.js";
import { Watches } from "./watches.js";
import { breach, decodeFailure, decodeLeases, type Hello, type JsonObject, type Reply, text, whole } from "./wire.js";

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

const nothing = (): void => {};

export class Session implements ConnectorOwner {
  readonly #o: SessionOptions;
  readonly #teller: Teller;
  readonly #connector: Connector;
  readonly #calls: Calls;
  readonly #pulse: Pulse;
  readonly #holds: Holds;
  readonly #acquires: Acquires;
  readonly #watches: Watches;

  #id = ""; // empty while there is no session at the broker
  #opened = false;
  #grace: number;

  #first: { resolve: () => void; reject: (error: LatchkeyError) => void } | undefined;
  #closing: Promise<void> | undefined;
  #farewell: (() => void) | undefined; // ends the wait for the goodbye's answer

  constructor(options: SessionOptions) {
    const { address, clock } = options;
    this.#o = options;
    this.#grace = options.grace;
    this.#teller = new Teller(address, options.logger);
    this.#connector = new Connector(options.target, address, clock, this);
    this.#calls = new Calls(this.#connector, address, clock);
    this.#pulse = new Pulse(this.#connector, this.#calls, clock);
    this.#holds = new Holds(this.#calls, clock, this.#teller, options.onTroubled);
    this.#acquires = new Acquires(this.#calls, this.#holds, this.#teller);
    this.#watches = new Watches(this.#calls);
  }

  get id(): string {
    return this.#id;
  }

  get connected(): boolean {
    return this.#calls.connection;
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
    this.#calls.shutDown();
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
    return !this.#calls.shut;
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
    if (!fresh) this.#holds.reconcile(leases, opening.sent);
    // Losses are told before the deadline moves, so that no hold of before looks safe for a moment.
    if (fresh) this.#holds.opened(opening.sent, this.#grace);
    else this.#holds.proof(opening.sent, this.#grace);
    if (!first) this.#teller.log("info", "connected to the broker again", { resumed: opening.resume });
    proceed();
    this.#sendAgain(link, fresh);
    this.#pulse.start(this.#grace);
    this.#first?.resolve();
    this.#first = undefined;
  }

  broke({ error, ready, hopeless }: Break): boolean {
    this.#pulse.stop();
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
    return !this.#calls.shut; // a callback may have closed the client
  }

  /** Adjusts everything to having no connection. */
  #broken(error: LatchkeyError, foul: boolean): void {
    this.#pulse.answered();
    this.#calls.broken(this.#holds.until);
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
    this.#teller.log("warn", "the connection to the broker broke", { error });
    this.#holds.disconnected(error);
    this.#calls.hasten();
  }

  /** Takes the end of the session at the broker: holds are lost, what waits stays for the next one. */
  #loseSession(): void {
    if (this.#id === "") return;
    this.#id = "";
    this.#teller.log("warn", "the broker ended the session", { holds: this.#holds.size });
    for (const call of this.#calls.all()) this.#loseCall(call);
    this.#holds.sessionLost();
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

  /** Sends everything that has no answer, in the old order. */
  #sendAgain(link: Link, fresh: boolean): void {
    this.#watches.again();
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

  acquire(fields: Fields, hooks: AcquireHooks): Promise<Hold> {
    return this.#acquires.ask(fields, hooks);
  }

  command(op: Op, fields: Fields): Promise<Answer> {
    return this.#calls.command(op, fields);
  }

  watch(fields: Fields, buffer: number): Promise<Watch> {
    return this.#watches.begin(fields, buffer);
  }

  // Answers.

  take(link: Link, reply: Reply): void {
    const { n, body } = reply;
    if (reply.kind === "lost") {
      if (text(body, "id") === "") this.#lostSession(link);
      else this.#holds.noticed(body);
      return;
    }
    if (reply.kind === "event") {
      this.#watches.push(n, body);
      return;
    }
    const call = this.#calls.get(n);
    if (call === undefined) return;
    if (reply.kind === "queued") this.#acquires.queued(call, body);
    else if (reply.kind === "failed") this.#failed(link, call, decodeFailure(body));
    else if (call.op === "acquire") this.#acquires.granted(call, body);
    else this.#succeeded(call, body);
  }

  #succeeded(call: Call, body: JsonObject): void {
    const sent = call.sent ?? call.start;
    if (call.op === "ping") {
      this.#pulse.answered();
      this.#holds.proof(sent, this.#grace);
    }
    this.#calls.resolve(call, { body, sent });
  }

  #failed(link: Link, call: Call, error: LatchkeyError): void {
    const gone = error.code === "session_lost";
    if (call.op === "ping") {
      this.#calls.drop(call);
      this.#pulse.answered();
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

  /** The broker's word that the session is gone; the next one gets a connection of its own. */
  #lostSession(link: Link): void {
    this.#loseSession();
    link.fail(makeError("session_lost", { reason: "the broker ended the session" }));
  }

  // The end.

  /** Says goodbye, which releases what is not detached, and leaves nothing behind. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#calls.shutDown();
    // The rest runs once close is marked as begun, so that no callback begins anything.
    await Promise.resolve();
    this.#clearAlarms();
    this.#holds.close();
    for (const call of this.#calls.all()) {
      const lasting = call.sent !== undefined && call.op === "acquire" && call.fields.detach;
      if (lasting) {
        const reason = "the client was closed before the answer; a grant lasts until its ttl";
        this.#calls.reject(call, makeError("unknown", { reason }));
      } else this.#calls.reject(call, closedError(call.op));
    }
    this.#watches.close();
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
        this.#teller.log("warn", "the goodbye was not answered; what was held ends with the grace", {});
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
    this.#pulse.stop();
    this.#holds.stop();
  }
}
