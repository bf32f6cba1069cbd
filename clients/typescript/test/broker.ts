// A real broker. LATCHKEY_BINARY names it; ./run test builds one.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { later, within } from "./scripted.js";

const binary = process.env.LATCHKEY_BINARY;
if (!binary) throw new Error("LATCHKEY_BINARY is not set: run this through ./run test");

/** Ports that nobody listens on just now. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  await new Promise((resolve) => server.close(resolve));
  return address.port;
}

export class Broker {
  readonly address: string;
  readonly #args: readonly string[];
  #child: ChildProcess | undefined;

  constructor(address: string, args: readonly string[]) {
    this.address = address;
    this.#args = args;
  }

  static async start(...args: string[]): Promise<Broker> {
    const broker = new Broker(`127.0.0.1:${await freePort()}`, args);
    await broker.start();
    return broker;
  }

  async start(): Promise<void> {
    const child = spawn(binary as string, ["serve", "--listen", this.address, "--http", "", ...this.#args], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    this.#child = child;
    const listening = later();
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream });
    lines.on("line", (line) => {
      if (line.includes(this.address)) listening.resolve();
    });
    await within("the broker listens", listening.promise);
  }

  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await within("the broker ends", once(child, "exit"));
  }
}
