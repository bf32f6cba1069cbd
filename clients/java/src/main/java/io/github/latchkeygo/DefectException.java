package io.github.latchkeygo;

/** A defect of the broker, or a code that this client does not know. */
public class DefectException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  DefectException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.DEFECT;
  }
}
