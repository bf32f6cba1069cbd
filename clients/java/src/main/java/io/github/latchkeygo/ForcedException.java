package io.github.latchkeygo;

/** {@code forced}: an administrator took the hold. */
public final class ForcedException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  ForcedException(String code, Details details) {
    super(code, details);
  }
}
