import { strict as assert } from "node:assert";

/** Prints what happened, and ends the sample with status 1 when it is not what was to be shown. */
export function claim(what: string, holds: boolean): void {
  assert.ok(holds, `this should be so, and is not: ${what}`);
  console.log(what);
}
