package io.github.latchkeygo;

/**
 * What a broker says of itself.
 *
 * @param server product and version, for people
 * @param durability {@code memory}, or how what is acknowledged survives a crash
 * @param fencing {@code journal}: tokens rise for ever; {@code clock}: as long as the broker's
 *     clock is not set back
 */
public record ServerInfo(String server, String durability, String fencing) {}
