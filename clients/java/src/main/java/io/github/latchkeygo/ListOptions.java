package io.github.latchkeygo;

import java.util.LinkedHashMap;
import java.util.Map;

/** What {@link Client#list} lists. It is immutable: each method returns a changed copy. */
public final class ListOptions {
  private static final ListOptions ALL = new ListOptions(Map.of());

  private final Map<String, Object> fields;

  private ListOptions(Map<String, Object> fields) {
    this.fields = fields;
  }

  Map<String, Object> fields() {
    return fields;
  }

  /**
   * All keys, up to 1000 a page.
   *
   * @return the options
   */
  public static ListOptions all() {
    return ALL;
  }

  /**
   * One key.
   *
   * @param key the key
   * @return the options
   */
  public static ListOptions key(String key) {
    return ALL.with("key", key);
  }

  /**
   * Keys with a prefix.
   *
   * @param prefix the prefix
   * @return the options
   */
  public static ListOptions prefix(String prefix) {
    return ALL.with("prefix", prefix);
  }

  private ListOptions with(String name, Object value) {
    Map<String, Object> changed = new LinkedHashMap<>(fields);
    changed.put(name, value);
    return new ListOptions(changed);
  }

  /**
   * Keys that sort after this one, for the next page.
   *
   * @param key the last key of the page before
   * @return a changed copy
   */
  public ListOptions after(String key) {
    return with("after", key);
  }

  /**
   * How many keys at most.
   *
   * @param limit 1 to 10 000
   * @return a changed copy
   */
  public ListOptions limit(int limit) {
    return with("limit", (long) limit);
  }

  /**
   * Only keys with waiters, most first, in one page.
   *
   * @return a changed copy
   */
  public ListOptions contended() {
    return with("contended", true);
  }

  /**
   * Leaves the waiters out, and tells only how many there are.
   *
   * @return a changed copy
   */
  public ListOptions brief() {
    return with("brief", true);
  }
}
