package io.github.latchkeygo;

/** What happened cannot be known. */
public class UnknownException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  UnknownException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.UNKNOWN;
  }
}
