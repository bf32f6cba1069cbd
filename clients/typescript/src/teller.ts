/** What goes to callers without their asking: log entries, and calls of their functions. Neither may end a lease. */

import type { Logger } from "./options.js";

export class Teller {
  readonly #address: string;
  readonly #logger: Logger | undefined;

  constructor(address: string, logger: Logger | undefined) {
    this.#address = address;
    this.#logger = logger;
  }

  /** Calls a function of the caller's. */
  guard(what: string, f: () => unknown): void {
    const threw = (error: unknown): void => this.log("warn", `${what} threw`, { error });
    try {
      const result = f();
      // A function that returns a promise passes for one that returns nothing.
      if (result instanceof Promise) result.catch(threw);
    } catch (error) {
      threw(error);
    }
  }

  log(level: "info" | "warn", message: string, details: Record<string, unknown>): void {
    try {
      this.#logger?.[level](`latchkey: ${message}`, { broker: this.#address, ...details });
    } catch {
      // A logger that throws must not end a lease.
    }
  }
}
