package io.github.latchkeygo;

/** {@code busy}: a try found a holder, a lock-delay, or someone queued ahead. */
public final class BusyException extends OutcomeException {
  private static final long serialVersionUID = 1L;

  BusyException(String code, Details details) {
    super(code, details);
  }
}
