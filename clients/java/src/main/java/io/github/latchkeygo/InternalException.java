package io.github.latchkeygo;

/**
 * {@code internal}: also every code that this client does not know: {@link #code()} keeps its name.
 */
public final class InternalException extends DefectException {
  private static final long serialVersionUID = 1L;

  InternalException(String code, Details details) {
    super(code, details);
  }
}
