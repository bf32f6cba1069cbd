package io.github.latchkeygo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.latchkeygo.Deadlines.Grant;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** Every case of the vectors that a client can play. */
final class VectorsTest {
  private static final Path FOLDER = Path.of("../vectors");

  private int played;
  private int left;

  @Test
  void allFiles() throws IOException {
    each("hello.json", this::hello);
    each("replies.json", this::reply);
    each("requests.json", this::request);
    each("refused.json", this::refused);
    each("streams.json", this::stream);
    each("deadlines.json", this::deadline);
    each("codes.json", this::code);
    System.out.printf(
        "vectors: %d cases played, %d that only a server can play left out%n", played, left);
    assertTrue(played > 150, "only " + played + " cases were played");
  }

  private void each(String file, Consumer<Map<String, Object>> play) throws IOException {
    Object cases = Json.parse(Files.readString(FOLDER.resolve(file)));
    for (Object c : (List<?>) cases) {
      Map<String, Object> o = Json.asObject(c);
      int before = left;
      try {
        play.accept(o);
      } catch (AssertionError | RuntimeException e) {
        throw new AssertionError(file + ", case " + o.getOrDefault("name", o.get("code")), e);
      }
      if (left == before) played++;
    }
  }

  private static byte[] line(Map<String, Object> c) {
    if (c.containsKey("base64")) return Base64.getDecoder().decode((String) c.get("base64"));
    return ((String) c.get("line")).getBytes(StandardCharsets.UTF_8);
  }

  private static Map<String, Object> means(Map<String, Object> c) {
    return Json.asObject(c.get("means"));
  }

  private void hello(Map<String, Object> c) {
    if (c.get("from").equals("client")) {
      if (c.get("name").equals("client")) assertEquals(Wire.HELLO, c.get("line") + "\n");
      else left++; // what only a server reads
      return;
    }
    if (c.containsKey("code")) {
      LatchkeyException e = assertThrows(LatchkeyException.class, () -> Wire.hello(line(c)));
      assertEquals(c.get("code"), e.code());
      assertTrue(e.getMessage().contains((String) c.get("reason")), e.getMessage());
      return;
    }
    Map<String, Object> means = means(c);
    assertEquals(
        new ServerInfo(
            (String) means.get("Server"),
            (String) means.get("Durability"),
            (String) means.get("Fencing")),
        Wire.hello(line(c)));
  }

  private void reply(Map<String, Object> c) {
    Map<String, Object> means = means(c);
    Wire.Reply reply = Wire.reply(line(c));
    Map<String, Object> body = reply.body();
    assertEquals(means.get("kind"), reply.kind().name().toLowerCase());
    assertEquals(means.getOrDefault("n", 0L), reply.n());
    if (reply.kind() == Wire.Kind.FAILED) {
      failure(means, Wire.failure(body));
      return;
    }
    if (means.containsKey("holds")) {
      assertEquals(means.get("holds"), holds(Wire.keys(body), Wire.tokens(body)));
    }
    if (means.containsKey("ttl")) {
      Map<String, Object> want = new HashMap<>(means);
      Map<String, Object> got = plain(Wire.grant(body), true);
      want.keySet().removeAll(List.of("kind", "n"));
      want.putIfAbsent("detached", false);
      assertEquals(want, got);
    }
    if (means.containsKey("keys")) {
      assertEquals(Wire.listing(means), Wire.listing(body));
      assertEquals(((List<?>) means.get("keys")).size(), Wire.listing(body).keys().size());
    }
    if (means.containsKey("leases")) {
      List<Object> got = new ArrayList<>();
      for (Grant g : Wire.leases(body, 0)) got.add(plain(g, false));
      assertEquals(means.get("leases"), got);
    }
    if (reply.kind() == Wire.Kind.QUEUED) {
      Queued q = Wire.queued(body);
      assertEquals(means.get("position"), q.position());
      assertEquals(means.get("key"), q.key());
      assertEquals(
          means.getOrDefault("holders", List.of()), q.ahead().stream().map(this::plain).toList());
    }
    if (reply.kind() == Wire.Kind.EVENT) event(means, Wire.event(body));
    for (String name : List.of("id", "session", "fence", "by")) {
      if (means.containsKey(name)) assertEquals(means.get(name), body.get(name), name);
    }
    if (means.containsKey("grace")) {
      assertEquals(Math.max((Long) means.get("grace"), 0), Wire.whole(body, "grace", -1));
    }
    if (reply.kind() == Wire.Kind.LOST) assertEquals(means.get("code"), Wire.text(body, "lost"));
  }

  private void failure(Map<String, Object> means, LatchkeyException e) {
    assertEquals(means.get("code"), e.code());
    assertEquals(means.getOrDefault("op", ""), e.op());
    assertEquals(means.getOrDefault("key", ""), e.key());
    assertEquals(means.getOrDefault("reason", ""), e.reason());
    assertEquals(
        means.getOrDefault("holders", List.of()), e.holders().stream().map(this::plain).toList());
    assertEquals(
        means.getOrDefault("cycle", List.of()),
        e.cycle().stream().map(w -> w.who() + " waits for " + w.key()).toList());
  }

  private static void event(Map<String, Object> means, WatchEvent e) {
    assertEquals(means.get("event"), e.event());
    assertEquals(means.getOrDefault("key", ""), e.key());
    assertEquals(means.getOrDefault("session", ""), e.session());
    assertEquals(means.getOrDefault("host", ""), e.host());
    assertEquals(means.getOrDefault("pid", 0L), e.pid());
    assertEquals(means.getOrDefault("label", ""), e.label());
    assertEquals(means.getOrDefault("max", 0L), (long) e.max());
    assertEquals(means.getOrDefault("token", 0L), e.token().orElse(0));
    assertEquals(means.get("after"), AcquireOptions.millis(e.after()));
    assertEquals(means.getOrDefault("code", ""), e.code());
    if (means.containsKey("mode")) assertEquals(means.get("mode"), e.mode().wire());
  }

  private static Map<String, Object> holds(List<String> keys, List<OptionalLong> tokens) {
    Map<String, Object> out = new HashMap<>();
    for (int i = 0; i < keys.size(); i++) out.put(keys.get(i), tokens.get(i).orElseThrow());
    return out;
  }

  private static Map<String, Object> plain(Grant g, boolean elapsed) {
    Map<String, Object> out = new HashMap<>();
    out.put("id", g.id());
    out.put("holds", holds(g.keys(), g.tokens()));
    out.put("ttl", g.ttl() == Deadlines.NEVER ? -1L : g.ttl());
    if (elapsed) out.put("elapsed", g.elapsed());
    if (g.remaining() != Deadlines.NEVER) out.put("remaining", g.remaining());
    out.put("waited", g.waited());
    out.put("detached", g.detached());
    return out;
  }

  /** A holder as in a frame. */
  private Map<String, Object> plain(Holder h) {
    Map<String, Object> out = new LinkedHashMap<>();
    put(out, "session", h.session(), "");
    put(out, "host", h.host(), "");
    put(out, "pid", h.pid(), 0L);
    put(out, "label", h.label(), "");
    put(out, "mode", h.mode().wire(), "");
    put(out, "max", (long) h.max(), 0L);
    put(out, "token", h.token().orElse(0), 0L);
    for (var e : Map.of("since", at(h.since()), "ttl", at(h.ttl())).entrySet()) {
      put(out, e.getKey(), e.getValue(), -1L);
    }
    put(out, "remaining", at(h.remaining()), -1L);
    put(out, "forever", h.forever(), false);
    put(out, "detached", h.detached(), false);
    put(out, "broken", h.broken(), false);
    return out;
  }

  private static long at(Duration d) {
    return d == null ? -1 : d.toMillis();
  }

  private static void put(Map<String, Object> out, String name, Object value, Object absent) {
    if (!value.equals(absent)) out.put(name, value);
  }

  private void request(Map<String, Object> c) {
    if (Boolean.TRUE.equals(c.get("loose"))) {
      left++; // other spellings, which servers read and clients do not write
      return;
    }
    Map<String, Object> fields = new HashMap<>(means(c));
    long n = (Long) fields.remove("n");
    String op = (String) fields.remove("do");
    if (fields.remove("keys") instanceof List<?> keys) {
      if (keys.size() == 1) fields.put("key", keys.get(0));
      else fields.put("keys", keys);
    }
    if (fields.get("ttl") instanceof Long ttl && ttl == -1) {
      fields.remove("ttl");
      fields.put("forever", true);
    }
    fields.computeIfPresent("grace", (name, grace) -> Math.max((Long) grace, 0));
    Requests.check(op, fields);
    assertEquals(c.get("line") + "\n", Requests.encode(n, op, fields));
  }

  /** None of it is ever sent. */
  private void refused(Map<String, Object> c) {
    Map<String, Object> frame;
    try {
      frame = Json.object(line(c));
    } catch (LatchkeyException e) {
      left++; // no map of this client is written like that
      return;
    }
    // The client counts n itself, has no field twice, and writes numbers without exponent.
    String name = (String) c.get("name");
    boolean written = name.contains("twice") || name.contains("exponent");
    if ((!c.containsKey("n") || written) && !name.equals("the same key twice")) {
      left++;
      return;
    }
    Map<String, Object> fields = new HashMap<>(frame);
    fields.remove("n");
    String op = fields.remove("do") instanceof String s ? s : null;
    assertThrows(RefusedException.class, () -> Requests.check(op, fields));
  }

  private void stream(Map<String, Object> c) {
    Lines splitter = new Lines(((Long) c.get("limit")).intValue());
    List<String> lines = new ArrayList<>();
    String error = "";
    try {
      for (long i = 0; i < (Long) c.getOrDefault("repeat", 1L); i++) {
        for (Object chunk : (List<?>) c.get("chunks")) {
          byte[] bytes = Base64.getDecoder().decode((String) chunk);
          splitter.push(bytes, bytes.length, l -> lines.add(Base64.getEncoder().encodeToString(l)));
        }
      }
    } catch (ProtocolException e) {
      error = e.getMessage();
    }
    assertEquals(c.get("lines"), lines);
    assertEquals(c.get("error").equals("too long"), error.contains("too long"), error);
  }

  private void deadline(Map<String, Object> c) {
    Grant grant = Wire.grant(Wire.reply(line(c)).body());
    long pinged = (Long) c.getOrDefault("ping_sent", 0L);
    long session = Deadlines.session(pinged * Deadlines.MILLI, (Long) c.getOrDefault("grace", 0L));
    long lease = Deadlines.lease((Long) c.get("sent") * Deadlines.MILLI, grant);
    long until = Deadlines.safeUntil(lease, session, grant.detached());
    if (c.get("safe_until") instanceof Long ms) assertEquals(ms * Deadlines.MILLI, until);
    else assertEquals(Deadlines.NEVER, until);
  }

  private void code(Map<String, Object> c) {
    String code = (String) c.get("code");
    LatchkeyException e = LatchkeyException.of(code, "");
    assertEquals(c.get("kind"), e.kind().name().toLowerCase());
    assertEquals(code, e.code());
    assertEquals(code.equals("internal"), e instanceof InternalException, "each code has a type");
  }

  @Test
  void anUnknownCodeKeepsItsName() {
    LatchkeyException e = LatchkeyException.of("preempted", "");
    assertTrue(e instanceof InternalException);
    assertEquals("preempted", e.code());
    assertFalse(e.getMessage().isEmpty());
  }

  @Test
  void readingIsStrict() {
    for (String bad :
        List.of(
            "{\"a\":01}",
            "{\"a\":1,}",
            "{\"a\":+1}",
            "{\"a\":.5}",
            "{\"a\":1.}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12g4\"}",
            "{\"a\":\"\\u00\uff11\uff11\"}",
            "{\"a\":tru}",
            "{\"a\"}",
            "{\"a\":\"",
            "{\"a\":\"\n\"}",
            "{} {}",
            "{a:1}",
            "[1 2]",
            "-",
            "")) {
      assertThrows(ProtocolException.class, () -> Json.parse(bad), bad);
    }
    String deep = "[".repeat(100_000);
    assertThrows(ProtocolException.class, () -> Json.parse(deep));
    assertEquals(9007199254740993L, Json.parse("9007199254740993"));
    assertEquals(1e30, Json.parse("1000000000000000000000000000000"));
    assertEquals(-0.5, Json.parse("-5e-1"));
    assertEquals("a\ud83d\udd11\u0001\"", Json.parse("\"\\u0061\\ud83d\\udd11\\u0001\\\"\""));
  }
}
