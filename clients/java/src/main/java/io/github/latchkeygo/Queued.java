package io.github.latchkeygo;

import java.util.List;

/**
 * That a request has to wait.
 *
 * @param key the first key in the way
 * @param position how many requests are ahead of it there
 * @param ahead up to eight holders of that key
 */
public record Queued(String key, long position, List<Holder> ahead) {}
