package io.github.latchkeygo;

/** The monotonic clock, which tests replace. */
interface Clock {
  /** Nanoseconds; from 0 at some instant, so that sums do not wrap. */
  long now();

  /** How long to sleep, in milliseconds, until an instant of this clock; 0: until woken. */
  default long sleepUntil(long instant) {
    return Math.max(1, (instant - now() + Deadlines.MILLI - 1) / Deadlines.MILLI);
  }

  /** Where the clock has no instant of System.nanoTime of its own. */
  default long toNanoTime(long instant) {
    return instant + SystemClock.ORIGIN;
  }

  /** Called by whoever sleeps until an instant of this clock. */
  default void onChange(Runnable wake) {}

  /** {@code System.nanoTime}: it counts on while the process is stopped. */
  final class SystemClock implements Clock {
    /** A second ago, so that no instant of this process is before it. */
    static final long ORIGIN = System.nanoTime() - 1_000_000_000L;

    @Override
    public long now() {
      return System.nanoTime() - ORIGIN;
    }
  }
}
