package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.Deadlines.Grant;
import io.github.latchkeygo.LatchkeyException.Details;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;

/**
 * A lease that is held. It is renewed each third of its ttl unless asked otherwise, and watched:
 * its loss is told before another holder can be granted the key.
 *
 * <p>The loss of one key of several is the loss of the whole hold; {@link #release()} gives back
 * the others. All methods may be called by any thread.
 */
public final class Hold implements AutoCloseable {
  private enum Phase {
    HELD,
    LOST,
    RELEASED
  }

  private final Holds holds;
  private final AcquireOptions options;
  private final String id;
  private final List<String> keys;
  private final List<OptionalLong> tokens;
  private final Duration waited;
  private final CompletableFuture<LeaseLostException> lost = new CompletableFuture<>();

  // Behind the lock of the loop.
  private final Loop.Alarm alarm;
  private final Renewal renewal;
  private Phase phase = Phase.HELD;
  private LeaseLostException cause;
  private Runnable atLoss; // called under the lock: it must be quick
  private long until; // of the lease, or what was safe when it was lost
  private boolean detached;
  private boolean given;
  private CompletableFuture<Void> releasing;

  Hold(Holds holds, Grant grant, long sent, AcquireOptions options) {
    this.holds = holds;
    this.options = options;
    this.id = grant.id();
    this.keys = grant.keys();
    this.tokens = grant.tokens();
    this.waited = Duration.ofMillis(grant.waited());
    this.alarm = holds.loop.alarm(this::tick);
    this.renewal = new Renewal(this, holds, options.renew, grant, sent);
    take(grant, sent);
  }

  /**
   * Names the hold. Keep it to yourself: whoever knows it can release the hold.
   *
   * @return the id
   */
  public String id() {
    return id;
  }

  /**
   * The key; of several, the first.
   *
   * @return the key
   */
  public String key() {
    return keys.get(0);
  }

  /**
   * The keys, sorted by the broker when there are several.
   *
   * @return the keys
   */
  public List<String> keys() {
    return keys;
  }

  /**
   * How long the request waited in the queue.
   *
   * @return the time
   */
  public Duration waited() {
    return waited;
  }

  /**
   * The fencing token of the only key. Send it along with every write to what the lease protects,
   * and let that refuse a token lower than the highest it has seen.
   *
   * @return the token, above 0 and below 2^53
   * @throws FencingUnknownException when the broker sent none that is a safe integer
   * @throws RefusedException for a hold of several keys, which has {@link #tokens()}
   */
  public long token() {
    if (keys.size() > 1) {
      throw refuse("a hold of several keys has several tokens: read tokens")
          .describe("token", key());
    }
    return token(0);
  }

  private long token(int i) {
    return tokens.get(i).orElseThrow(() -> new FencingUnknownException(keys.get(i)));
  }

  /**
   * The fencing token of each key.
   *
   * @return tokens by key, in the order of the keys
   * @throws FencingUnknownException when the broker sent one that is no safe integer
   */
  public Map<String, Long> tokens() {
    Map<String, Long> out = new LinkedHashMap<>();
    for (int i = 0; i < keys.size(); i++) out.put(keys.get(i), token(i));
    return Collections.unmodifiableMap(out);
  }

  /**
   * The ttl as of the last renewal.
   *
   * @return the ttl; empty when the hold has none
   */
  public Optional<Duration> ttl() {
    holds.loop.enter();
    try {
      long ttl = renewal.ttl();
      return ttl == Deadlines.NEVER ? Optional.empty() : Optional.of(Duration.ofMillis(ttl));
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * Whether the hold outlives its session.
   *
   * @return whether it is detached
   */
  public boolean isDetached() {
    holds.loop.enter();
    try {
      return detached;
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * The instant up to which it is safe to act, on the clock of {@link System#nanoTime()}: section 6
   * of the protocol. A renewal or a ping moves it ahead, a sleep of the machine brings it nearer.
   *
   * @return the instant; empty when nothing ends by itself
   */
  public OptionalLong safeUntil() {
    holds.loop.enter();
    try {
      long end = deadline();
      return end == Deadlines.NEVER
          ? OptionalLong.empty()
          : OptionalLong.of(holds.loop.clock.toNanoTime(end));
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * What is left until {@link #safeUntil()}.
   *
   * @return the time, not above zero when it has passed; {@link ChronoUnit#FOREVER} when nothing
   *     ends by itself
   */
  public Duration safeFor() {
    holds.loop.enter();
    try {
      long end = deadline();
      return end == Deadlines.NEVER
          ? ChronoUnit.FOREVER.getDuration()
          : Duration.ofNanos(end - holds.loop.now());
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * Whether it is safe to act now. It looks at the clock, so that it is right also in a process
   * that was stopped, and on Linux on a machine that slept, before any timer has run; a deadline
   * that has passed ends the hold.
   *
   * @return whether the lease is held
   */
  public boolean isSafe() {
    return ended() == null;
  }

  /**
   * Throws why the hold has ended, if it has; see {@link #isSafe()}.
   *
   * @throws LeaseLostException when the lease is lost
   * @throws NotHeldException when it was released
   */
  public void check() {
    LatchkeyException ended = ended();
    if (ended != null) throw ended.fresh();
  }

  private LatchkeyException ended() {
    holds.loop.enter();
    try {
      sweep();
      if (phase == Phase.HELD || cause != null) return cause;
      return LatchkeyException.of("not_held", Details.of("hold", key()).reason("it was released"));
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * Completes when the hold is lost, with why, which includes that the client was closed; on the
   * client's thread for callbacks. It does not complete on release.
   *
   * @return the stage
   */
  public CompletionStage<LeaseLostException> lost() {
    return lost.minimalCompletionStage();
  }

  /**
   * Calls back when {@link #lost()} completes, at once if it has. Callbacks of a client run one
   * after the other on a thread of their own.
   *
   * @param callback gets the cause
   */
  public void onLost(Consumer<? super LeaseLostException> callback) {
    Objects.requireNonNull(callback, "the callback is null");
    lost.thenAccept(
        why -> {
          try {
            callback.accept(why);
          } catch (RuntimeException e) {
            holds.callbacks.threw("onLost", e);
          }
        });
  }

  /**
   * Starts the ttl anew, from now. Holds are renewed by themselves unless asked otherwise.
   *
   * @throws InterruptedException if the thread was interrupted; the renewal may be carried out
   * @throws LeaseLostException when the lease is lost
   * @throws LatchkeyException when it was not renewed, and is not lost yet
   */
  public void renew() throws InterruptedException {
    Client.await(renewInternal(Map.of()));
  }

  /**
   * Starts the ttl anew, from now, and changes it.
   *
   * @param ttl the new time to live, at least 100 ms
   * @throws InterruptedException if the thread was interrupted; the renewal may be carried out
   * @throws LeaseLostException when the lease is lost
   * @throws LatchkeyException when it was not renewed, and is not lost yet
   */
  public void renew(Duration ttl) throws InterruptedException {
    Client.await(renewInternal(ttlFields(ttl)));
  }

  /**
   * As {@link #renew(Duration)}.
   *
   * @param ttl the new time to live, at least 100 ms
   * @return completes with what {@code renew} would throw
   */
  public CompletableFuture<Void> renewAsync(Duration ttl) {
    try {
      return holds.callbacks.published(renewInternal(ttlFields(ttl)));
    } catch (LatchkeyException e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private static Map<String, Object> ttlFields(Duration ttl) {
    Map<String, Object> fields =
        Map.of("ttl", AcquireOptions.millis(Objects.requireNonNull(ttl, "the ttl is null")));
    AcquireOptions.checkTtl(fields);
    return fields;
  }

  private CompletableFuture<Void> renewInternal(Map<String, Object> fields) {
    return extend("renew", fields);
  }

  /**
   * Lets the hold outlive its session: it lasts until its ttl when this process goes. It is renewed
   * until then as before.
   *
   * @throws InterruptedException if the thread was interrupted; it may be carried out
   * @throws LeaseLostException when the lease is lost
   */
  public void detach() throws InterruptedException {
    Client.await(extend("detach", Map.of()));
  }

  private CompletableFuture<Void> extend(String op, Map<String, Object> more) {
    holds.loop.enter();
    try {
      check();
      Map<String, Object> fields = new LinkedHashMap<>(more);
      fields.put("id", id);
      return holds
          .calls
          .command(op, fields, this)
          .handle(
              (answer, failure) -> {
                holds.loop.enter();
                try {
                  LatchkeyException error = Client.unwrap(failure);
                  if (error == null) renewed(answer);
                  else judge(error);
                  if (cause != null) throw cause;
                  if (error != null) throw error;
                  return null;
                } finally {
                  holds.loop.exit();
                }
              });
    } finally {
      holds.loop.exit();
    }
  }

  /**
   * Ends the hold and waits for the broker's answer. After a loss it gives back what is left and
   * throws the loss, so that success means: held without a gap until now. Once it succeeded,
   * further calls succeed too.
   *
   * @throws InterruptedException if the thread was interrupted; the release goes on
   * @throws LeaseLostException when the lease was lost before
   * @throws UnknownOutcomeException when it is not answered: the hold then ends with its ttl or
   *     session, and release may be called again
   */
  public void release() throws InterruptedException {
    Client.await(releaseInternal());
  }

  /**
   * As {@link #release()}.
   *
   * @return completes with what {@code release} would throw
   */
  public CompletableFuture<Void> releaseAsync() {
    return holds.callbacks.published(releaseInternal());
  }

  /**
   * Releases at the end of a try-with-resources, waiting up to 5 s, also when the thread is
   * interrupted. What is not confirmed by then ends with its ttl or session.
   *
   * @throws LeaseLostException when the lease was lost before
   */
  @Override
  public void close() {
    settle();
    LatchkeyException why;
    holds.loop.enter();
    why = cause;
    holds.loop.exit();
    if (why != null) throw why.fresh();
  }

  /** Releases, for a bounded time, and tells nothing. */
  void settle() {
    Client.awaitQuietly(releaseInternal(), Limits.RELEASE_WAIT);
  }

  CompletableFuture<Void> releaseInternal() {
    holds.loop.enter();
    try {
      if (releasing != null) return releasing;
      sweep();
      if (phase == Phase.HELD) {
        phase = Phase.RELEASED;
        alarm.clear();
      }
      holds.forget(this);
      if (given) {
        return cause == null
            ? CompletableFuture.completedFuture(null)
            : CompletableFuture.failedFuture(cause);
      }
      CompletableFuture<Answer> answer = holds.calls.command("release", Map.of("id", id), this);
      boolean[] over = {false};
      CompletableFuture<Void> out =
          answer.handle(
              (ok, failure) -> {
                holds.loop.enter();
                try {
                  over[0] = true;
                  releasing = null;
                  return released(Client.unwrap(failure));
                } finally {
                  holds.loop.exit();
                }
              });
      if (!over[0]) releasing = out;
      return out;
    } finally {
      holds.loop.exit();
    }
  }

  private Void released(LatchkeyException error) {
    String code = error == null ? "" : error.code();
    boolean gone = code.equals("not_held") || code.equals("over");
    if (error == null || gone) given = true;
    if (gone && cause == null) {
      String reason = "the broker did not know the hold any more when it was released";
      Details details = Details.of("release", key()).reason(reason).cause(error);
      cause = LatchkeyException.loss("expired", details);
    }
    if (cause != null) throw cause;
    if (error != null) throw error;
    return null;
  }

  // What follows is for the session, which has the lock.

  AcquireOptions options() {
    return options;
  }

  /** Whether it is held, for all that is known without a look at the clock. */
  boolean keeps() {
    holds.loop.enter();
    try {
      return phase == Phase.HELD;
    } finally {
      holds.loop.exit();
    }
  }

  LeaseLostException cause() {
    return cause;
  }

  /** Has something called at the loss, or at once; under the lock. */
  void atLoss(Runnable action) {
    holds.loop.enter();
    try {
      if (cause != null && action != null) action.run();
      else atLoss = action;
    } finally {
      holds.loop.exit();
    }
  }

  /** Up to when it is safe, on the client's clock. */
  long deadline() {
    if (phase == Phase.LOST) return until;
    return Deadlines.safeUntil(until, holds.until(), detached);
  }

  /** Starts the watch over the hold, once the session knows it. */
  void arm() {
    if (phase != Phase.HELD) return;
    alarm.set(Math.min(until, renewal.next()));
  }

  /** Ends the hold if its time has passed. */
  void sweep() {
    if (phase != Phase.HELD) return;
    long now = holds.loop.now();
    if (now < deadline()) return;
    if (renewal.isUnconfirmed() || now < until) {
      lose("service_gone", "not confirmed by the broker up to its deadline", renewal.trouble());
    } else {
      lose(
          "expired",
          "its deadline passed: it was not renewed, reached its longest hold, or this process"
              + " or machine stood still",
          null);
    }
  }

  /** Ends the hold from the broker's side, or by the clock. */
  void lose(String code, String reason, Throwable why) {
    if (phase != Phase.HELD) return;
    until = deadline();
    phase = Phase.LOST;
    cause = LatchkeyException.loss(code, Details.of("hold", key()).reason(reason).cause(why));
    // The session's end released it, and a closed client cannot ask.
    given = code.equals("session_lost") || code.equals("closed");
    alarm.clear();
    holds.forget(this);
    if (atLoss != null) atLoss.run();
    LeaseLostException told = cause;
    holds.callbacks.run("onLost", () -> lost.complete(told), null);
  }

  /** Whether a notice is about what is held here. */
  boolean holds(String key, OptionalLong token) {
    int i = keys.indexOf(key);
    if (i < 0) return false;
    OptionalLong own = tokens.get(i);
    return own.isEmpty() || token.isEmpty() || own.equals(token);
  }

  /** Whether the broker still has all of it. */
  boolean isAllOf(Grant grant) {
    for (String key : keys) {
      int i = grant.keys().indexOf(key);
      if (i < 0 || !holds(key, grant.tokens().get(i))) return false;
    }
    return true;
  }

  /** The broker still had it when the session was resumed. */
  void resumed(Grant grant, long sent) {
    take(grant, sent);
    arm();
  }

  private void take(Grant grant, long sent) {
    until = Deadlines.lease(sent, grant);
    renewal.ttl(grant.ttl());
    detached = grant.detached() || detached;
  }

  /** Takes the answer to a renewal. */
  void renewed(Answer answer) {
    // What has passed is over, whatever the broker says now: nobody knows who held it meanwhile.
    sweep();
    if (phase != Phase.HELD) return;
    take(Wire.grant(answer.body()), answer.sent());
    renewal.confirmed(answer.sent());
    arm();
  }

  private void tick() {
    sweep();
    if (phase != Phase.HELD) return;
    renewal.look();
    arm();
  }

  /** Ends the hold when an answer about it proves that it is lost. */
  void judge(LatchkeyException error) {
    String code = error.code();
    if (code.equals("not_held") || code.equals("over")) code = "expired";
    if (code.equals("expired") || code.equals("forced") || code.equals("session_lost")) {
      lose(code, "the broker does not know the hold any more", error);
    }
  }
}
