package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.LatchkeyException.Details;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A session with a broker, on one connection, and the leases that are held through it. The
 * connection is made again when it breaks, until {@link #close()}.
 *
 * <p>All methods may be called by any thread. A callback that waits holds up the callbacks after
 * it, which run on the same thread, and nothing else.
 */
public final class Client implements AutoCloseable {
  private static final String DEFAULT_ADDRESS = "127.0.0.1:6970";

  /** A hold that {@link #call} keeps while its body runs, and the ones around it. */
  private record Scope(Hold hold, Scope outer) {}

  /** The innermost one of each thread. */
  private static final ThreadLocal<Scope> SCOPES = new ThreadLocal<>();

  private final Session session;

  /**
   * What {@link Client#call} runs.
   *
   * @param <T> what it returns
   * @param <E> what it throws
   */
  @FunctionalInterface
  public interface Body<T, E extends Exception> {
    /**
     * Runs while the lease is held.
     *
     * @param hold the lease
     * @return the result
     * @throws E as it likes
     * @throws InterruptedException when the thread was interrupted, which the loss of the lease
     *     does
     */
    T run(Hold hold) throws E, InterruptedException;
  }

  private Client(Session session) {
    this.session = session;
  }

  /**
   * Connects to the broker of {@code LATCHKEY_SERVER}, or 127.0.0.1:6970.
   *
   * @return the client
   * @throws InterruptedException if the thread was interrupted
   */
  public static Client connect() throws InterruptedException {
    return connect(ConnectOptions.defaults());
  }

  /**
   * Connects to a broker.
   *
   * @param address {@code host:port} or {@code unix:PATH}
   * @return the client
   * @throws InterruptedException if the thread was interrupted
   */
  public static Client connect(String address) throws InterruptedException {
    return connect(ConnectOptions.defaults().address(address));
  }

  /**
   * Connects to a broker and opens a session there: one attempt.
   *
   * @param options where, and as whom
   * @return the client
   * @throws InterruptedException if the thread was interrupted
   * @throws UnavailableException when nobody answers
   * @throws ProtocolException when what answers is no broker
   */
  public static Client connect(ConnectOptions options) throws InterruptedException {
    Objects.requireNonNull(options, "the options are null");
    String address = options.address;
    if (address == null) address = System.getenv("LATCHKEY_SERVER");
    if (address == null || address.isEmpty()) address = DEFAULT_ADDRESS;
    if (options.connectTimeout < 1) {
      throw refuse("the connect timeout must be above 0").describe("connect", "");
    }
    String host = hostName();
    Requests.check("open", Connector.who(options, host));
    Session session;
    try {
      session = new Session(options, address, host);
    } catch (IOException e) {
      throw LatchkeyException.unavailable("no selector can be opened", e).describe("connect", "");
    }
    Client client = new Client(session);
    try {
      await(session.open());
    } catch (InterruptedException | RuntimeException e) {
      client.close();
      throw e;
    }
    return client;
  }

  private static String hostName() {
    try {
      String host = InetAddress.getLocalHost().getHostName();
      int size = host.getBytes(StandardCharsets.UTF_8).length;
      return size <= Limits.MAX_LABEL_BYTES ? host : "";
    } catch (UnknownHostException e) {
      return "";
    }
  }

  /**
   * What the broker said of itself.
   *
   * @return product, durability, and where tokens come from
   */
  public ServerInfo server() {
    return session.server();
  }

  /**
   * Whether there is a connection just now.
   *
   * @return whether the session is open on a connection
   */
  public boolean isConnected() {
    return session.connected();
  }

  /**
   * Waits for an exclusive lease with a ttl of 30 s.
   *
   * @param key the key
   * @return the hold
   * @throws InterruptedException if the thread was interrupted; nothing stays behind
   */
  public Hold acquire(String key) throws InterruptedException {
    return acquire(key, AcquireOptions.defaults());
  }

  /**
   * Waits for a lease on a key.
   *
   * @param key the key
   * @param options how
   * @return the hold
   * @throws InterruptedException if the thread was interrupted; nothing stays behind
   */
  public Hold acquire(String key, AcquireOptions options) throws InterruptedException {
    return acquire(one(key), options);
  }

  /**
   * Waits for a lease on 1 to 64 keys, all or none, and keeps it until it is released or lost. A
   * connection that breaks meanwhile costs neither the place in the queue nor the lease, as long as
   * the session lives.
   *
   * @param keys the keys
   * @param options how
   * @return the hold
   * @throws InterruptedException if the thread was interrupted; nothing stays behind, or, if the
   *     broker does not answer, what is unknown is suppressed in it
   * @throws BusyException when it was to try once
   * @throws WaitTimeoutException when its bound on waiting passed
   */
  public Hold acquire(Collection<String> keys, AcquireOptions options) throws InterruptedException {
    Objects.requireNonNull(options, "the options are null");
    Map<String, Object> fields = options.fields(keys);
    declareAround(fields);
    if (Thread.interrupted()) throw new InterruptedException();
    Call call = session.acquire(fields, options);
    try {
      return await(call.granted);
    } catch (InterruptedException e) {
      session.abandon(call);
      awaitQuietly(call.granted, 2 * Limits.CANCEL_WAIT);
      call.granted.whenComplete(
          (hold, failure) -> {
            if (unwrap(failure) instanceof UnknownOutcomeException unknown)
              e.addSuppressed(unknown);
          });
      throw e;
    }
  }

  private static List<String> one(String key) {
    return List.of(Objects.requireNonNull(key, "the key is null"));
  }

  /**
   * Declares the holds of the calls around, which cannot be released before this thread has its
   * answer, so that waiting for oneself is refused rather than for ever.
   */
  private static void declareAround(Map<String, Object> fields) {
    Set<Object> ids = new LinkedHashSet<>();
    if (fields.get("declared") instanceof List<?> declared) ids.addAll(declared);
    for (Scope s = SCOPES.get(); s != null && ids.size() < Limits.MAX_DECLARED; s = s.outer) {
      if (s.hold.keeps() && !s.hold.id().equals(fields.get("id"))) ids.add(s.hold.id());
    }
    if (!ids.isEmpty()) fields.put("declared", List.copyOf(ids));
  }

  /**
   * As {@link #acquire(String, AcquireOptions)}.
   *
   * @param key the key
   * @param options how
   * @return completes with the hold
   */
  public CompletableFuture<Hold> acquireAsync(String key, AcquireOptions options) {
    return acquireAsync(one(key), options);
  }

  /**
   * As {@link #acquire(Collection, AcquireOptions)}. Whatever completes the future before the grant
   * does, such as {@code cancel} or {@code orTimeout}, takes the request back, and nothing stays
   * behind.
   *
   * @param keys the keys
   * @param options how
   * @return completes with the hold
   */
  public CompletableFuture<Hold> acquireAsync(Collection<String> keys, AcquireOptions options) {
    Objects.requireNonNull(options, "the options are null");
    CompletableFuture<Hold> out = new CompletableFuture<>();
    Call call;
    try {
      call = session.acquire(options.fields(keys), options);
    } catch (LatchkeyException e) {
      out.completeExceptionally(e);
      return out;
    }
    session.callbacks.publish(
        call.granted,
        (hold, error) -> {
          if (error != null) out.completeExceptionally(error);
          else if (!out.complete(hold)) hold.releaseInternal();
        });
    out.whenComplete(
        (hold, failure) -> {
          boolean granted = failure == null && hold != null && hold == call.granted.getNow(null);
          if (!granted) session.abandon(call);
        });
    return out;
  }

  /**
   * Waits for an exclusive lease with a ttl of 30 s and runs a body under it; see {@link
   * #call(Collection, AcquireOptions, Body)}.
   *
   * @param <T> what it returns
   * @param <E> what it throws
   * @param key the key
   * @param body what to run
   * @return what the body returned
   * @throws E as the body does
   * @throws InterruptedException if the thread was interrupted
   */
  public <T, E extends Exception> T call(String key, Body<T, E> body)
      throws E, InterruptedException {
    return call(key, AcquireOptions.defaults(), body);
  }

  /**
   * Waits for a lease on a key and runs a body under it; see {@link #call(Collection,
   * AcquireOptions, Body)}.
   *
   * @param <T> what it returns
   * @param <E> what it throws
   * @param key the key
   * @param options how
   * @param body what to run
   * @return what the body returned
   * @throws E as the body does
   * @throws InterruptedException if the thread was interrupted
   */
  public <T, E extends Exception> T call(String key, AcquireOptions options, Body<T, E> body)
      throws E, InterruptedException {
    return call(one(key), options, body);
  }

  /**
   * Waits for a lease, runs a body in this thread while it is held, and releases it when the body
   * is done, whatever happens. When the lease is lost the thread is interrupted, and the body must
   * end.
   *
   * @param <T> what it returns
   * @param <E> what it throws
   * @param keys the keys
   * @param options how
   * @param body what to run
   * @return what the body returned, if the lease was held throughout
   * @throws E as the body does
   * @throws InterruptedException if the thread was interrupted, other than by a loss
   * @throws LeaseLostException if the lease was lost meanwhile; its cause is what the body threw,
   *     if that was something else
   * @throws DeadlockException if this thread already holds a key of these by a call around
   */
  public <T, E extends Exception> T call(
      Collection<String> keys, AcquireOptions options, Body<T, E> body)
      throws E, InterruptedException {
    Objects.requireNonNull(body, "the body is null");
    Hold hold = acquire(keys, options);
    Scope outer = SCOPES.get();
    SCOPES.set(new Scope(hold, outer));
    Interrupter interrupter = new Interrupter(Thread.currentThread());
    Throwable failure = null;
    try {
      hold.atLoss(interrupter::loss);
      return body.run(hold);
    } catch (Throwable t) {
      failure = t;
      throw t;
    } finally {
      if (outer == null) SCOPES.remove();
      else SCOPES.set(outer);
      interrupter.over();
      hold.atLoss(null);
      hold.settle();
      session.loop.enter();
      LeaseLostException cause = hold.cause();
      session.loop.exit();
      if (cause != null && !tells(failure, cause)) {
        boolean silent = failure == null || failure instanceof InterruptedException;
        throw silent ? cause.fresh() : cause.withCause(failure);
      }
    }
  }

  /** Whether what the body threw is the loss itself, as from {@link Hold#check()}. */
  private static boolean tells(Throwable failure, LeaseLostException cause) {
    return failure instanceof LeaseLostException e
        && e.code().equals(cause.code())
        && e.key().equals(cause.key());
  }

  /** Interrupts a thread at a loss, and takes the interrupt back when it came too late. */
  private static final class Interrupter {
    private final Thread thread;
    private boolean over;
    private boolean done;
    private boolean before;

    Interrupter(Thread thread) {
      this.thread = thread;
    }

    synchronized void loss() {
      if (over || done) return;
      done = true;
      before = thread.isInterrupted();
      thread.interrupt();
    }

    synchronized void over() {
      over = true;
      if (done && !before) Thread.interrupted();
    }
  }

  /**
   * Lists who holds and who waits, a page at a time.
   *
   * @param options what to list
   * @return the page
   * @throws InterruptedException if the thread was interrupted
   */
  public Listing list(ListOptions options) throws InterruptedException {
    return Wire.listing(await(session.command("list", options.fields())).body());
  }

  /**
   * Watches what happens to one key, from now on.
   *
   * @param key the key
   * @return the watch
   * @throws InterruptedException if the thread was interrupted
   */
  public Watch watchKey(String key) throws InterruptedException {
    return watch(
        Map.of("key", Objects.requireNonNull(key, "the key is null")), Limits.DEFAULT_WATCH_BUFFER);
  }

  /**
   * Watches what happens to keys with a prefix, from now on.
   *
   * @param prefix the prefix; empty: all keys
   * @return the watch
   * @throws InterruptedException if the thread was interrupted
   */
  public Watch watchPrefix(String prefix) throws InterruptedException {
    return watchPrefix(prefix, Limits.DEFAULT_WATCH_BUFFER);
  }

  /**
   * Watches what happens to keys with a prefix, from now on.
   *
   * @param prefix the prefix; empty: all keys
   * @param buffer how many events are kept for a slow reader before they are dropped with a gap
   * @return the watch
   * @throws InterruptedException if the thread was interrupted
   */
  public Watch watchPrefix(String prefix, int buffer) throws InterruptedException {
    Objects.requireNonNull(prefix, "the prefix is null");
    return watch(prefix.isEmpty() ? Map.of() : Map.of("prefix", prefix), buffer);
  }

  private Watch watch(Map<String, Object> fields, int buffer) throws InterruptedException {
    if (buffer < 1) throw refuse("the buffer must be at least 1").describe("watch", "");
    CompletableFuture<Watch> begun = session.watch(fields, buffer);
    try {
      return await(begun);
    } catch (InterruptedException e) {
      begun.cancel(false);
      if (!begun.isCancelled()) begun.thenAccept(Watch::close);
      throw e;
    }
  }

  /**
   * Ends every hold of a key, as an administrator, and tells the holders.
   *
   * @param key the key
   * @param by who does it
   * @param reason why
   * @return what was ended
   * @throws InterruptedException if the thread was interrupted; it may be carried out
   * @throws NotHeldException if there was none
   */
  public Forced force(String key, String by, String reason) throws InterruptedException {
    return force(key, OptionalLong.empty(), by, reason);
  }

  /**
   * Ends the hold of a key with this token, as an administrator, and tells the holder.
   *
   * @param key the key
   * @param token the token
   * @param by who does it
   * @param reason why
   * @return what was ended
   * @throws InterruptedException if the thread was interrupted; it may be carried out
   * @throws NotHeldException if there was none
   */
  public Forced force(String key, long token, String by, String reason)
      throws InterruptedException {
    return force(key, OptionalLong.of(token), by, reason);
  }

  private Forced force(String key, OptionalLong token, String by, String reason)
      throws InterruptedException {
    Map<String, Object> fields = new LinkedHashMap<>();
    fields.put("key", Objects.requireNonNull(key, "the key is null"));
    token.ifPresent(t -> fields.put("token", t));
    if (by != null && !by.isEmpty()) fields.put("by", by);
    if (reason != null && !reason.isEmpty()) fields.put("reason", reason);
    Map<String, Object> body = await(session.command("force", fields)).body();
    List<Long> tokens = new ArrayList<>();
    Object listed = body.getOrDefault("tokens", List.of());
    if (listed instanceof List<?> list) {
      for (Object t : list) Wire.token(t).ifPresent(tokens::add);
    }
    Wire.token(body.get("token")).ifPresent(tokens::add);
    return new Forced(key, List.copyOf(tokens), Wire.token(body.get("fence")));
  }

  /**
   * Counters, gauges and histograms of the broker.
   *
   * @return numbers (Long, or Double), and maps of them
   * @throws InterruptedException if the thread was interrupted
   */
  public Map<String, Object> stats() throws InterruptedException {
    Answer answer = await(session.command("stats", Map.of()));
    if (answer.body().get("stats") instanceof Map<?, ?> stats) return Json.asObject(stats);
    throw LatchkeyException.breach("the answer has no stats").describe("stats", "");
  }

  /**
   * Says goodbye, which releases all that is not detached, and leaves neither thread nor socket
   * behind. Calls that wait fail with {@link ClosedException}. A second call is harmless.
   */
  @Override
  public void close() {
    awaitQuietly(session.close(), 2 * Limits.CANCEL_WAIT);
    try {
      session.join(2 * Limits.CANCEL_WAIT);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt(); // they end all the same
    }
  }

  // Waiting.

  /** Waits for what completes with errors of this package. */
  static <T> T await(CompletableFuture<T> future) throws InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException e) {
      LatchkeyException error = unwrap(e);
      throw error.fresh();
    }
  }

  /** The error of this package that a future failed with; null for none. */
  static LatchkeyException unwrap(Throwable failure) {
    Throwable t = failure;
    while ((t instanceof CompletionException || t instanceof ExecutionException)
        && t.getCause() != null) {
      t = t.getCause();
    }
    if (t == null || t instanceof LatchkeyException) return (LatchkeyException) t;
    String code = t instanceof CancellationException ? "cancelled" : "internal";
    return LatchkeyException.of(code, Details.of("", "").reason(t.toString()).cause(t));
  }

  /**
   * Waits at most so long, however it ends, and does not end at an interrupt; the thread is then
   * interrupted again.
   */
  static void awaitQuietly(CompletableFuture<?> future, long millis) {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    boolean interrupted = false;
    while (true) {
      try {
        future.get(Math.max(end - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
        break;
      } catch (InterruptedException e) {
        interrupted = true;
      } catch (ExecutionException | TimeoutException | CancellationException e) {
        break;
      }
    }
    if (interrupted) Thread.currentThread().interrupt();
  }
}
