// basic: one lease, exclusive, released at the end of the function.
import { connect } from "../src/index.js";
import { claim } from "./say.js";

const client = await connect({ name: "basic" });
try {
  const invoiced = await client.do("sample-basic/invoices", { ttl: 10_000, label: "invoices" }, async (hold) => {
    claim("the lease is held", hold.isSafe);
    claim("its token is a number above 0", hold.token > 0);
    // Here goes what only one process may do at a time.
    return 42;
  });
  claim("the function's result comes back", invoiced === 42);
  const { keys } = await client.list({ key: "sample-basic/invoices" });
  claim("nobody holds the key any more", keys.length === 0);
} finally {
  await client.close();
}
