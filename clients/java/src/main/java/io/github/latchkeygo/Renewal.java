package io.github.latchkeygo;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.Deadlines.Grant;
import io.github.latchkeygo.LatchkeyException.Details;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/** When a hold is renewed by itself, and what is told when that fails. It has the loop's lock. */
final class Renewal {
  /** Between renewals of its own. */
  private static final long LEAST_PAUSE = 10 * Deadlines.MILLI;

  private final Hold hold;
  private final Holds holds;
  private final boolean automatic;
  private long ttl; // in milliseconds
  private long at = Deadlines.NEVER;
  private boolean asking;
  private long asked;
  private boolean overdue;
  private int failures;
  private LatchkeyException trouble;

  /** For a lease that was asked for then. */
  Renewal(Hold hold, Holds holds, boolean automatic, Grant grant, long sent) {
    this.hold = hold;
    this.holds = holds;
    this.automatic = automatic;
    this.ttl = grant.ttl();
    // From the deadline, not from now: the answer may be late.
    if (automatic && ttl != Deadlines.NEVER) {
      long end = Deadlines.plus(sent, Deadlines.nanos(grant.elapsed() + grant.remaining()));
      at = end - Deadlines.nanos(ttl) / 3 * 2;
    }
  }

  /** The ttl, as of the last word of the broker. */
  long ttl() {
    return ttl;
  }

  void ttl(long millis) {
    ttl = millis;
  }

  /** Whether the broker has not confirmed the lease of late, though asked. */
  boolean isUnconfirmed() {
    return failures > 0 || asking;
  }

  /** What went wrong last, since the last success. */
  LatchkeyException trouble() {
    return trouble;
  }

  /** When it has to look again. */
  long next() {
    if (!asking) return at;
    return overdue ? Deadlines.NEVER : asked + patience();
  }

  void look() {
    long now = holds.loop.now();
    if (!asking && now >= at) {
      asking = true;
      asked = now;
      overdue = false;
      holds.calls.command("renew", Map.of("id", hold.id()), hold).handle(this::answered);
    } else if (asking && !overdue && now >= asked + patience()) {
      overdue = true;
      Details details = Details.of("renew", hold.key()).reason("no answer yet");
      tell(LatchkeyException.of("unavailable", details));
    }
  }

  private Void answered(Answer answer, Throwable failure) {
    holds.loop.enter();
    try {
      asking = false;
      LatchkeyException error = Client.unwrap(failure);
      if (error == null) error = renewed(answer);
      if (error != null) failed(error);
      return null;
    } finally {
      holds.loop.exit();
    }
  }

  private LatchkeyException renewed(Answer answer) {
    try {
      hold.renewed(answer);
      return null;
    } catch (LatchkeyException e) {
      return e; // an answer that says nothing renews nothing
    }
  }

  private void failed(LatchkeyException error) {
    hold.judge(error);
    if (!hold.keeps()) return;
    long now = holds.loop.now();
    at = now + pause(hold.deadline() - now);
    failures++;
    tell(error);
    hold.arm();
  }

  private void tell(LatchkeyException error) {
    trouble = error;
    holds.callbacks.troubled(hold, error);
  }

  /** The lease was renewed, whoever asked, by a request that was sent then. */
  void confirmed(long sent) {
    failures = 0;
    trouble = null;
    long next = Deadlines.plus(sent, Deadlines.nanos(ttl) / 3);
    // A broker that grants no time is not asked without a pause.
    boolean renews = automatic && ttl != Deadlines.NEVER;
    at = renews ? Math.max(next, holds.loop.now() + LEAST_PAUSE) : Deadlines.NEVER;
  }

  /** How long a renewal may stay unanswered before that is told. */
  private long patience() {
    return Math.min(ttl / 6, 5000) * Deadlines.MILLI;
  }

  /**
   * The pause before the next try of a failed renewal: doubling from a thirtieth of the ttl to a
   * sixth, at most 5 s and half of what is left, at least 10 ms; half of it is random.
   */
  private long pause(long left) {
    long wanted = Math.min(ttl / 30, 1000) * Deadlines.MILLI << Math.min(failures, 10);
    long longest = Math.min(patience(), left / 2);
    long d = Math.max(Math.min(wanted, longest), LEAST_PAUSE);
    return d / 2 + ThreadLocalRandom.current().nextLong(d / 2);
  }
}
