package io.github.latchkeygo;

import java.security.SecureRandom;
import java.util.HexFormat;

/** Ids that nobody guesses. */
final class Ids {
  private static final int SIZE = 16;
  private static final SecureRandom RANDOM = new SecureRandom();
  private static final byte[] pool = new byte[SIZE * 64];
  private static int drawn = pool.length;

  private Ids() {}

  /** 128 random bits, drawn from the system for many ids at once. */
  static synchronized String random() {
    if (drawn == pool.length) {
      RANDOM.nextBytes(pool);
      drawn = 0;
    }
    drawn += SIZE;
    return HexFormat.of().formatHex(pool, drawn - SIZE, drawn);
  }
}
