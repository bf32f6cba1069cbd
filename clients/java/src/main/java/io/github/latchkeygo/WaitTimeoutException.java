package io.github.latchkeygo;

/** {@code timeout}: the request's own bound on waiting passed. Nothing is held. */
public final class WaitTimeoutException extends OutcomeException {
  private static final long serialVersionUID = 1L;

  WaitTimeoutException(String code, Details details) {
    super(code, details);
  }
}
