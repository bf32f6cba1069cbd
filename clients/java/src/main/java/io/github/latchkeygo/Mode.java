package io.github.latchkeygo;

import java.util.Locale;

/** How a key is held. */
public enum Mode {
  /** Alone. */
  EXCLUSIVE,
  /** With other shared holds. */
  SHARED,
  /** Up to so many holds at a time. */
  COUNTED;

  String wire() {
    return name().toLowerCase(Locale.ROOT);
  }

  /** What a later broker may call otherwise counts as exclusive. */
  static Mode of(String wire) {
    return switch (wire) {
      case "shared" -> SHARED;
      case "counted" -> COUNTED;
      default -> EXCLUSIVE;
    };
  }
}
