/** Which holds the calls of `do` around a request have, of whichever client. */

import { AsyncLocalStorage } from "node:async_hooks";
import { refuse } from "./errors.js";
import { Hold } from "./hold.js";
import { MAX_DECLARED } from "./limits.js";

const around = new AsyncLocalStorage<readonly Hold[]>();

/** Runs the function of a `do`, whose requests declare the hold. */
export function inside<T>(hold: Hold, f: () => T): T {
  return around.run([...kept(), hold], f);
}

/** What a request declares: what its caller says, and the innermost holds around it as far as there is room. */
export function declaring(own: readonly (string | Hold)[] = [], id: string): string[] {
  if (!Array.isArray(own)) throw refuse("declared must be an array of holds or their ids", { op: "acquire" });
  const ids = own.map((d) => (d instanceof Hold ? d.id : d));
  const outer = kept().map((hold) => hold.id);
  const more = outer.filter((d) => d !== id && !ids.includes(d));
  return [...ids, ...more.slice(Math.max(more.length - Math.max(MAX_DECLARED - ids.length, 0), 0))];
}

function kept(): Hold[] {
  return (around.getStore() ?? []).filter((hold) => hold.keeps);
}
