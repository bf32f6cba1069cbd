package io.github.latchkeygo;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.function.LongSupplier;

/**
 * {@code System.nanoTime}, and what the machine has slept. The former counts on while the process
 * is stopped, but on Linux not while the machine is suspended. The time since the machine's start
 * does, and {@code /proc/uptime} tells it: their difference is the same as long as the machine is
 * awake.
 *
 * <p>Reading the file at each look would be most of the cost of a lease. A reading is used for 10
 * ms, and within them only while the time of day and {@code nanoTime} keep their distance: when
 * Linux wakes up it adds one and the same amount to the time of day and to the uptime, before any
 * process runs, so that the first look after it reads the file.
 */
final class SystemClock implements Clock {
  /** Where the time since the machine's start is told. */
  interface Uptime {
    /** In nanoseconds, cut off to a grain of 10 ms. */
    long nanos() throws IOException;
  }

  /** The one of this process. */
  static final SystemClock SHARED =
      new SystemClock(
          System::nanoTime, () -> System.currentTimeMillis() * Deadlines.MILLI, openUptime());

  private static final long GRAIN = 10 * Deadlines.MILLI;

  /** How long a reading is used. */
  private static final long REST = 10 * Deadlines.MILLI;

  /** A change of the distance to the time of day that is no rounding. */
  private static final long STEP = 20 * Deadlines.MILLI;

  /** A reading that took longer than this was interrupted, and is tried again. */
  private static final long NEAR = Deadlines.MILLI;

  private static final int TRIES = 5;

  /** Timers stand still in a sleep: a longer wait is cut, so that they ring soon after it. */
  private static final long LONGEST_WAIT = 5000;

  /**
   * What was read.
   *
   * @param at when, by nanoTime
   * @param ofDay how far the time of day was ahead of that
   * @param slept what the machine has slept since the first reading, and rather more
   */
  private record Reading(long at, long ofDay, long slept) {}

  private final LongSupplier nano;
  private final LongSupplier timeOfDay;
  private final Uptime uptime; // null where nothing tells it
  private final long origin;
  private volatile Reading last;

  private long first; // uptime less nanoTime, and rather less, when the clock was made
  private long awake; // the most that it can be as long as the machine does not sleep again

  /** The arguments are nanoseconds; no uptime counts no sleep. */
  SystemClock(LongSupplier nano, LongSupplier timeOfDay, Uptime uptime) {
    this.nano = nano;
    this.timeOfDay = timeOfDay;
    this.origin = nano.getAsLong() - 1_000_000_000L; // so that no instant is before it
    long now = nano.getAsLong();
    last = new Reading(now, timeOfDay.getAsLong() - now, 0);
    long[] bounds = uptime == null ? null : bounds(uptime);
    this.uptime = bounds == null ? null : uptime;
    if (bounds == null) return;
    first = bounds[0];
    awake = bounds[1];
  }

  @Override
  public long now() {
    long now = nano.getAsLong();
    return now - origin + slept(now);
  }

  @Override
  public long sleepUntil(long instant) {
    long wait = Math.max(1, (instant - now() + Deadlines.MILLI - 1) / Deadlines.MILLI);
    return uptime == null ? wait : Math.min(wait, LONGEST_WAIT);
  }

  @Override
  public long toNanoTime(long instant) {
    return instant - slept(nano.getAsLong()) + origin;
  }

  private long slept(long now) {
    if (uptime == null) return 0;
    Reading r = last;
    long ofDay = timeOfDay.getAsLong() - now;
    if (now - r.at < REST && Math.abs(ofDay - r.ofDay) < STEP) return r.slept;
    return read();
  }

  private synchronized long read() {
    long now = nano.getAsLong();
    long ofDay = timeOfDay.getAsLong() - now; // before the file, so that a sleep between shows
    long slept = last.slept;
    long[] bounds = bounds(uptime);
    if (bounds != null && bounds[0] > awake) {
      awake = bounds[1];
      slept = awake - first;
    } else if (bounds != null) {
      awake = Math.min(awake, bounds[1]);
    }
    last = new Reading(now, ofDay, slept);
    return slept;
  }

  /**
   * Between what uptime less nanoTime is, by the nearest of a few readings; null when it cannot be
   * read. A thread may be interrupted between the two clocks, which takes it no further from what
   * is.
   */
  private long[] bounds(Uptime from) {
    long[] out = null;
    try {
      for (int i = 0; i < TRIES && (out == null || out[1] - out[0] > GRAIN + NEAR); i++) {
        long before = nano.getAsLong();
        long up = from.nanos();
        long after = nano.getAsLong();
        if (out == null || up + GRAIN - before - (up - after) < out[1] - out[0]) {
          out = new long[] {up - after, up + GRAIN - before};
        }
      }
    } catch (IOException | RuntimeException e) {
      // What was read before stays; nothing is known of a sleep since.
    }
    return out;
  }

  /**
   * Keeps the file open, as a file that an interrupted thread may read: it would close a channel.
   */
  private static Uptime openUptime() {
    try {
      RandomAccessFile file = new RandomAccessFile("/proc/uptime", "r");
      byte[] text = new byte[64];
      return () -> { // under the clock's lock
        file.seek(0);
        return parse(text, file.read(text));
      };
    } catch (IOException | RuntimeException e) {
      return null; // another system, or it is kept from us
    }
  }

  /** Reads seconds with their hundredths, up to the first space. */
  static long parse(byte[] text, int size) throws IOException {
    String all = new String(text, 0, Math.max(size, 0), StandardCharsets.US_ASCII);
    int end = all.indexOf(' ');
    int dot = all.indexOf('.');
    if (dot < 1 || end != dot + 3) throw new IOException("not an uptime: " + all);
    long hundredths = Long.parseLong(all.substring(0, dot) + all.substring(dot + 1, end));
    return hundredths * 10 * Deadlines.MILLI;
  }
}
