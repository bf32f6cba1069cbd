package io.github.latchkeygo;

import java.io.ByteArrayOutputStream;
import java.util.function.Consumer;

/** Cuts a stream of bytes into lines. An unfinished line is kept, up to the limit. */
final class Lines {
  private final int limit;
  private final ByteArrayOutputStream kept = new ByteArrayOutputStream();

  Lines(int limit) {
    this.limit = limit;
  }

  /** Gives each line that is complete now; throws when one is longer than the limit. */
  void push(byte[] chunk, int length, Consumer<byte[]> take) {
    int start = 0;
    for (int end = 0; end < length; end++) {
      if (chunk[end] != '\n') continue;
      keep(chunk, start, end - start);
      start = end + 1;
      byte[] line = kept.toByteArray();
      kept.reset();
      take.accept(line);
    }
    keep(chunk, start, length - start);
  }

  private void keep(byte[] chunk, int start, int length) {
    if (kept.size() + length > limit) {
      kept.reset();
      throw LatchkeyException.breach(
          "the broker sent a line that is too long: over " + limit + " bytes");
    }
    kept.write(chunk, start, length);
  }
}
