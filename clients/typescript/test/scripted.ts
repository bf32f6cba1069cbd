// A server on the loopback that does exactly what a test says, for orders that a real broker rarely takes.
import assert from "node:assert/strict";
import { createServer, type Server, type Socket } from "node:net";
import { type Client, connectWith } from "../src/client.js";
import type { Clock } from "../src/clock.js";
import { systemClock } from "../src/clock.js";
import type { ConnectOptions } from "../src/options.js";

/** A grace, in ms, that no busy machine uses up; also, no ping comes in the middle of what a test sends. */
export const LONG = 60_000;

export type Frame = Record<string, unknown>;

/** A value that somebody will bring. */
export function later<T = void>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {};
  const promise = new Promise<T>((r) => {
    resolve = r;
  });
  return { promise, resolve };
}

/** Fails a test that would hang, and names what it waited for. */
export async function within<T>(what: string, promise: Promise<T>, ms = 60_000): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${ms} ms: ${what}`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Waits until a condition holds, and looks at it after everything that happens. */
export async function until(what: string, condition: () => boolean | Promise<boolean>, ms = 60_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    assert.ok(performance.now() < end, `not within ${ms} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** One connection as the server sees it. */
export class Peer {
  readonly #socket: Socket;
  readonly #frames: Frame[] = [];
  #kept = "";
  #waiting: (() => void)[] = [];
  /** Answers pings by itself. */
  pongs = true;
  ended = false;
  /** Bytes of a frame above which it closes. */
  limit = Number.POSITIVE_INFINITY;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("utf8");
    socket.on("error", () => {});
    socket.on("close", () => {
      this.ended = true;
      this.#wake();
    });
    socket.on("data", (text: string) => {
      const lines = (this.#kept + text).split("\n");
      this.#kept = lines.pop() ?? "";
      if (lines.some((line) => Buffer.byteLength(line) > this.limit)) this.cut();
      else for (const line of lines) this.#take(JSON.parse(line) as Frame);
      this.#wake();
    });
  }

  #take(frame: Frame): void {
    if (frame.do === "ping" && this.pongs) this.send({ n: frame.n, ok: true });
    else this.#frames.push(frame);
  }

  #wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** The next frame; it must be of this operation. */
  async next(op?: string): Promise<Frame> {
    return within(`a frame ${op ?? ""} of the client`, this.#next(op));
  }

  async #next(op: string | undefined): Promise<Frame> {
    for (;;) {
      const frame = this.#frames.shift();
      if (frame !== undefined) {
        if (op !== undefined) assert.equal(frame.do, op, JSON.stringify(frame));
        return frame;
      }
      assert.ok(!this.ended, "the client closed the connection");
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Resolves when the client has closed the connection. */
  async end(): Promise<void> {
    await until("the client closes the connection", () => this.ended);
  }

  /** How many frames are there that nobody took. */
  get unread(): number {
    return this.#frames.length;
  }

  send(...frames: Frame[]): void {
    this.raw(frames.map((f) => `${JSON.stringify(f)}\n`).join(""));
  }

  raw(text: string | Buffer): void {
    this.#socket.write(text);
  }

  cut(): void {
    this.#socket.destroy();
  }

  /** Answers hello and open. */
  async greet(session = "S1", more: Frame = {}): Promise<Frame> {
    const hello = await this.next();
    assert.equal(hello.latchkey, 1);
    this.send({ latchkey: 1, features: [], server: "scripted", durability: "always", fencing: "journal" });
    const open = await this.next("open");
    this.send({ n: open.n, ok: true, session, grace: open.grace ?? 3000, elapsed: 0, ...more });
    return open;
  }

  /** Answers an acquire with a grant. */
  grant(acquire: Frame, token: unknown = 17, more: Frame = {}): void {
    const keys = acquire.keys as string[] | undefined;
    this.send({
      n: acquire.n,
      ok: true,
      id: acquire.id,
      ...(keys === undefined
        ? { key: acquire.key, token }
        : { keys, tokens: keys.map((_, i) => (token as number) + i) }),
      ...(acquire.forever ? { forever: true } : { ttl: acquire.ttl, remaining: acquire.ttl }),
      elapsed: 0,
      waited: 0,
      ...more,
    });
  }
}

/** The server and its clients; `close` leaves nothing. */
export class Scripted {
  readonly #server: Server;
  readonly #peers: Peer[] = [];
  readonly #clients: Client[] = [];
  #waiting: ((peer: Peer) => void)[] = [];
  #all: Peer[] = [];

  private constructor(server: Server) {
    this.#server = server;
    server.on("connection", (socket) => {
      const peer = new Peer(socket);
      this.#all.push(peer);
      const waiting = this.#waiting.shift();
      if (waiting !== undefined) waiting(peer);
      else this.#peers.push(peer);
    });
  }

  static async start(): Promise<Scripted> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return new Scripted(server);
  }

  get address(): string {
    const address = this.#server.address();
    assert.ok(address !== null && typeof address === "object");
    return `127.0.0.1:${address.port}`;
  }

  /** The next connection. */
  async peer(): Promise<Peer> {
    const peer = this.#peers.shift();
    if (peer !== undefined) return peer;
    return within("a connection of the client", new Promise<Peer>((resolve) => this.#waiting.push(resolve)));
  }

  /** Connects a client, without answering it. */
  dial(options: ConnectOptions = {}, clock: Clock = systemClock()): Promise<Client> {
    const connecting = connectWith({ address: this.address, grace: LONG, ...options }, clock);
    void connecting.then(
      (client) => this.#clients.push(client),
      () => {},
    );
    return connecting;
  }

  /** Connects a client and answers its open. */
  async client(options: ConnectOptions = {}, clock?: Clock): Promise<{ client: Client; peer: Peer }> {
    const connecting = this.dial(options, clock);
    const peer = await this.peer();
    await peer.greet();
    return { client: await within("the client connects", connecting), peer };
  }

  async close(): Promise<void> {
    for (const peer of this.#all) peer.cut();
    for (const client of this.#clients) await within("a client closes", client.close());
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** A clock that can be set forward, as a process finds it that was stopped. */
export function shifted(): Clock & { shift: number } {
  const real = systemClock();
  return {
    shift: 0,
    now() {
      return real.now() + this.shift;
    },
    look() {
      return real.look() + this.shift;
    },
  };
}
