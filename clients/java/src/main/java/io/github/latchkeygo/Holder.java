package io.github.latchkeygo;

import java.time.Duration;
import java.util.OptionalLong;

/**
 * Who holds a key, as the broker tells it. Texts are empty, and durations null, where it told none.
 *
 * @param session name of the session
 * @param host where it runs
 * @param pid its process; 0 when not told
 * @param label the label of the hold
 * @param mode how it holds
 * @param max counted only: the limit
 * @param token the fencing token; empty when the broker sent none that is a safe integer
 * @param since how long it has been held
 * @param ttl the time to live; null for a hold without end
 * @param forever whether it has no end
 * @param remaining what is left of the ttl; null for a hold without end
 * @param detached whether it outlives its session
 * @param broken whether its session has no connection just now
 */
public record Holder(
    String session,
    String host,
    long pid,
    String label,
    Mode mode,
    int max,
    OptionalLong token,
    Duration since,
    Duration ttl,
    boolean forever,
    Duration remaining,
    boolean detached,
    boolean broken) {

  /** For people: {@code worker (nightly) on vm pid 23827 for 1500 ms, 28500 ms left}. */
  @Override
  public String toString() {
    String who = session.isEmpty() ? "an unnamed session" : session;
    if (!label.isEmpty()) who += " (" + label + ")";
    if (!host.isEmpty()) who += " on " + host;
    if (pid > 0) who += " pid " + pid;
    if (since != null && !since.isZero()) who += " for " + since.toMillis() + " ms";
    return remaining == null
        ? who + ", never expires"
        : who + ", " + remaining.toMillis() + " ms left";
  }
}
