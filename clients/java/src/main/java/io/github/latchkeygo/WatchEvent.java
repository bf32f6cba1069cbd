package io.github.latchkeygo;

import java.time.Duration;
import java.util.OptionalLong;

/**
 * What happened to a key. Texts are empty where the broker told none.
 *
 * @param event {@code granted}, {@code released}, {@code expired}, {@code forced}, {@code ended}
 *     (with its session), {@code queued}, {@code dequeued} (left without a grant), {@code
 *     detached}; {@code gap}: events were dropped or missed, so list again. A later broker may send
 *     others.
 * @param key the key; empty for a gap
 * @param session name of the session
 * @param host where it runs
 * @param pid its process; 0 when not told
 * @param label the label of the hold
 * @param mode how it is held; null for a gap
 * @param max counted only: the limit
 * @param token the fencing token, if there is one
 * @param after how long it waited ({@code granted}, {@code dequeued}) or was held (the ends), or
 *     null
 * @param code why a request left without a grant
 */
public record WatchEvent(
    String event,
    String key,
    String session,
    String host,
    long pid,
    String label,
    Mode mode,
    int max,
    OptionalLong token,
    Duration after,
    String code) {

  /** Events were dropped or missed. */
  static final WatchEvent GAP =
      new WatchEvent("gap", "", "", "", 0, "", null, 0, OptionalLong.empty(), null, "");

  /**
   * Whether events were dropped or missed, so that one has to list again.
   *
   * @return whether it is a gap
   */
  public boolean isGap() {
    return event.equals("gap");
  }
}
