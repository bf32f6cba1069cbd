// lost-lease: an administrator takes the lease away, and the work that is under way is stopped.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, ForcedError } from "../src/index.js";
import { claim } from "./say.js";

const client = await connect({ name: "lost-lease" });
const admin = await connect({ name: "admin" });
try {
  let stopped = false;
  const work = client.do("sample-lost/report", async (hold, signal) => {
    const lost = once(signal, "abort");
    await admin.force(hold.key, { by: "alice", reason: "stuck since Monday" });
    await lost;
    claim("the hold is not safe any more", !hold.isSafe);
    try {
      await sleep(60_000, undefined, { signal }); // any work that takes a signal: fetch, a query, a child process
    } catch {
      stopped = true;
    }
  });
  const error = await work.catch((e: unknown) => e);
  claim("the work was stopped", stopped);
  claim("do rejects with the loss", error instanceof ForcedError);
  claim("the reason names who did it", String(error).includes("alice"));
} finally {
  await client.close();
  await admin.close();
}
