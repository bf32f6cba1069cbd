package io.github.latchkeygo;

import io.github.latchkeygo.Deadlines.Grant;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;

/** What frames of a server say. */
final class Wire {
  static final String HELLO = "{\"latchkey\":1,\"features\":[]}\n";

  private Wire() {}

  /** What a frame of a server is. */
  enum Kind {
    OK,
    FAILED,
    QUEUED,
    PART,
    EVENT,
    LOST
  }

  /**
   * A frame whose kind and number are checked; the rest is read by who knows what was asked for.
   *
   * @param n the request that it is about; 0 when it is about the connection
   */
  record Reply(Kind kind, long n, Map<String, Object> body) {}

  /** Decodes a server's first line. Throws what the server answered instead, or a breach. */
  static ServerInfo hello(byte[] line) {
    Map<String, Object> o = Json.object(line);
    if (Boolean.FALSE.equals(o.get("ok"))) {
      String code = text(o, "code");
      throw LatchkeyException.of(
          code.isEmpty() ? "internal" : code,
          LatchkeyException.Details.of("connect", "").reason(text(o, "reason")));
    }
    Object version = o.get("latchkey");
    if (version == null) {
      throw LatchkeyException.breach("what answers is no broker: its first line has no latchkey");
    }
    if (!version.equals(1L)) {
      throw LatchkeyException.breach(
          "the broker speaks version " + version + ", this client version 1");
    }
    if (o.containsKey("features") && !(o.get("features") instanceof List)) {
      throw LatchkeyException.breach("features must be an array of strings");
    }
    return new ServerInfo(text(o, "server"), text(o, "durability"), text(o, "fencing"));
  }

  /** Decodes any frame of a server after the first. */
  static Reply reply(byte[] line) {
    Map<String, Object> o = Json.object(line);
    long n = 0;
    if (o.containsKey("n")) {
      n = o.get("n") instanceof Long l && l <= Limits.MAX_INTEGER ? l : 0;
      if (n < 1) {
        throw LatchkeyException.breach("n must be an integer from 1, got " + o.get("n"));
      }
    }
    if (o.containsKey("ok")) return answer(n, o);
    if (n == 0) {
      if (!text(o, "lost").isEmpty()) return new Reply(Kind.LOST, n, o);
      throw LatchkeyException.breach("a frame has neither n nor lost nor ok");
    }
    if (Boolean.TRUE.equals(o.get("queued"))) return new Reply(Kind.QUEUED, n, o);
    if (!text(o, "event").isEmpty()) return new Reply(Kind.EVENT, n, o);
    if (o.containsKey("leases")) return new Reply(Kind.PART, n, o);
    throw LatchkeyException.breach("a frame is neither an answer nor a notice");
  }

  private static Reply answer(long n, Map<String, Object> o) {
    if (!(o.get("ok") instanceof Boolean ok)) {
      throw LatchkeyException.breach("ok must be true or false");
    }
    if (ok) {
      if (n == 0) throw LatchkeyException.breach("an answer has no n");
      return new Reply(Kind.OK, n, o);
    }
    if (text(o, "code").isEmpty()) throw LatchkeyException.breach("a failure has no code");
    return new Reply(Kind.FAILED, n, o);
  }

  /** A text field; absent is empty. */
  static String text(Map<String, Object> o, String name) {
    if (!o.containsKey(name)) return "";
    if (o.get(name) instanceof String s) return s;
    throw LatchkeyException.breach(name + " must be a string");
  }

  /** A field that is a whole number of at least 0. */
  static long whole(Map<String, Object> o, String name, long absent) {
    if (!o.containsKey(name)) return absent;
    if (o.get(name) instanceof Long l && l >= 0 && l <= Limits.MAX_INTEGER) return l;
    throw LatchkeyException.breach(name + " must be an integer from 0 and below 2^53");
  }

  private static Duration duration(Map<String, Object> o, String name) {
    return o.containsKey(name) ? Duration.ofMillis(whole(o, name, 0)) : null;
  }

  static boolean flag(Map<String, Object> o, String name) {
    if (!o.containsKey(name)) return false;
    if (o.get(name) instanceof Boolean b) return b;
    throw LatchkeyException.breach(name + " must be true or false");
  }

  /** A field that is an array of objects; absent is empty. */
  static List<Map<String, Object>> objects(Map<String, Object> o, String name) {
    if (!o.containsKey(name)) return List.of();
    List<Map<String, Object>> out = new ArrayList<>();
    if (o.get(name) instanceof List<?> list) {
      for (Object entry : list) if (entry instanceof Map) out.add(Json.asObject(entry));
      if (out.size() == list.size()) return out;
    }
    throw LatchkeyException.breach(name + " must be an array of objects");
  }

  /** A token as it came: anything but an integer between 0 and 2^53 is unknown. */
  static OptionalLong token(Object value) {
    return value instanceof Long l && l > 0 && l <= Limits.MAX_INTEGER
        ? OptionalLong.of(l)
        : OptionalLong.empty();
  }

  /** The keys of an answer, whether it has one or several. */
  static List<String> keys(Map<String, Object> o) {
    if (!o.containsKey("keys")) return o.containsKey("key") ? List.of(text(o, "key")) : List.of();
    List<String> out = new ArrayList<>();
    if (o.get("keys") instanceof List<?> list) {
      for (Object key : list) if (key instanceof String s) out.add(s);
      if (out.size() == list.size()) return List.copyOf(out);
    }
    throw LatchkeyException.breach("keys must be an array of strings");
  }

  /** The tokens of an answer, one for each key. */
  static List<OptionalLong> tokens(Map<String, Object> o) {
    if (!o.containsKey("keys")) {
      return o.containsKey("key") ? List.of(token(o.get("token"))) : List.of();
    }
    List<?> tokens = o.get("tokens") instanceof List<?> list ? list : List.of();
    List<OptionalLong> out = new ArrayList<>();
    int count = keys(o).size();
    for (int i = 0; i < count; i++) out.add(token(i < tokens.size() ? tokens.get(i) : null));
    return List.copyOf(out);
  }

  /** Decodes the answer to an acquire, renew or detach. */
  static Grant grant(Map<String, Object> o) {
    return grant(o, whole(o, "elapsed", 0));
  }

  private static Grant grant(Map<String, Object> o, long elapsed) {
    List<String> keys = keys(o);
    if (keys.isEmpty()) throw LatchkeyException.breach("a grant names no key");
    boolean forever = flag(o, "forever");
    // A missing end must not be taken for no end.
    if (!forever && !(o.containsKey("ttl") && o.containsKey("remaining"))) {
      throw LatchkeyException.breach("a grant has no ttl or no remaining");
    }
    return new Grant(
        text(o, "id"),
        keys,
        tokens(o),
        forever ? Deadlines.NEVER : whole(o, "ttl", 0),
        elapsed,
        whole(o, "remaining", Deadlines.NEVER),
        whole(o, "waited", 0),
        flag(o, "detached"));
  }

  /** Decodes the leases of a resumed session; elapsed is that of the answer. */
  static List<Grant> leases(Map<String, Object> o, long elapsed) {
    List<Grant> out = new ArrayList<>();
    for (Map<String, Object> entry : objects(o, "leases")) out.add(grant(entry, elapsed));
    return out;
  }

  static List<Holder> holders(Map<String, Object> o, String name) {
    List<Holder> out = new ArrayList<>();
    for (Map<String, Object> h : objects(o, name)) {
      out.add(
          new Holder(
              text(h, "session"),
              text(h, "host"),
              whole(h, "pid", 0),
              text(h, "label"),
              Mode.of(text(h, "mode")),
              (int) whole(h, "max", 0),
              token(h.get("token")),
              duration(h, "since"),
              duration(h, "ttl"),
              flag(h, "forever"),
              duration(h, "remaining"),
              flag(h, "detached"),
              flag(h, "broken")));
    }
    return List.copyOf(out);
  }

  private static List<Waiter> waiters(Map<String, Object> o) {
    List<Waiter> out = new ArrayList<>();
    for (Map<String, Object> w : objects(o, "waiters")) {
      out.add(
          new Waiter(
              text(w, "session"),
              text(w, "host"),
              whole(w, "pid", 0),
              text(w, "label"),
              Mode.of(text(w, "mode")),
              (int) whole(w, "max", 0),
              (int) whole(w, "keys", 0),
              duration(w, "age"),
              duration(w, "left"),
              flag(w, "broken")));
    }
    return List.copyOf(out);
  }

  static Listing listing(Map<String, Object> o) {
    List<KeyState> out = new ArrayList<>();
    for (Map<String, Object> k : objects(o, "keys")) {
      out.add(
          new KeyState(
              text(k, "key"),
              holders(k, "holders"),
              waiters(k),
              whole(k, "waiting", 0),
              duration(k, "delay")));
    }
    return new Listing(List.copyOf(out), flag(o, "more"));
  }

  static Queued queued(Map<String, Object> o) {
    return new Queued(text(o, "key"), whole(o, "position", 0), holders(o, "ahead"));
  }

  static WatchEvent event(Map<String, Object> o) {
    String event = text(o, "event");
    if (event.equals("gap")) return WatchEvent.GAP;
    return new WatchEvent(
        event,
        text(o, "key"),
        text(o, "session"),
        text(o, "host"),
        whole(o, "pid", 0),
        text(o, "label"),
        Mode.of(text(o, "mode")),
        (int) whole(o, "max", 0),
        token(o.get("token")),
        duration(o, "after"),
        text(o, "code"));
  }

  /** Makes the exception of a failure frame. */
  static LatchkeyException failure(Map<String, Object> o) {
    List<CycleEntry> cycle = new ArrayList<>();
    for (Map<String, Object> w : objects(o, "cycle")) {
      cycle.add(new CycleEntry(text(w, "who"), text(w, "key")));
    }
    return LatchkeyException.of(
        text(o, "code"),
        LatchkeyException.Details.of(text(o, "op"), text(o, "key"))
            .reason(text(o, "reason"))
            .holders(holders(o, "holders"))
            .cycle(List.copyOf(cycle)));
  }
}
