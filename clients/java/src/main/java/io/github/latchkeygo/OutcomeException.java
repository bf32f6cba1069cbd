package io.github.latchkeygo;

/** How a request ended without a lease, or that there is no such hold. */
public class OutcomeException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  OutcomeException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.OUTCOME;
  }
}
