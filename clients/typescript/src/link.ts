/** One connection: lines in, frames out. It knows nothing of sessions. */

import { connect as dial, type Socket } from "node:net";
import { LatchkeyError, makeError, refuse } from "./errors.js";
import { MAX_REPLY_BYTES } from "./limits.js";
import { LineSplitter } from "./wire.js";

/** Where a broker listens. */
export type Target = { readonly path: string } | { readonly host: string; readonly port: number };

/** Reads `host:port`, `[v6]:port` or `unix:PATH`. */
export function parseAddress(address: string): Target {
  if (address.startsWith("unix:")) {
    const path = address.slice("unix:".length);
    if (path === "") throw refuse(`address ${JSON.stringify(address)} has no path after unix:`, { op: "connect" });
    return { path };
  }
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  const host = match?.[1] ?? match?.[2];
  if (host === undefined || port < 1 || port > 65_535) {
    throw refuse(`address ${JSON.stringify(address)} is neither host:port nor unix:/path`, { op: "connect" });
  }
  return { host, port };
}

/** Who uses a connection. */
export interface LinkOwner {
  /** The connection stands; nothing came yet. */
  linkUp(link: Link): void;
  /** One line, valid until this returns. What it throws breaks the connection. */
  linkLine(link: Link, line: Buffer): void;
  /** It is of no use any more; called once, and last. */
  linkDown(link: Link, error: LatchkeyError): void;
}

/**
 * A connection. Frames that are sent while the same events are handled go out in one write. Nothing
 * here waits: what the kernel does not take is kept by the socket, and `unsent` says how much.
 */
export class Link {
  readonly #owner: LinkOwner;
  readonly #socket: Socket;
  readonly #lines = new LineSplitter(MAX_REPLY_BYTES);
  #frames: string[] = [];
  #chars = 0;
  #flushing = false;
  #down = false;

  constructor(target: Target, owner: LinkOwner) {
    this.#owner = owner;
    this.#socket = dial({ ...target, noDelay: true });
    this.#socket.on("connect", () => this.#owner.linkUp(this));
    this.#socket.on("data", (chunk: Buffer) => this.#take(chunk));
    this.#socket.on("error", (error: Error) => this.fail(unavailable(error.message, error)));
    this.#socket.on("end", () => this.fail(unavailable("the broker closed the connection")));
    this.#socket.on("close", () => this.fail(unavailable("the connection was closed")));
  }

  /** Bytes, about, that were sent and not taken by the kernel yet. */
  get unsent(): number {
    return this.#chars + this.#socket.writableLength;
  }

  /** Sends one frame, together with those that follow at once. */
  send(frame: string): void {
    if (this.#down) return;
    this.#frames.push(frame);
    this.#chars += frame.length;
    if (this.#flushing) return;
    this.#flushing = true;
    // After the promises that are settled just now have had their turn, since they tend to send too.
    process.nextTick(() => this.#flush());
  }

  #flush(): void {
    this.#flushing = false;
    if (this.#down || this.#frames.length === 0) return;
    const bytes = this.#frames.length === 1 ? (this.#frames[0] as string) : this.#frames.join("");
    this.#frames = [];
    this.#chars = 0;
    this.#socket.write(bytes);
  }

  #take(chunk: Buffer): void {
    try {
      this.#lines.push(chunk, (line) => {
        if (!this.#down) this.#owner.linkLine(this, line);
      });
    } catch (error) {
      this.fail(error instanceof LatchkeyError ? error : makeError("internal", { cause: error }));
    }
  }

  /** Breaks the connection and tells the owner, once. */
  fail(error: LatchkeyError): void {
    if (this.#down) return;
    this.drop();
    this.#owner.linkDown(this, error);
  }

  /** Breaks the connection and tells nobody. */
  drop(): void {
    this.#down = true;
    this.#frames = [];
    this.#chars = 0;
    this.#socket.destroy();
  }

  /** Resolves when the socket is gone. */
  gone(): Promise<void> {
    if (this.#socket.closed) return Promise.resolve();
    return new Promise((resolve) => this.#socket.once("close", () => resolve()));
  }
}

/** The error of a broker that is not reached. */
export function unavailable(reason: string, cause?: unknown): LatchkeyError {
  return makeError("unavailable", { reason, cause });
}
