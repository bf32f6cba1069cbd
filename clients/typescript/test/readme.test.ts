// The code of the README runs as it stands.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "../src/index.js";
import { Broker } from "./broker.js";
import { LONG, until, within } from "./scripted.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

test("README.md", async () => {
  const text = await readFile(`${root}README.md`, "utf8");
  const blocks = [...text.matchAll(/^```ts\n(.*?)^```$/gms)].map((match) => match[1] as string);
  assert.ok(blocks.length >= 3);
  const broker = await Broker.start();
  const web = createServer((_, response) => response.end("ok")).listen(0, "127.0.0.1");
  await once(web, "listening");
  const { port } = web.address() as { port: number };
  const client = await connect({ address: broker.address, grace: LONG });
  await mkdir(`${root}build/readme`, { recursive: true });
  try {
    for (const [i, block] of blocks.entries()) {
      const code = block
        .replaceAll('"latchkey"', '"../src/index.js"')
        .replaceAll("localhost:8080", `127.0.0.1:${port}`);
      const file = `${root}build/readme/block-${i}.mjs`;
      await writeFile(file, code);
      const env = { ...process.env, LATCHKEY_SERVER: broker.address };
      const child = spawn(process.execPath, [file], { env, stdio: ["ignore", "ignore", "inherit"] });
      const exit = once(child, "exit");
      if (block.includes("client.watch")) {
        await until("it watches", async () => ((await client.stats()).watches as number) > 0);
        await client.do("invoices/1", () => {});
      }
      assert.deepEqual(await within(`block ${i} ends`, exit), [0, null], block);
    }
  } finally {
    await client.close();
    await broker.kill();
    web.closeAllConnections();
    web.close();
  }
});
