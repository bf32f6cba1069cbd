// fenced-write: a holder that was overtaken without noticing is shut out by its token.
import { connect } from "../src/index.js";
import { claim } from "./say.js";

/** What the lease protects. With SQL: UPDATE … SET value = $1, token = $2 WHERE id = $3 AND token <= $2. */
class Ledger {
  value = "";
  #highest = 0;

  /** Whether the write was let through: false means that a later holder was here. */
  write(value: string, token: number): boolean {
    if (token < this.#highest) return false;
    this.#highest = token;
    this.value = value;
    return true;
  }
}

const client = await connect({ name: "fenced-write" });
try {
  const ledger = new Ledger();
  const early = await client.acquire("sample-fence/ledger");
  const token = early.token; // what a holder that is frozen in the middle of a write has in its hands
  claim("the first holder writes", ledger.write("early", token));

  await client.force("sample-fence/ledger", { by: "fenced-write", reason: "the holder hangs" });
  const late = await client.acquire("sample-fence/ledger");
  claim("the later holder has a higher token", late.token > token);
  claim("the later holder writes", ledger.write("late", late.token));
  claim("the early holder, thawed, is refused", !ledger.write("early again", token));
  claim("nothing was overwritten", ledger.value === "late");
  await late.release();
} finally {
  await client.close();
}
