package io.github.latchkeygo;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Runs what users gave to be called, one after the other, on a thread of its own that is there only
 * while there is something to run.
 */
final class Callbacks {
  /** Gets what was thrown. */
  interface Log {
    void thrown(String what, RuntimeException e);
  }

  private final ThreadPoolExecutor executor;
  private final Log log;
  private volatile Thread thread;

  Callbacks(String name, Log log) {
    this.log = log;
    this.executor =
        new ThreadPoolExecutor(
            1,
            1,
            1,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(Limits.MAX_CALLBACKS),
            r -> {
              Thread t = new Thread(r, "latchkey-callbacks" + (name.isEmpty() ? "" : " " + name));
              t.setDaemon(true);
              thread = t;
              return t;
            });
    executor.allowCoreThreadTimeOut(true);
  }

  /** Has it run, and completes the future then, whatever happens. */
  void run(String what, Runnable callback, CompletableFuture<Void> done) {
    try {
      executor.execute(() -> guard(what, callback, done));
    } catch (RejectedExecutionException e) {
      // Closed, or one callback does not return and too many wait for it.
      if (done != null) done.complete(null);
    }
  }

  /** Runs it here. */
  void guard(String what, Runnable callback, CompletableFuture<Void> done) {
    try {
      callback.run();
    } catch (RuntimeException e) {
      if (!what.equals("a logger")) log.thrown(what, e);
    } finally {
      if (done != null) done.complete(null);
    }
  }

  boolean isCurrent() {
    return Thread.currentThread() == thread;
  }

  /** What waits is still run; then the thread ends. */
  void stop() {
    executor.shutdown();
  }

  void awaitEnd(long millis) throws InterruptedException {
    executor.awaitTermination(millis, TimeUnit.MILLISECONDS);
  }
}
