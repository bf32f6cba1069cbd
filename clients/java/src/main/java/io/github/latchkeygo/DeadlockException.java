package io.github.latchkeygo;

/**
 * {@code deadlock}: the request waits for itself through declared holds; see {@link #cycle()}.
 * Nothing is queued.
 */
public final class DeadlockException extends OutcomeException {
  private static final long serialVersionUID = 1L;

  DeadlockException(String code, Details details) {
    super(code, details);
  }
}
