package io.github.latchkeygo;

import java.lang.System.Logger.Level;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/**
 * Tells users: runs what they gave to be called, one after the other, on a thread of its own that
 * is there only while there is something to run.
 */
final class Callbacks {
  private static final String LOGGER = "a logger";

  private final ThreadPoolExecutor thread;
  private final ConnectOptions options;
  private final String address;
  private volatile Thread current;

  Callbacks(ConnectOptions options, String address) {
    this.options = options;
    this.address = address;
    String name = "latchkey-callbacks" + (options.name.isEmpty() ? "" : " " + options.name);
    this.thread =
        new ThreadPoolExecutor(
            1,
            1,
            1,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(Limits.MAX_CALLBACKS),
            r -> {
              Thread t = new Thread(r, name);
              t.setDaemon(true);
              current = t;
              return t;
            });
    thread.allowCoreThreadTimeOut(true);
  }

  /** Has it run, and completes the future then, whatever happens. */
  void run(String what, Runnable callback, CompletableFuture<Void> done) {
    try {
      thread.execute(() -> guard(what, callback, done));
    } catch (RejectedExecutionException e) {
      // Closed, or one callback does not return and too many wait for it.
      if (done != null) done.complete(null);
    }
  }

  /** Has it run past those that wait, for a caller who is in their way. */
  void runAside(String what, Runnable callback, CompletableFuture<Void> done) {
    options.executor.execute(() -> guard(what, callback, done));
  }

  private void guard(String what, Runnable callback, CompletableFuture<Void> done) {
    try {
      callback.run();
    } catch (RuntimeException e) {
      if (!what.equals(LOGGER)) threw(what, e);
    } finally {
      if (done != null) done.complete(null);
    }
  }

  /** A callback threw. */
  void threw(String what, RuntimeException e) {
    if (options.logger == null) return;
    run(LOGGER, () -> options.logger.log(Level.WARNING, "latchkey: " + what + " threw", e), null);
  }

  void log(Level level, String message, Throwable error) {
    if (options.logger == null) return;
    // Without the stack, which would show this client's thread and nothing of the cause.
    String text = "latchkey: " + message + (error == null ? "" : ": " + error.getMessage());
    Runnable tell =
        () -> {
          options.logger.log(level, text + " (" + address + ")");
          if (error != null) options.logger.log(Level.DEBUG, "latchkey: " + message, error);
        };
    run(LOGGER, tell, null);
  }

  /** Tells that a lease is not confirmed for the moment. */
  void troubled(Hold hold, LatchkeyException error) {
    log(Level.WARNING, "the lease on " + hold.key() + " is not confirmed; trying again", error);
    var own = hold.options().onTroubled;
    var all = options.onTroubled;
    if (own != null) run("onTroubled", () -> own.accept(hold, error), null);
    if (all != null) run("onTroubled", () -> all.accept(hold, error), null);
  }

  /** Hands an outcome on by the executor, so that what depends on it cannot be in the way here. */
  <T> void publish(CompletableFuture<T> future, BiConsumer<T, LatchkeyException> take) {
    future.whenComplete(
        (value, failure) -> {
          Runnable handOn = () -> take.accept(value, Client.unwrap(failure));
          try {
            options.executor.execute(handOn);
          } catch (RejectedExecutionException e) {
            run("a future", handOn, null);
          }
        });
  }

  <T> CompletableFuture<T> published(CompletableFuture<T> future) {
    CompletableFuture<T> out = new CompletableFuture<>();
    publish(
        future,
        (value, error) -> {
          if (error == null) out.complete(value);
          else out.completeExceptionally(error);
        });
    return out;
  }

  boolean isCurrent() {
    return Thread.currentThread() == current;
  }

  /** What waits is still run; then the thread ends. */
  void stop() {
    thread.shutdown();
  }

  void awaitEnd(long millis) throws InterruptedException {
    thread.awaitTermination(millis, TimeUnit.MILLISECONDS);
    Thread last = current; // it tells of its end a moment before it has ended
    if (last != null) last.join(millis);
  }
}
