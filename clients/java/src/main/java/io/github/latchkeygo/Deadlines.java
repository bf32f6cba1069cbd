package io.github.latchkeygo;

import java.util.List;
import java.util.OptionalLong;

/**
 * When a holder must stop: section 6 of the protocol. Instants are nanoseconds of one monotonic
 * clock, durations of the protocol milliseconds.
 */
final class Deadlines {
  /** No end. */
  static final long NEVER = Long.MAX_VALUE;

  static final long MILLI = 1_000_000;

  private Deadlines() {}

  /**
   * A grant, a renewal, or an entry of what a resumed session holds.
   *
   * @param tokens empty where the broker sent none that is a safe integer
   * @param ttl {@link #NEVER}: without end
   * @param remaining {@link #NEVER}: it has no end of its own
   */
  record Grant(
      String id,
      List<String> keys,
      List<OptionalLong> tokens,
      long ttl,
      long elapsed,
      long remaining,
      long waited,
      boolean detached) {
    Grant withElapsed(long time) {
      return new Grant(id, keys, tokens, ttl, time, remaining, waited, detached);
    }
  }

  /** What is kept back from x milliseconds, in nanoseconds: this side always stops first. */
  static long margin(long x) {
    if (x >= 50_000) return 1000 * MILLI;
    return Math.max(10 * MILLI, x * (MILLI / 50));
  }

  /** Until when a lease is the holder's by its own time, when its request was sent then. */
  static long lease(long sent, Grant g) {
    if (g.remaining == NEVER) return NEVER;
    return plus(sent, nanos(g.elapsed + g.remaining)) - margin(g.ttl);
  }

  /** Until when the session lives for certain, after an answered sign of life sent then. */
  static long session(long sent, long grace) {
    return grace > 0 ? sent + grace * MILLI - margin(grace) : NEVER;
  }

  /** Up to when the holder may act. */
  static long safeUntil(long lease, long session, boolean detached) {
    return detached ? lease : Math.min(lease, session);
  }

  /** Milliseconds as nanoseconds, or the most that there is. */
  static long nanos(long millis) {
    return millis >= NEVER / MILLI ? NEVER : millis * MILLI;
  }

  /** Later by so much, and never without overflow. */
  static long plus(long instant, long nanos) {
    return instant >= NEVER - nanos ? NEVER : instant + nanos;
  }
}
