package io.github.latchkeygo;

/** {@code unknown}: the lease may be held until its ttl. */
public final class UnknownOutcomeException extends UnknownException {
  private static final long serialVersionUID = 1L;

  UnknownOutcomeException(String code, Details details) {
    super(code, details);
  }
}
