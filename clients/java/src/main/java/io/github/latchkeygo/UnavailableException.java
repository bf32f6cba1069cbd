package io.github.latchkeygo;

/** {@code unavailable}: the broker cannot serve this now, or cannot be reached. */
public final class UnavailableException extends RetryException {
  private static final long serialVersionUID = 1L;

  UnavailableException(String code, Details details) {
    super(code, details);
  }
}
