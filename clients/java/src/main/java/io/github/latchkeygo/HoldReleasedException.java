package io.github.latchkeygo;

/** {@code not_held}: the hold was lost because another session released it by its id. */
public final class HoldReleasedException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  HoldReleasedException(String code, Details details) {
    super(code, details);
  }
}
