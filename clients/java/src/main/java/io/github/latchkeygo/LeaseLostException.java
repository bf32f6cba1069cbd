package io.github.latchkeygo;

/**
 * A hold was lost. Whoever has it must stop. Each code has a class below this one; {@link
 * HoldReleasedException} and {@link HoldClosedException} are there too, which come of somebody's
 * wish.
 */
public class LeaseLostException extends LatchkeyException {
  private static final long serialVersionUID = 1L;

  LeaseLostException(String code, Details details) {
    super(code, details);
  }

  @Override
  public Kind kind() {
    return Kind.LOSS;
  }
}
