package io.github.latchkeygo;

/** The clock of a client, which tests replace. It never goes back. */
interface Clock {
  /** Nanoseconds; from 0 at some instant, so that sums do not wrap. */
  long now();

  /** How long to sleep, in milliseconds, until an instant of this clock. */
  long sleepUntil(long instant);

  /** An instant of this clock on that of System.nanoTime, as far as is known now. */
  long toNanoTime(long instant);
}
