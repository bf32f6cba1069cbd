package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/**
 * Options of a request for a lease. It is immutable: each method returns a copy with one thing
 * changed. Durations are sent in whole milliseconds; null takes an option back.
 */
public final class AcquireOptions {
  private static final AcquireOptions DEFAULTS = new AcquireOptions(Map.of());

  private final Map<String, Object> fields;
  boolean renew = true;
  Consumer<? super Queued> onQueued;
  BiConsumer<? super Hold, ? super LatchkeyException> onTroubled;

  private AcquireOptions(Map<String, Object> fields) {
    this.fields = fields;
  }

  /**
   * Exclusive, a ttl of 30 s, renewed, waiting without bound.
   *
   * @return the defaults
   */
  public static AcquireOptions defaults() {
    return DEFAULTS;
  }

  private AcquireOptions copy(Map<String, Object> changed) {
    AcquireOptions out = new AcquireOptions(changed);
    out.renew = renew;
    out.onQueued = onQueued;
    out.onTroubled = onTroubled;
    return out;
  }

  private AcquireOptions with(String name, Object value) {
    Map<String, Object> changed = new LinkedHashMap<>(fields);
    if (value == null) changed.remove(name);
    else changed.put(name, value);
    return copy(changed);
  }

  /** In whole milliseconds; what is above 0 never becomes 0. */
  static Long millis(Duration d) {
    if (d == null) return null;
    try {
      long ms = d.toMillis();
      return ms == 0 && !d.isZero() ? Long.valueOf(1) : Long.valueOf(ms);
    } catch (ArithmeticException e) {
      return Long.MAX_VALUE;
    }
  }

  /**
   * Holds together with other shared holds.
   *
   * @return a changed copy
   */
  public AcquireOptions shared() {
    return with("mode", Mode.SHARED.wire()).with("max", null);
  }

  /**
   * Holds as one of several.
   *
   * @param max how many holders there may be, 1 to 1000
   * @return a changed copy
   */
  public AcquireOptions counted(int max) {
    return with("mode", Mode.COUNTED.wire()).with("max", (long) max);
  }

  /**
   * Holds alone, which is the default.
   *
   * @return a changed copy
   */
  public AcquireOptions exclusive() {
    return with("mode", null).with("max", null);
  }

  /**
   * The time to live; by default 30 s, and at least 100 ms.
   *
   * @param ttl how long the lease lasts without a renewal
   * @return a changed copy
   */
  public AcquireOptions ttl(Duration ttl) {
    return with("ttl", millis(ttl)).with("forever", null);
  }

  /**
   * Until it is released or its session ends, instead of a ttl.
   *
   * @return a changed copy
   */
  public AcquireOptions forever() {
    return with("forever", true).with("ttl", null);
  }

  /**
   * Waits at most so long, then fails with {@link WaitTimeoutException}. Without it there is no
   * bound.
   *
   * @param wait the bound, above 0
   * @return a changed copy
   */
  public AcquireOptions waitAtMost(Duration wait) {
    return with("wait", millis(wait));
  }

  /**
   * Fails at once with {@link BusyException} instead of waiting.
   *
   * @return a changed copy
   */
  public AcquireOptions tryOnce() {
    return with("try", true);
  }

  /**
   * What people are shown.
   *
   * @param label up to 256 bytes
   * @return a changed copy
   */
  public AcquireOptions label(String label) {
    return with("label", label == null || label.isEmpty() ? null : label);
  }

  /**
   * Shared only: passes writers that wait, which may starve them.
   *
   * @return a changed copy
   */
  public AcquireOptions preferReaders() {
    return with("prefer_readers", true);
  }

  /**
   * The longest total time of the hold, renewals included.
   *
   * @param maxHold the cap
   * @return a changed copy
   */
  public AcquireOptions maxHold(Duration maxHold) {
    return with("max_hold", millis(maxHold));
  }

  /**
   * After an involuntary loss the keys stay unavailable that long.
   *
   * @param lockDelay up to an hour
   * @return a changed copy
   */
  public AcquireOptions lockDelay(Duration lockDelay) {
    Long ms = millis(lockDelay);
    return with("lock_delay", ms != null && ms == 0 ? null : ms);
  }

  /**
   * The hold outlives its session, until its ttl.
   *
   * @return a changed copy
   */
  public AcquireOptions detach() {
    return with("detach", true);
  }

  /**
   * Holds that will not be released before this request is answered, for finding deadlocks. Those
   * of each {@link Client#call} around, in the same thread, are added unless the request is
   * asynchronous.
   *
   * @param ids ids of holds, up to 64, of this or another session
   * @return a changed copy
   */
  public AcquireOptions declared(Collection<String> ids) {
    if (ids != null) {
      for (String id : ids) Objects.requireNonNull(id, "one of the declared ids is null");
    }
    return with("declared", ids == null || ids.isEmpty() ? null : List.copyOf(ids));
  }

  /**
   * Names the request and the hold; random by default. Whoever knows it can release the hold.
   *
   * @param id up to 128 bytes
   * @return a changed copy
   */
  public AcquireOptions id(String id) {
    return with("id", id);
  }

  /**
   * Whether the lease is renewed each third of its ttl, which is the default. If not, only its
   * deadline is watched.
   *
   * @param renew whether to renew
   * @return a changed copy
   */
  public AcquireOptions renew(boolean renew) {
    AcquireOptions out = copy(fields);
    out.renew = renew;
    return out;
  }

  /**
   * Is told once if the request has to wait.
   *
   * @param callback gets who is ahead; it runs before the request is answered to its caller
   * @return a changed copy
   */
  public AcquireOptions onQueued(Consumer<? super Queued> callback) {
    AcquireOptions out = copy(fields);
    out.onQueued = callback;
    return out;
  }

  /**
   * Is told of every renewal that failed or is late, and of a broken connection, while the lease is
   * still held.
   *
   * @param callback gets the hold and what failed
   * @return a changed copy
   */
  public AcquireOptions onTroubled(BiConsumer<? super Hold, ? super LatchkeyException> callback) {
    AcquireOptions out = copy(fields);
    out.onTroubled = callback;
    return out;
  }

  /** The fields of the request. The default ttl is spelled out, so that repeats mean the same. */
  Map<String, Object> fields(Collection<String> keys) {
    Map<String, Object> out = new LinkedHashMap<>(fields);
    for (String key : Objects.requireNonNull(keys, "the keys are null")) {
      Objects.requireNonNull(key, "one of the keys is null");
    }
    if (keys.size() == 1) out.put("key", keys.iterator().next());
    else out.put("keys", List.copyOf(new ArrayList<>(keys)));
    out.computeIfAbsent("id", absent -> Ids.random());
    if (!out.containsKey("forever")) out.putIfAbsent("ttl", Limits.DEFAULT_TTL);
    checkTtl(out);
    checkWait(out);
    return out;
  }

  private static void checkWait(Map<String, Object> fields) {
    if (!(fields.get("wait") instanceof Long wait)) return;
    if (fields.containsKey("try")) {
      throw refuse("tryOnce() does not wait: leave out waitAtMost").describe("acquire", "");
    }
    if (wait < 1) {
      throw refuse(
              "waitAtMost is %d ms: use tryOnce() not to wait, or leave it out to wait without bound"
                  .formatted(wait))
          .describe("acquire", "");
    }
  }

  /** Refuses what the margin and a scheduling delay would use up. */
  static void checkTtl(Map<String, Object> fields) {
    if (fields.get("ttl") instanceof Long ttl && ttl > 0 && ttl < Limits.MIN_TTL) {
      throw refuse(
          "ttl is %d ms, under %d: the safety margin and a scheduling delay would use it up"
              .formatted(ttl, Limits.MIN_TTL));
    }
  }
}
