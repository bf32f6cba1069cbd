// many-keys: two accounts at once, all or none, so that crossed requests cannot block each other.
import { connect } from "../src/index.js";
import { claim } from "./say.js";

const client = await connect({ name: "many-keys" });
try {
  const [a, b] = ["sample-many/account-1", "sample-many/account-2"] as const;
  const order: string[] = [];
  await Promise.all([
    client.do([a, b], async (hold) => {
      order.push("first");
      claim("two keys are held under one id", hold.keys.length === 2);
      claim("each key has a token of its own", hold.tokens.size === 2 && hold.tokens.get(a) !== hold.tokens.get(b));
    }),
    client.do([b, a], async () => {
      order.push("second");
    }),
  ]);
  claim("crossed requests took turns", order.join() === "first,second");
} finally {
  await client.close();
}
