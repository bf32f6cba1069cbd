package io.github.latchkeygo;

/** Nothing was changed; the same may succeed later. */
public class RetryException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  RetryException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.RETRY;
  }
}
