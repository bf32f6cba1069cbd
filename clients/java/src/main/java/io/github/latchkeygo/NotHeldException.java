package io.github.latchkeygo;

/** {@code not_held}: there is no such hold, or not any more. */
public final class NotHeldException extends OutcomeException {
  private static final long serialVersionUID = 1L;

  NotHeldException(String code, Details details) {
    super(code, details);
  }
}
