package io.github.latchkeygo;

/** {@code service_gone}: nothing was confirmed by the broker up to this client's own deadline. */
public final class ServiceGoneException extends LeaseLostException {
  private static final long serialVersionUID = 1L;

  ServiceGoneException(String code, Details details) {
    super(code, details);
  }
}
