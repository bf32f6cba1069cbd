package io.github.latchkeygo;

/** {@code closed}: the hold was lost because this client was closed while it was held. */
public final class HoldClosedException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  HoldClosedException(String code, Details details) {
    super(code, details);
  }
}
