package io.github.latchkeygo;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The events of one watch, in order. It survives reconnects, with a {@code gap} event after each; a
 * reader that is too slow for the buffer gets a {@code gap} too. To know a state, watch first and
 * then list.
 */
public final class Watch implements AutoCloseable {
  private final int limit;
  private final Runnable stop;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition changed = lock.newCondition();
  private final Deque<WatchEvent> events = new ArrayDeque<>();
  private LatchkeyException end;

  Watch(int limit, Runnable stop) {
    this.limit = limit;
    this.stop = stop;
  }

  /**
   * Waits for the next event.
   *
   * @return the event
   * @throws InterruptedException if the thread was interrupted
   * @throws ClosedException once the watch or the client was closed and its events are read
   */
  public WatchEvent next() throws InterruptedException {
    lock.lockInterruptibly();
    try {
      while (events.isEmpty()) {
        if (end != null) throw end.fresh();
        changed.await();
      }
      return events.remove();
    } finally {
      lock.unlock();
    }
  }

  /**
   * Waits for the next event, at most so long.
   *
   * @param wait the bound; zero looks only
   * @return the event, or nothing in time
   * @throws InterruptedException if the thread was interrupted
   * @throws ClosedException once the watch or the client was closed and its events are read
   */
  public Optional<WatchEvent> poll(Duration wait) throws InterruptedException {
    long left = TimeUnit.MILLISECONDS.toNanos(AcquireOptions.millis(wait));
    lock.lockInterruptibly();
    try {
      while (events.isEmpty()) {
        if (end != null) throw end.fresh();
        if (left <= 0) return Optional.empty();
        left = changed.awaitNanos(left);
      }
      return Optional.of(events.remove());
    } finally {
      lock.unlock();
    }
  }

  /** Ends the watch; events that are buffered are dropped. A second call is harmless. */
  @Override
  public void close() {
    if (end("the watch was closed", true)) stop.run();
  }

  void push(WatchEvent event) {
    lock.lock();
    try {
      if (end != null || (event.isGap() && !events.isEmpty() && events.getLast().isGap())) return;
      if (events.size() >= limit) {
        // What is kept would tell half a story: the reader has to list anyway.
        events.clear();
        events.add(WatchEvent.GAP);
      } else {
        events.add(event);
      }
      changed.signal();
    } finally {
      lock.unlock();
    }
  }

  private boolean end(String reason, boolean drop) {
    return end(
        LatchkeyException.of("closed", LatchkeyException.Details.of("watch", "").reason(reason)),
        drop);
  }

  boolean end(LatchkeyException error, boolean drop) {
    lock.lock();
    try {
      if (drop) events.clear();
      if (end != null) return false;
      end = error;
      changed.signalAll();
      return true;
    } finally {
      lock.unlock();
    }
  }
}
