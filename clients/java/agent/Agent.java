package io.github.latchkeygo;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Drives the client for the check across languages: commands as JSON lines on standard input, what
 * happened as JSON lines on standard output. It is no part of the package. When all is closed the
 * process ends by itself, and says so if a thread of the client was left.
 */
public final class Agent {
  /** Something that an agent can do with a command. */
  private interface Step {
    void run() throws InterruptedException;
  }

  private final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
  private final Map<String, Hold> holds = new ConcurrentHashMap<>();
  private final Map<String, Thread> pending = new ConcurrentHashMap<>();
  private Client client;

  private Agent() {}

  /**
   * Reads commands until it is told to close, or the input ends.
   *
   * @param args none
   * @throws IOException when the input fails
   */
  public static void main(String[] args) throws IOException {
    new Agent().run();
  }

  private void run() throws IOException {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Map<String, Object> c;
      try {
        c = Json.object(line.getBytes(StandardCharsets.UTF_8));
      } catch (LatchkeyException e) {
        fault(e);
        continue;
      }
      if ("close".equals(c.get("do"))) break;
      dispatch(c);
    }
    close();
  }

  private synchronized void say(Object... event) {
    Map<String, Object> o = new LinkedHashMap<>();
    for (int i = 0; i < event.length; i += 2) {
      if (event[i + 1] != null) o.put((String) event[i], event[i + 1]);
    }
    StringBuilder text = new StringBuilder();
    Json.write(text, o);
    out.append(text).append('\n').flush();
  }

  private void fault(Exception e) {
    say("event", "error", "text", String.valueOf(e));
  }

  private void failed(String ref, LatchkeyException e) {
    say("event", "failed", "ref", ref, "code", e.code(), "text", e.getMessage());
  }

  private void dispatch(Map<String, Object> c) {
    String ref = Wire.text(c, "ref");
    switch (Wire.text(c, "do")) {
      case "connect" -> guarded(() -> connect(c));
      case "acquire" -> {
        Thread t = new Thread(() -> guarded(() -> acquire(ref, c)), "acquire " + ref);
        pending.put(ref, t);
        t.start();
      }
      case "release" -> with(ref, hold -> release(ref, hold));
      case "renew" -> with(ref, hold -> renew(ref, hold, c));
      case "cancel" -> {
        Thread t = pending.get(ref);
        if (t != null) t.interrupt();
      }
      case "check" -> {
        Hold hold = holds.get(ref);
        if (hold == null) failed(ref, nothing());
        else say("event", "checked", "ref", ref, "safe", hold.isSafe());
      }
      case "watch" -> start("watch", () -> watch(c));
      case "bench" -> start("bench", () -> bench(c));
      default -> say("event", "error", "text", c.get("do") + " is not a command");
    }
  }

  private interface Use {
    void of(Hold hold) throws InterruptedException;
  }

  private void with(String ref, Use use) {
    Hold hold = holds.get(ref);
    if (hold == null) failed(ref, nothing());
    else start("use " + ref, () -> use.of(hold));
  }

  private static LatchkeyException nothing() {
    return LatchkeyException.of("not_held", "no hold has this ref");
  }

  private void start(String name, Step step) {
    new Thread(() -> guarded(step), name).start();
  }

  private void guarded(Step step) {
    try {
      step.run();
    } catch (InterruptedException | RuntimeException e) {
      fault(e);
    }
  }

  private void connect(Map<String, Object> c) throws InterruptedException {
    ConnectOptions o = ConnectOptions.defaults().name(Wire.text(c, "name"));
    if (c.containsKey("addr")) o = o.address(Wire.text(c, "addr"));
    if (c.containsKey("grace")) o = o.grace(Duration.ofMillis(Wire.whole(c, "grace", 0)));
    client = Client.connect(o);
    say("event", "connected");
  }

  private void acquire(String ref, Map<String, Object> c) throws InterruptedException {
    AcquireOptions o = options(c);
    o = o.onQueued(q -> say("event", "queued", "ref", ref, "position", q.position()));
    List<String> keys = new ArrayList<>(Wire.keys(c));
    Hold hold;
    try {
      hold = client.acquire(keys, o);
    } catch (LatchkeyException e) {
      failed(ref, e);
      return;
    } catch (InterruptedException e) {
      boolean unknown = e.getSuppressed().length > 0;
      say("event", "failed", "ref", ref, "code", unknown ? "unknown" : "cancelled");
      return;
    } finally {
      pending.remove(ref);
    }
    holds.put(ref, hold);
    say("event", "granted", "ref", ref, "tokens", hold.tokens(), "safe_ms", left(hold));
    hold.onLost(
        cause -> {
          if (cause instanceof HoldClosedException) return;
          long late = Math.max(0, -hold.safeFor().toMillis());
          boolean safe = hold.isSafe();
          say("event", "lost", "ref", ref, "code", cause.code(), "late_ms", late, "safe", safe);
        });
  }

  private static AcquireOptions options(Map<String, Object> c) {
    AcquireOptions o = AcquireOptions.defaults();
    if (Wire.text(c, "mode").equals("shared")) o = o.shared();
    if (Wire.text(c, "mode").equals("counted")) o = o.counted((int) Wire.whole(c, "max", 0));
    long ttl = Wire.whole(c, "ttl", 0);
    if (ttl > 0) o = o.ttl(Duration.ofMillis(ttl));
    if (Wire.flag(c, "forever")) o = o.forever();
    long wait = Wire.whole(c, "wait", 0);
    if (wait > 0) o = o.waitAtMost(Duration.ofMillis(wait));
    if (Wire.flag(c, "try")) o = o.tryOnce();
    if (Wire.flag(c, "detach")) o = o.detach();
    if (!Wire.text(c, "id").isEmpty()) o = o.id(Wire.text(c, "id"));
    return o.label(Wire.text(c, "label")).renew(!Boolean.FALSE.equals(c.get("renew")));
  }

  /** What is left; nothing is said of a hold without end. */
  private static Long left(Hold hold) {
    Duration left = hold.safeFor();
    return left.equals(ChronoUnit.FOREVER.getDuration()) ? null : Long.valueOf(left.toMillis());
  }

  private void release(String ref, Hold hold) throws InterruptedException {
    try {
      hold.release();
      holds.remove(ref);
      say("event", "released", "ref", ref);
    } catch (LatchkeyException e) {
      failed(ref, e);
    }
  }

  private void renew(String ref, Hold hold, Map<String, Object> c) throws InterruptedException {
    long ttl = Wire.whole(c, "ttl", 0);
    try {
      if (ttl > 0) hold.renew(Duration.ofMillis(ttl));
      else hold.renew();
      say("event", "renewed", "ref", ref, "safe_ms", left(hold));
    } catch (LatchkeyException e) {
      failed(ref, e);
    }
  }

  private void watch(Map<String, Object> c) throws InterruptedException {
    try (Watch watch = client.watchPrefix(Wire.text(c, "prefix"))) {
      say("event", "watching");
      while (true) {
        WatchEvent e = watch.next();
        Long token = e.token().isPresent() ? Long.valueOf(e.token().getAsLong()) : null;
        say("event", "seen", "kind", e.event(), "key", e.key(), "token", token);
      }
    } catch (ClosedException e) {
      // The client was closed.
    }
  }

  private void bench(Map<String, Object> c) throws InterruptedException {
    long began = System.nanoTime();
    long until = began + Wire.whole(c, "ms", 250) * Deadlines.MILLI;
    AtomicLong pairs = new AtomicLong();
    AtomicLong errors = new AtomicLong();
    List<Thread> loops = new ArrayList<>();
    for (long i = 0; i < Wire.whole(c, "in_flight", 1); i++) {
      String key = Wire.text(c, "key") + "-" + i;
      Thread t =
          new Thread(
              () -> {
                AcquireOptions o = AcquireOptions.defaults().renew(false);
                while (System.nanoTime() < until) {
                  try {
                    client.acquire(key, o).release();
                    pairs.incrementAndGet();
                  } catch (InterruptedException | LatchkeyException e) {
                    errors.incrementAndGet();
                  }
                }
              },
              "bench " + i);
      loops.add(t);
      t.start();
    }
    for (Thread t : loops) t.join();
    long ms = (System.nanoTime() - began) / Deadlines.MILLI;
    say("event", "bench", "pairs", pairs.get(), "ms", ms, "errors", errors.get());
  }

  private void close() {
    if (client != null) client.close();
    for (Thread t : Thread.getAllStackTraces().keySet()) {
      if (t.getName().startsWith("latchkey-")) {
        say("event", "error", "text", "the client left the thread " + t.getName());
      }
    }
    say("event", "closed");
  }
}
