package io.github.latchkeygo;

/**
 * One edge of a deadlock.
 *
 * @param who holds something, and waits
 * @param key what it waits for
 */
public record CycleEntry(String who, String key) {}
