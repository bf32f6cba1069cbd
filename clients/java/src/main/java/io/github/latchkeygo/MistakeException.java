package io.github.latchkeygo;

/** The request, or the peer, breaks a rule. Repeating it unchanged does not help. */
public class MistakeException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  MistakeException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.MISTAKE;
  }
}
