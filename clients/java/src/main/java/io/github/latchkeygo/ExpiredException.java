package io.github.latchkeygo;

/** {@code expired}: the ttl or the longest hold ran out, or this process or machine stood still. */
public final class ExpiredException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  ExpiredException(String code, Details details) {
    super(code, details);
  }
}
