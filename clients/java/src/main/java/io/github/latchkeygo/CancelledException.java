package io.github.latchkeygo;

/** {@code cancelled}: the request was taken back. Nothing is held or queued. */
public final class CancelledException extends OutcomeException {
  private static final long serialVersionUID = 1L;

  CancelledException(String code, Details details) {
    super(code, details);
  }
}
