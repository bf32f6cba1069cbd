package io.github.latchkeygo;

import java.time.Duration;

/**
 * A request that waits for a key. Texts are empty, and durations null, where the broker told none.
 *
 * @param session name of the session
 * @param host where it runs
 * @param pid its process; 0 when not told
 * @param label the label of the request
 * @param mode how it wants to hold
 * @param max counted only: the limit
 * @param keys how many keys the request has
 * @param age how long it has waited
 * @param left time until its bound; null when it has none
 * @param broken whether its session has no connection just now
 */
public record Waiter(
    String session,
    String host,
    long pid,
    String label,
    Mode mode,
    int max,
    int keys,
    Duration age,
    Duration left,
    boolean broken) {}
