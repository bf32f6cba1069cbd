package io.github.latchkeygo;

/** {@code protocol}: the peer sent what the protocol does not allow. */
public final class ProtocolException extends MistakeException {
  private static final long serialVersionUID = 1L;

  ProtocolException(String code, Details details) {
    super(code, details);
  }
}
