/** The requests of a client that have no answer: made, sent, sent again, given up. */

import { type Call, closedError, waits } from "./call.js";
import { Alarm, type Clock } from "./clock.js";
import type { Connector } from "./connector.js";
import { describe, type LatchkeyError, makeError, refuse } from "./errors.js";
import type { Answer, Hold } from "./hold.js";
import { DEFAULT_GRACE, MAX_IN_FLIGHT, MAX_REQUEST_BYTES, MAX_UNSENT_BYTES, RESEND_ROOM } from "./limits.js";
import type { Link } from "./link.js";
import { checkFrame, checkRequest, encodeRequest, type Fields, type Op } from "./request.js";

const nothing = (): void => {};

export class Calls {
  readonly #connector: Connector;
  readonly #address: string;
  readonly #clock: Clock;
  readonly #all = new Map<number, Call>();
  readonly #overdue: Alarm; // gives calls up without a connection
  #lastN = 0;
  #shut = false;
  #patient = 0; // until when calls that cannot wait are kept without one
  /** Why there is no connection. */
  trouble: LatchkeyError | undefined;

  constructor(connector: Connector, address: string, clock: Clock) {
    this.#connector = connector;
    this.#address = address;
    this.#clock = clock;
    this.#overdue = new Alarm(clock, () => this.#giveUpOverdue());
  }

  /** A number that no request of this client has had. */
  number(): number {
    return ++this.#lastN;
  }

  get(n: number): Call | undefined {
    return this.#all.get(n);
  }

  has(n: number): boolean {
    return this.#all.has(n);
  }

  /** All, in the order in which they were made, as they are now. */
  all(): Call[] {
    return [...this.#all.values()];
  }

  /** Keeps a call without sending it. */
  keep(call: Call): void {
    this.#all.set(call.n, call);
  }

  /** There is a connection, and everything will be sent. */
  connected(): void {
    this.trouble = undefined;
    this.#patient = Number.POSITIVE_INFINITY;
    this.#overdue.clear();
  }

  /** There is no connection any more. `until` is the deadline of the session. */
  broken(until: number): void {
    this.#patient = until === Number.POSITIVE_INFINITY ? this.#clock.now() + DEFAULT_GRACE : until;
  }

  /** Watches that each is given up in time without a connection. */
  hasten(): void {
    for (const call of this.all()) this.#overdue.hasten(this.#due(call));
  }

  /** Whether requests go out at once. */
  get connection(): boolean {
    return this.#connector.line !== undefined;
  }

  /** Whether no caller may ask for anything any more. */
  get shut(): boolean {
    return this.#shut;
  }

  shutDown(): void {
    this.#shut = true;
  }

  /** Gives nothing up any more. */
  stop(): void {
    this.#overdue.clear();
  }

  /** Makes a call, and sends nothing. */
  make(op: Op, fields: Fields, more: Partial<Call>): Call {
    return {
      n: this.number(),
      op,
      fields,
      start: this.#clock.now(),
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
  ours(op: Op, fields: Fields, more: Partial<Call> = {}): void {
    const call = this.make(op, fields, { ours: true, ...more });
    this.#all.set(call.n, call);
    const line = this.#connector.line;
    if (line !== undefined) this.transmit(line, call);
  }

  /** Runs one command and resolves with its answer. */
  command(op: Op, fields: Fields, hold?: Hold): Promise<Answer> {
    return new Promise((resolve, reject) => {
      checkRequest(op, fields);
      const key = hold?.key ?? (fields.key as string | undefined);
      this.submit(this.make(op, fields, { hold, resolve, reject: (error) => reject(describe(error, op, key)) }));
    });
  }

  /** Sends a call, keeps it for the next connection, or throws. */
  submit(call: Call): void {
    if (this.#shut) throw closedError(call.op);
    if (this.#all.size >= MAX_IN_FLIGHT) {
      throw refuse(`${this.#all.size} requests have no answer yet, no more are allowed (MaxInFlight)`, {
        op: call.op,
      });
    }
    const link = this.#connector.line;
    if (link === undefined && !waits(call) && call.start >= this.#patient) {
      throw makeError("unavailable", { op: call.op, reason: this.#away(), cause: this.trouble });
    }
    if (link !== undefined && link.unsent > MAX_UNSENT_BYTES) {
      const reason = "the broker does not read what is sent (MaxUnsent)";
      throw makeError("unavailable", { op: call.op, reason });
    }
    // Nothing else can grow beyond a frame.
    if (call.fields.keys !== undefined || call.fields.declared !== undefined) {
      checkFrame(encodeRequest(call.n, call.op, call.fields), call.op, MAX_REQUEST_BYTES - RESEND_ROOM);
    }
    this.#all.set(call.n, call);
    if (link !== undefined) this.transmit(link, call);
    else this.#overdue.hasten(this.#due(call));
  }

  #away(): string {
    return `the broker at ${this.#address} cannot be reached`;
  }

  /** Sends a call on a connection. */
  transmit(link: Link, call: Call): void {
    const now = this.#clock.now();
    let fields = call.fields;
    const age = Math.floor(now - call.start);
    if (call.op === "acquire" && age >= 1) {
      fields = { ...fields, waited: age };
      if (typeof fields.wait === "number") fields.wait = Math.max(fields.wait - age, 1);
    }
    call.sent = now;
    link.send(encodeRequest(call.n, call.op, fields));
  }

  /** Forgets a call, and tells nobody. */
  drop(call: Call): void {
    this.#all.delete(call.n);
  }

  resolve(call: Call, answer: Answer): void {
    this.drop(call);
    call.resolve(answer);
  }

  reject(call: Call, error: LatchkeyError): void {
    this.drop(call);
    call.reject(error);
  }

  /** Until when a call is kept without a connection. */
  #due(call: Call): number {
    if (call.ours) return Number.POSITIVE_INFINITY;
    if (!waits(call)) return this.#patient;
    return typeof call.fields.wait === "number" ? call.start + call.fields.wait : Number.POSITIVE_INFINITY;
  }

  #giveUpOverdue(): void {
    if (this.#connector.line !== undefined) return;
    const now = this.#clock.now();
    for (const call of this.all()) if (this.#due(call) <= now) this.giveUp(call);
    this.hasten();
  }

  /** Answers a call while there is no connection. What was sent has an outcome that cannot be known. */
  giveUp(call: Call): void {
    if (call.ours) return;
    const cause = this.trouble;
    const foul = cause?.code === "protocol" ? `: ${cause.message}` : "";
    if (call.sent === undefined) {
      const code = foul ? "protocol" : waits(call) ? "timeout" : "unavailable";
      this.reject(call, makeError(code, { reason: this.#away() + foul, cause }));
      return;
    }
    this.reject(call, makeError("unknown", { reason: this.#away() + foul, cause }));
    // The next connection undoes it.
    if (call.op === "acquire" && !call.abandoned) this.ours("cancel", { id: call.fields.id });
  }
}
