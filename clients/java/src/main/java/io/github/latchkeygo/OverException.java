package io.github.latchkeygo;

/** {@code over}: the request with this id has ended; use a new id. */
public final class OverException extends MistakeException {
  private static final long serialVersionUID = 1L;

  OverException(String code, Details details) {
    super(code, details);
  }
}
