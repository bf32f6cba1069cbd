// hold-and-renew: a lease with a short ttl is kept for several times as long.
import { setTimeout as sleep } from "node:timers/promises";
import { BusyError, connect } from "../src/index.js";
import { claim } from "./say.js";

const client = await connect({ name: "hold-and-renew" });
try {
  const hold = await client.acquire("sample-renew/leader", { ttl: 1000 });
  const first = hold.safeUntil;
  await sleep(2500, undefined, { signal: hold.signal });
  claim("held for more than two ttls", hold.isSafe);
  claim("renewals have moved the deadline ahead", hold.safeUntil > first);
  const busy = await client.acquire("sample-renew/leader", { try: true }).then(
    () => false,
    (error: unknown) => error instanceof BusyError,
  );
  claim("meanwhile it is busy for everyone else", busy);
  await hold.release();
  const next = await client.acquire("sample-renew/leader", { try: true });
  claim("after the release the next one has a higher token", next.token > hold.token);
  await next.release();
} finally {
  await client.close();
}
