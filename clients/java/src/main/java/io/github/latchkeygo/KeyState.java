package io.github.latchkeygo;

import java.time.Duration;
import java.util.List;

/**
 * One key of a listing.
 *
 * @param key the key
 * @param holders in the order of their grants
 * @param waiters in the order of their arrival; the first ones when there are many
 * @param waiting how many wait
 * @param delay what is left of a lock-delay; null when there is none
 */
public record KeyState(
    String key, List<Holder> holders, List<Waiter> waiters, long waiting, Duration delay) {}
