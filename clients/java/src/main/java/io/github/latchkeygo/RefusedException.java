package io.github.latchkeygo;

/** {@code refused}: the request breaks a rule or a limit, named in {@link #reason()}. */
public final class RefusedException extends MistakeException {
  private static final long serialVersionUID = 1L;

  RefusedException(String code, Details details) {
    super(code, details);
  }
}
