package io.github.latchkeygo;

/** {@code closed}: the client was closed, or the broker shuts down. */
public final class ClosedException extends RetryException {
  private static final long serialVersionUID = 1L;

  ClosedException(String code, Details details) {
    super(code, details);
  }
}
