package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** What clients send, and what they never send. */
final class Requests {
  /** The order is that of the vectors, so that frames are the same from every client. */
  private static final Map<String, List<String>> FIELDS =
      Map.ofEntries(
          Map.entry("open", List.of("name", "host", "pid", "grace", "resume")),
          Map.entry(
              "acquire",
              List.of(
                  "id",
                  "key",
                  "keys",
                  "mode",
                  "max",
                  "ttl",
                  "forever",
                  "try",
                  "wait",
                  "waited",
                  "prefer_readers",
                  "max_hold",
                  "lock_delay",
                  "detach",
                  "label",
                  "declared")),
          Map.entry("renew", List.of("id", "key", "token", "ttl", "forever")),
          Map.entry("release", List.of("id", "key", "token")),
          Map.entry("detach", List.of("id", "token")),
          Map.entry("cancel", List.of("id")),
          Map.entry("ping", List.of()),
          Map.entry("close", List.of()),
          Map.entry("list", List.of("key", "prefix", "after", "limit", "contended", "brief")),
          Map.entry("watch", List.of("key", "prefix")),
          Map.entry("unwatch", List.of("watch")),
          Map.entry("force", List.of("key", "token", "by", "reason")),
          Map.entry("stats", List.of()));

  private Requests() {}

  /** Encodes a request that was checked, with its newline. */
  static String encode(long n, String op, Map<String, Object> fields) {
    StringBuilder out = new StringBuilder(96);
    out.append("{\"n\":").append(n).append(",\"do\":\"").append(op).append('"');
    for (String name : FIELDS.get(op)) {
      Object value = fields.get(name);
      if (value == null || value.equals(Boolean.FALSE)) continue;
      if (name.equals("mode") && value.equals("exclusive")) continue;
      out.append(",\"").append(name).append("\":");
      Json.write(out, value);
    }
    return out.append("}\n").toString();
  }

  /**
   * Refuses a frame that a server would close the connection for.
   *
   * @param room bytes by which it may grow when it is sent again
   */
  static void checkFrame(String frame, int room) {
    int limit = Limits.MAX_REQUEST_BYTES - room;
    if (frame.length() * 3 > limit && frame.getBytes(StandardCharsets.UTF_8).length - 1 > limit) {
      throw refuse("the request is more than " + limit + " bytes as a frame (MaxFrame)");
    }
  }

  /** Refuses what a server would refuse: one bad frame must not cost all. */
  static void check(String op, Map<String, Object> f) {
    List<String> known = op == null ? null : FIELDS.get(op);
    if (known == null) throw refuse(op + " is not an operation");
    for (String name : f.keySet()) {
      if (!known.contains(name)) throw refuse("unknown field \"" + name + "\" for " + op);
    }
    try {
      switch (op) {
        case "open" -> checkOpen(f);
        case "acquire" -> checkAcquire(f);
        case "renew" -> {
          checkHold(f);
          checkTtl(f);
        }
        case "release", "detach" -> checkHold(f);
        case "cancel" -> {
          require(f, "id");
          text(f, "id", 1, Limits.MAX_ID_BYTES, "MaxIDLength");
        }
        case "list" -> {
          checkSelection(f);
          text(f, "after", 0, Limits.MAX_KEY_BYTES, "MaxKeyLength");
          number(f, "limit", 1, Limits.MAX_LISTED, "MaxListed", "");
          flag(f, "contended");
          flag(f, "brief");
        }
        case "watch" -> checkSelection(f);
        case "unwatch" -> {
          require(f, "watch");
          number(f, "watch", 1, Limits.MAX_INTEGER, "", "");
        }
        case "force" -> checkForce(f);
        default -> {}
      }
    } catch (LatchkeyException e) {
      throw e.describe(op, "");
    }
  }

  private static void checkOpen(Map<String, Object> f) {
    text(f, "name", 0, Limits.MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "host", 0, Limits.MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "resume", 1, Limits.MAX_ID_BYTES, "MaxIDLength");
    number(f, "pid", 0, Limits.MAX_INTEGER, "", "");
    number(f, "grace", 0, Limits.MAX_HOUR, "MaxGrace", "");
  }

  private static void checkForce(Map<String, Object> f) {
    require(f, "key");
    text(f, "key", 1, Limits.MAX_KEY_BYTES, "MaxKeyLength");
    number(f, "token", 1, Limits.MAX_INTEGER, "", "");
    text(f, "by", 0, Limits.MAX_LABEL_BYTES, "MaxLabelLength");
    text(f, "reason", 0, Limits.MAX_LABEL_BYTES, "MaxLabelLength");
  }

  private static void checkAcquire(Map<String, Object> f) {
    if (f.containsKey("keys")) {
      if (f.containsKey("key")) throw refuse("key and keys exclude each other");
      texts(f, "keys", Limits.MAX_KEYS, Limits.MAX_KEY_BYTES, "MaxKeys");
      if (((List<?>) f.get("keys")).isEmpty()) {
        throw refuse("keys is empty: at least one key is needed");
      }
    } else {
      require(f, "key");
      text(f, "key", 1, Limits.MAX_KEY_BYTES, "MaxKeyLength");
    }
    text(f, "id", 1, Limits.MAX_ID_BYTES, "MaxIDLength");
    checkMode(f);
    checkTtl(f);
    for (String name : List.of("try", "prefer_readers", "detach")) flag(f, name);
    String hint = "leave it out to wait without bound, or use try";
    number(f, "wait", 1, Limits.MAX_TTL, "MaxWait", hint);
    if (set(f, "try") && f.containsKey("wait")) {
      throw refuse("a try does not wait: leave out wait");
    }
    number(f, "waited", 0, Limits.MAX_INTEGER, "", "");
    number(f, "max_hold", 1, Limits.MAX_TTL, "MaxTTL", "");
    number(f, "lock_delay", 0, Limits.MAX_HOUR, "MaxLockDelay", "");
    text(f, "label", 0, Limits.MAX_LABEL_BYTES, "MaxLabelLength");
    texts(f, "declared", Limits.MAX_DECLARED, Limits.MAX_ID_BYTES, "MaxDeclared");
  }

  private static void checkMode(Map<String, Object> f) {
    Object mode = f.getOrDefault("mode", "exclusive");
    if (!List.of("exclusive", "shared", "counted").contains(mode)) {
      throw refuse("mode must be exclusive, shared or counted, got " + mode);
    }
    boolean counted = mode.equals("counted");
    if (counted && !f.containsKey("max")) {
      throw refuse("max must be a positive integer, and is missing");
    }
    if (!counted && f.containsKey("max")) throw refuse("max: only a counted request has one");
    number(f, "max", 1, Limits.MAX_HOLDERS, "MaxHolders", "");
    if (set(f, "prefer_readers") && !mode.equals("shared")) {
      throw refuse("prefer_readers: only a shared request has it");
    }
  }

  private static void checkTtl(Map<String, Object> f) {
    flag(f, "forever");
    if (set(f, "forever") && f.containsKey("ttl")) {
      throw refuse("ttl and forever exclude each other");
    }
    number(f, "ttl", 1, Limits.MAX_TTL, "MaxTTL", "for a hold without end use forever");
  }

  private static void checkHold(Map<String, Object> f) {
    boolean id = f.containsKey("id");
    if (id && f.containsKey("token")) throw refuse("id and token exclude each other");
    if (!id && !f.containsKey("token")) throw refuse("id is missing, and there is no token");
    text(f, "id", 1, Limits.MAX_ID_BYTES, "MaxIDLength");
    number(f, "token", 1, Limits.MAX_INTEGER, "", "");
    text(f, "key", 1, Limits.MAX_KEY_BYTES, "MaxKeyLength");
  }

  private static void checkSelection(Map<String, Object> f) {
    if (f.containsKey("key") && f.containsKey("prefix")) {
      throw refuse("key and prefix exclude each other");
    }
    text(f, "key", 1, Limits.MAX_KEY_BYTES, "MaxKeyLength");
    text(f, "prefix", 0, Limits.MAX_KEY_BYTES, "MaxKeyLength");
  }

  private static void require(Map<String, Object> f, String name) {
    if (!f.containsKey(name)) throw refuse(name + " is missing");
  }

  private static boolean set(Map<String, Object> f, String name) {
    return Boolean.TRUE.equals(f.get(name));
  }

  private static void flag(Map<String, Object> f, String name) {
    if (f.containsKey(name) && !(f.get(name) instanceof Boolean)) {
      throw refuse(name + " must be true or false");
    }
  }

  private static void text(
      Map<String, Object> f, String name, int least, int limit, String limitName) {
    if (f.containsKey(name)) text(name, f.get(name), least, limit, limitName);
  }

  private static void text(String name, Object value, int least, int limit, String limitName) {
    if (!(value instanceof String s)) throw refuse(name + " must be a string, got " + value);
    if (s.length() < least) throw refuse(name + " is empty");
    // At most three bytes a unit, so that short ones need not be measured.
    if (s.length() * 3L > limit) {
      int size = s.getBytes(StandardCharsets.UTF_8).length;
      if (size > limit) {
        throw refuse(
            "%s is %d bytes, at most %d are allowed (%s)".formatted(name, size, limit, limitName));
      }
    }
    for (int i = 0; i < s.length(); i++) {
      if (!Character.isSurrogate(s.charAt(i))) continue;
      if (!Character.isSupplementaryCodePoint(s.codePointAt(i))) {
        throw refuse(name + " has half of a surrogate pair");
      }
      i++;
    }
  }

  private static void texts(
      Map<String, Object> f, String name, int most, int limit, String limitName) {
    if (!f.containsKey(name)) return;
    if (!(f.get(name) instanceof List<?> list)) throw refuse(name + " must be an array of strings");
    if (list.size() > most) {
      throw refuse(
          "%d %s, at most %d are allowed (%s)".formatted(list.size(), name, most, limitName));
    }
    Set<Object> seen = new HashSet<>();
    for (Object value : list) {
      text("one of " + name, value, 1, limit, limitName);
      if (!seen.add(value) && name.equals("keys")) throw refuse("key " + value + " appears twice");
    }
  }

  private static void number(
      Map<String, Object> f, String name, long least, long most, String limitName, String hint) {
    if (!f.containsKey(name)) return;
    if (!(f.get(name) instanceof Long value)) {
      throw refuse(name + " must be an integer, got " + f.get(name));
    }
    String tail = hint.isEmpty() ? "" : "; " + hint;
    if (value < least) {
      throw refuse("%s is %d, it must be at least %d%s".formatted(name, value, least, tail));
    }
    if (value > most) {
      String of = limitName.isEmpty() ? "" : " (" + limitName + ")";
      throw refuse("%s is %d, at most %d is allowed%s%s".formatted(name, value, most, of, tail));
    }
  }
}
