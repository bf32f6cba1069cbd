package io.github.latchkeygo;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The one thread of a client that reads, writes and keeps its times. All of a client's state is
 * behind its lock. No code of a user runs on this thread or under the lock, so that nothing that a
 * user does can delay a deadline.
 *
 * <p>Only this thread touches sockets: an interrupt that meets a thread in a channel's operation
 * closes the channel, and callers are interrupted all the time.
 */
final class Loop implements Runnable {
  /** Something to do at an instant. */
  final class Alarm implements Comparable<Alarm> {
    private final Runnable action;
    private final long order = ++alarmsMade;
    private long at = Deadlines.NEVER;
    private boolean due;

    private Alarm(Runnable action) {
      this.action = action;
    }

    /** Replaces the instant. */
    void set(long instant) {
      clear();
      if (instant == Deadlines.NEVER || stopped) return;
      at = instant;
      alarms.add(this);
      if (alarms.first() == this) news = true;
    }

    /** Makes it no later than this. */
    void hasten(long instant) {
      if (instant < at) set(instant);
    }

    void clear() {
      due = false;
      if (at == Deadlines.NEVER) return;
      alarms.remove(this);
      at = Deadlines.NEVER;
    }

    @Override
    public int compareTo(Alarm other) {
      return at != other.at ? Long.compare(at, other.at) : Long.compare(order, other.order);
    }
  }

  final Clock clock;
  final Thread thread;
  private final Selector selector;
  private final ReentrantLock lock = new ReentrantLock();

  // Behind the lock.
  private final TreeSet<Alarm> alarms = new TreeSet<>();
  private long alarmsMade;
  private Link link;
  private boolean sleeping;
  private boolean news; // something that the thread must look at before it sleeps on
  private boolean stopped;
  private List<Runnable> deferred = new ArrayList<>();

  Loop(Clock clock, String name) throws IOException {
    this.clock = clock;
    this.selector = Selector.open();
    this.thread = new Thread(this, "latchkey-loop" + (name.isEmpty() ? "" : " " + name));
    thread.setDaemon(true);
  }

  long now() {
    return clock.now();
  }

  void enter() {
    lock.lock();
  }

  /** Unlocks, and then runs what was put off. */
  void exit() {
    boolean last = lock.getHoldCount() == 1;
    boolean wake = news && sleeping && last;
    if (wake) sleeping = false;
    List<Runnable> after = List.of();
    if (last && !deferred.isEmpty()) {
      after = deferred;
      deferred = new ArrayList<>();
    }
    lock.unlock();
    if (wake) selector.wakeup();
    for (Runnable action : after) action.run();
  }

  /** Puts off what wakes callers, who would only find the lock taken. */
  void defer(Runnable action) {
    deferred.add(action);
  }

  Selector selector() {
    return selector;
  }

  Alarm alarm(Runnable action) {
    return new Alarm(action);
  }

  /** The connection whose frames are to be written. */
  void use(Link current) {
    link = current;
  }

  /** Has the thread look around again. */
  void stir() {
    news = true;
  }

  void stop() {
    stopped = true;
    news = true;
    alarms.clear();
  }

  @Override
  public void run() {
    try {
      while (true) {
        long sleep;
        enter();
        try {
          if (link != null) link.flush();
          if (stopped) return;
          sleep = sleepTime();
          news = false;
          sleeping = true;
        } finally {
          exit();
        }
        if (sleep < 0) selector.selectNow();
        else selector.select(sleep);
        enter();
        try {
          sleeping = false;
          // What has come is read before any deadline is judged: a process that stood still has
          // both.
          for (SelectionKey key : selector.selectedKeys()) ((Link) key.attachment()).ready();
          selector.selectedKeys().clear();
          ring();
        } catch (RuntimeException e) {
          // A defect. A new connection sets the session right, and nobody waits for ever.
          selector.selectedKeys().clear();
          if (link != null) link.fail(LatchkeyException.of("internal", "" + e).withCause(e));
        } finally {
          exit();
        }
      }
    } catch (IOException e) {
      enter();
      if (link != null) link.fail(LatchkeyException.unavailable("the selector failed", e));
      exit();
    } finally {
      try {
        selector.close();
      } catch (IOException e) {
        // There is nobody left whom it could matter to.
      }
    }
  }

  /** In milliseconds; 0: until something happens, negative: not at all. */
  private long sleepTime() {
    if (alarms.isEmpty()) return 0;
    long at = alarms.first().at;
    return at <= clock.now() ? -1 : clock.sleepUntil(at);
  }

  private void ring() {
    long now = clock.now();
    List<Alarm> ringing = new ArrayList<>();
    while (!alarms.isEmpty() && alarms.first().at <= now) {
      Alarm alarm = alarms.pollFirst();
      alarm.at = Deadlines.NEVER;
      alarm.due = true;
      ringing.add(alarm);
    }
    for (Alarm alarm : ringing) {
      if (!alarm.due) continue;
      alarm.due = false;
      alarm.action.run();
    }
  }
}
