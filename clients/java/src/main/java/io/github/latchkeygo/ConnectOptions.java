package io.github.latchkeygo;

import java.lang.System.Logger;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.BiConsumer;

/**
 * Options of {@link Client#connect(ConnectOptions)}. It is immutable: each method returns a copy
 * with one thing changed.
 */
public final class ConnectOptions implements Cloneable {
  String address;
  String name = "";
  long grace = Limits.DEFAULT_GRACE;
  long connectTimeout = Limits.DEFAULT_CONNECT_TIMEOUT;
  Logger logger = System.getLogger("io.github.latchkeygo");
  BiConsumer<? super Hold, ? super LatchkeyException> onTroubled;
  Executor executor = defaultExecutor();
  Clock clock = SystemClock.SHARED;

  private ConnectOptions() {}

  /**
   * The broker of {@code LATCHKEY_SERVER}, or 127.0.0.1:6970, and a grace of 3 s.
   *
   * @return the defaults
   */
  public static ConnectOptions defaults() {
    return new ConnectOptions();
  }

  /** The common pool, also on two cores, where the default of futures is a thread for each. */
  private static Executor defaultExecutor() {
    return ForkJoinPool.getCommonPoolParallelism() > 0
        ? ForkJoinPool.commonPool()
        : new CompletableFuture<Void>().defaultExecutor();
  }

  private ConnectOptions copy() {
    try {
      return (ConnectOptions) clone();
    } catch (CloneNotSupportedException e) {
      throw new AssertionError(e);
    }
  }

  /**
   * Where the broker listens.
   *
   * @param address {@code host:port}, {@code [v6]:port} or {@code unix:PATH}
   * @return a changed copy
   */
  public ConnectOptions address(String address) {
    ConnectOptions out = copy();
    out.address = address;
    return out;
  }

  /**
   * Who this is, shown to people.
   *
   * @param name up to 256 bytes
   * @return a changed copy
   */
  public ConnectOptions name(String name) {
    ConnectOptions out = copy();
    out.name = name == null ? "" : name;
    return out;
  }

  /**
   * How long the session outlives the last sign of life; 3 s by default, up to an hour. Zero: it
   * ends the moment its connection breaks.
   *
   * @param grace the time
   * @return a changed copy
   */
  public ConnectOptions grace(Duration grace) {
    ConnectOptions out = copy();
    out.grace = AcquireOptions.millis(grace);
    return out;
  }

  /**
   * Bounds each attempt to connect; 3 s by default.
   *
   * @param timeout the bound, above 0
   * @return a changed copy
   */
  public ConnectOptions connectTimeout(Duration timeout) {
    ConnectOptions out = copy();
    out.connectTimeout = AcquireOptions.millis(timeout);
    return out;
  }

  /**
   * Gets what cannot be returned, such as broken connections; by default the system logger {@code
   * io.github.latchkeygo}.
   *
   * @param logger the logger
   * @return a changed copy
   */
  public ConnectOptions logger(Logger logger) {
    ConnectOptions out = copy();
    out.logger = logger;
    return out;
  }

  /**
   * Is told of every renewal that failed or is late, and of a broken connection, while a lease is
   * still held.
   *
   * @param callback gets the hold and what failed
   * @return a changed copy
   */
  public ConnectOptions onTroubled(BiConsumer<? super Hold, ? super LatchkeyException> callback) {
    ConnectOptions out = copy();
    out.onTroubled = callback;
    return out;
  }

  /**
   * Completes the futures that the asynchronous methods return; by default {@link
   * ForkJoinPool#commonPool()}.
   *
   * @param executor runs what depends on those futures
   * @return a changed copy
   */
  public ConnectOptions executor(Executor executor) {
    ConnectOptions out = copy();
    out.executor = executor;
    return out;
  }

  ConnectOptions clock(Clock clock) {
    ConnectOptions out = copy();
    out.clock = clock;
    return out;
  }
}
