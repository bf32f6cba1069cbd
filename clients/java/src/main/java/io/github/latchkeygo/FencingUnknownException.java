package io.github.latchkeygo;

/**
 * The broker granted the lease, but its fencing token is absent or no safe integer. It is thrown by
 * reading the token, so that no made-up number ever reaches the protected resource.
 */
public final class FencingUnknownException extends UnknownException {
  private static final long serialVersionUID = 1L;

  FencingUnknownException(String key) {
    super(
        "fencing_unknown",
        Details.of("token", key)
            .reason(
                "the broker sent no token that can be represented; do not write what needs fencing"));
  }
}
