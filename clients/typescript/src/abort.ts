/** One listener a signal, however many requests share it: Node warns of more than ten. */

const listeners = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `f` when the signal aborts, until the function that is returned is called. */
export function onAbort(signal: AbortSignal, f: () => void): () => void {
  let all = listeners.get(signal);
  if (all === undefined) {
    const set = new Set<() => void>();
    const abort = (): void => {
      listeners.delete(signal);
      for (const each of [...set]) each();
    };
    all = set;
    listeners.set(signal, set);
    signal.addEventListener("abort", abort, { once: true });
    detach.set(set, () => signal.removeEventListener("abort", abort));
  }
  const mine = all;
  mine.add(f);
  return () => {
    mine.delete(f);
    if (mine.size > 0 || listeners.get(signal) !== mine) return;
    listeners.delete(signal);
    detach.get(mine)?.();
  };
}

const detach = new WeakMap<Set<() => void>, () => void>();
