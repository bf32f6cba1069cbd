package io.github.latchkeygo;

/** {@code session_lost}: the broker ended the session, and its holds with it. */
public final class SessionLostException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  SessionLostException(String code, Details details) {
    super(code, details);
  }
}
