package io.github.latchkeygo;

import java.util.List;

/**
 * A page of a listing.
 *
 * @param keys the keys
 * @param more whether there are more: ask again with {@code after} set to the last key
 */
public record Listing(List<KeyState> keys, boolean more) {}
