package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The watches of a client, which are begun again on each connection. */
final class Watches {
  /** A watch, and what to ask for to have it again. */
  private record Watching(Watch watch, Map<String, Object> fields) {}

  private final Loop loop;
  private final Calls calls;
  private final Map<Long, Watching> watches = new LinkedHashMap<>(); // behind the loop's lock

  Watches(Loop loop, Calls calls) {
    this.loop = loop;
    this.calls = calls;
  }

  /** Begins a watch; the future completes when the broker has it. */
  CompletableFuture<Watch> begin(Map<String, Object> fields, int buffer) {
    Requests.check("watch", fields);
    CompletableFuture<Watch> out = new CompletableFuture<>();
    loop.enter();
    try {
      if (watches.size() >= Limits.MAX_WATCHES) {
        throw refuse("at most " + Limits.MAX_WATCHES + " watches of a client (MaxWatches)")
            .describe("watch", "");
      }
      long n = calls.number();
      Watch watch = new Watch(buffer, () -> end(n));
      calls.submit(
          new Call(
              n,
              "watch",
              fields,
              loop.now(),
              (answer, error) -> {
                if (error != null) {
                  out.completeExceptionally(error.describe("watch", ""));
                  return;
                }
                watches.put(n, new Watching(watch, fields));
                // Whoever asked may have gone.
                if (!out.complete(watch)) end(n);
              }));
      return out;
    } finally {
      loop.exit();
    }
  }

  private void end(long n) {
    loop.enter();
    try {
      if (watches.remove(n) == null) return;
      calls.drop(n);
      // Without a connection there is nothing to end: the next one does not begin it.
      if (calls.connected()) calls.ours("unwatch", Map.of("watch", n));
    } finally {
      loop.exit();
    }
  }

  /** Has all of them sent again on the next connection. */
  void again() {
    for (Map.Entry<Long, Watching> e : watches.entrySet()) {
      calls.ours(callAgain(e.getKey(), e.getValue()));
    }
  }

  private Call callAgain(long n, Watching w) {
    return new Call(
        n,
        "watch",
        w.fields,
        loop.now(),
        (answer, error) -> {
          if (error == null) {
            w.watch.push(WatchEvent.GAP);
            return;
          }
          w.watch.end(error, false);
          watches.remove(n);
        });
  }

  /** Takes an event of the watch that was begun with this number. */
  void event(long n, Map<String, Object> body) {
    Watching w = watches.get(n);
    if (w != null) w.watch.push(Wire.event(body));
  }

  void close() {
    for (Watching w : watches.values()) w.watch.end(Calls.closed("watch"), false);
    watches.clear();
  }
}
