package io.github.latchkeygo;

import java.util.List;
import java.util.OptionalLong;

/** What {@link Client#force(String, String, String)} ended. */
public final class Forced {
  private final String key;
  private final List<Long> tokens;
  private final OptionalLong fence;

  Forced(String key, List<Long> tokens, OptionalLong fence) {
    this.key = key;
    this.tokens = tokens;
    this.fence = fence;
  }

  /**
   * Tokens of the holds that were ended, as far as the broker told them.
   *
   * @return the tokens
   */
  public List<Long> tokens() {
    return tokens;
  }

  /**
   * A fresh token above all of them: telling it to the resource shuts the old holders out at once.
   *
   * @return the token
   * @throws FencingUnknownException when the broker sent none that is a safe integer
   */
  public long fence() {
    return fence.orElseThrow(() -> new FencingUnknownException(key));
  }
}
