/** The signs of life of a session: pings, and what it means that one is not answered. */

import type { Calls } from "./calls.js";
import { Alarm, type Clock } from "./clock.js";
import type { Connector } from "./connector.js";
import { unavailable } from "./link.js";

/** Between pings when there is no grace that would say. */
const IDLE_PING = 5000;

export class Pulse {
  readonly #connector: Connector;
  readonly #calls: Calls;
  readonly #clock: Clock;
  readonly #alarm: Alarm;
  #probe: { sent: number } | undefined; // the ping that is not answered
  #grace = 0;

  constructor(connector: Connector, calls: Calls, clock: Clock) {
    this.#connector = connector;
    this.#calls = calls;
    this.#clock = clock;
    this.#alarm = new Alarm(clock, () => this.#ping());
  }

  /** Begins to ping on a connection. */
  start(grace: number): void {
    this.#grace = grace;
    this.answered();
    this.#alarm.set(this.#clock.now() + this.#every());
  }

  stop(): void {
    this.#alarm.clear();
  }

  /** No ping is on its way any more. */
  answered(): void {
    this.#probe = undefined;
  }

  #every(): number {
    return this.#grace > 0 ? Math.max(this.#grace / 3, 1) : IDLE_PING;
  }

  #ping(): void {
    const link = this.#connector.line;
    if (link === undefined) return;
    const now = this.#clock.look();
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
    this.#alarm.set(this.#clock.now() + this.#every());
  }
}
