package io.github.latchkeygo;

import static io.github.latchkeygo.Scripted.async;
import static io.github.latchkeygo.Scripted.code;
import static io.github.latchkeygo.Scripted.failure;
import static io.github.latchkeygo.Scripted.frame;
import static io.github.latchkeygo.Scripted.options;
import static io.github.latchkeygo.Scripted.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.latchkeygo.Scripted.Connected;
import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.ResourceBundle;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** What a loss is by type, and what people are told. */
final class LossTest {
  private static final AcquireOptions PLAIN = AcquireOptions.defaults();

  @RegisterExtension final Scripted server = new Scripted();

  /** A call whose body waits for its interrupt. */
  private static CompletableFuture<Void> calling(Connected c, CompletableFuture<Hold> held) {
    return async(
        () ->
            c.client()
                .call(
                    "a",
                    hold -> {
                      held.complete(hold);
                      new CountDownLatch(1).await();
                      return null;
                    }));
  }

  @Test
  void aReleaseByTheIdFromElsewhereIsALossByType() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> held = new CompletableFuture<>();
    CompletableFuture<Void> calling = calling(c, held);
    c.peer().grant(c.peer().next("acquire"), 17L);
    Hold hold = Scripted.within("the body runs", held);
    c.peer().send(frame("lost", "not_held", "id", hold.id(), "key", "a", "token", 17));
    c.peer().fails(c.peer().next("release"), "not_held");
    LeaseLostException e = assertInstanceOf(HoldReleasedException.class, failure(calling));
    assertEquals("not_held", e.code());
    assertEquals(LatchkeyException.Kind.LOSS, e.kind());
    assertThrows(HoldReleasedException.class, hold::check);
  }

  @Test
  void aReleaseThatFindsNothingWasALoss() throws Exception {
    Connected c = server.client();
    CompletableFuture<Long> calling = async(() -> c.client().call("a", Hold::token));
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().fails(c.peer().next("release"), "not_held");
    assertInstanceOf(ExpiredException.class, failure(calling));
  }

  @Test
  void aClosedClientIsALossByTypeForItsHolds() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> held = new CompletableFuture<>();
    CompletableFuture<Void> calling = calling(c, held);
    c.peer().grant(c.peer().next("acquire"), 17L);
    Scripted.within("the body runs", held);
    CompletableFuture<Void> closing = c.closing();
    c.peer().ok(c.peer().next("close"));
    LeaseLostException e = assertInstanceOf(HoldClosedException.class, failure(calling));
    assertEquals("closed", e.code());
    Scripted.within("close", closing);
    assertThrows(ClosedException.class, () -> c.client().acquire("a"), "which ends a loop");
  }

  @Test
  void aLossOfACodeThatIsNotKnownIsALossAllTheSame() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().send(frame("lost", "preempted", "id", hold.id(), "key", "a", "token", 17));
    LeaseLostException e = Scripted.lost(hold);
    assertEquals("preempted", e.code());
    assertEquals("preempted", assertThrows(LeaseLostException.class, hold::check).code());
  }

  @Test
  void aBodyThatThrowsTheLossItselfIsNoSecondCause() throws Exception {
    Connected c = server.client();
    CompletableFuture<RuntimeException> thrown = new CompletableFuture<>();
    CompletableFuture<Void> calling =
        async(
            () ->
                c.client()
                    .call(
                        "a",
                        hold -> {
                          c.peer().send(frame("lost", "forced", "id", hold.id(), "key", "a"));
                          while (hold.isSafe()) Thread.onSpinWait();
                          try {
                            hold.check();
                          } catch (ForcedException e) {
                            thrown.complete(e);
                            throw e;
                          }
                          return null;
                        }));
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().fails(c.peer().next("release"), "not_held");
    Throwable e = failure(calling);
    assertEquals(thrown.join(), e);
    assertNull(e.getCause());
    assertEquals(0, e.getSuppressed().length);
  }

  @Test
  void whatIsNullIsNamed() throws Exception {
    Client client = server.client().client();
    record Bad(String named, org.junit.jupiter.api.function.Executable call) {}
    for (Bad bad :
        List.of(
            new Bad("key is null", () -> client.acquire((String) null)),
            new Bad("key is null", () -> client.acquireAsync((String) null, PLAIN)),
            new Bad("key is null", () -> client.call((String) null, hold -> null)),
            new Bad("keys is null", () -> client.acquire(Arrays.asList("a", null), PLAIN)),
            new Bad("keys are null", () -> client.acquire((List<String>) null, PLAIN)),
            new Bad("options are null", () -> client.acquire("a", null)),
            new Bad("body is null", () -> client.call("a", (Client.Body<Void, IOException>) null)),
            new Bad("ids is null", () -> PLAIN.declared(Arrays.asList("a", null))),
            new Bad("key is null", () -> client.watchKey(null)),
            new Bad("prefix is null", () -> client.watchPrefix(null)),
            new Bad("key is null", () -> client.force(null, "", "")))) {
      String message = assertThrows(NullPointerException.class, bad.call).getMessage();
      assertTrue(message != null && message.endsWith(bad.named), bad.named + ", got: " + message);
    }
  }

  @Test
  void aWaitOfZeroSaysWhatToUse() throws Exception {
    Client client = server.client().client();
    for (AcquireOptions o :
        List.of(PLAIN.waitAtMost(Duration.ZERO), PLAIN.tryOnce().waitAtMost(Duration.ZERO))) {
      RefusedException e = assertThrows(RefusedException.class, () -> client.acquire("a", o));
      assertTrue(e.getMessage().contains("tryOnce()"), e.getMessage());
    }
  }

  @Test
  void whoHoldsIsToldWithHostAndProcess() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> trying = c.client().acquireAsync("a", PLAIN.tryOnce());
    Object n = c.peer().next("acquire").get("n");
    List<Object> holders =
        List.of(
            frame(
                "session",
                "worker",
                "host",
                "vm",
                "pid",
                23827,
                "label",
                "nightly",
                "mode",
                "exclusive",
                "since",
                1500,
                "ttl",
                30000,
                "remaining",
                28500),
            frame("mode", "exclusive", "forever", true));
    c.peer()
        .send(
            frame(
                "n", n, "ok", false, "code", "busy", "op", "acquire", "key", "a", "holders",
                holders));
    assertEquals(
        "acquire \"a\": busy: held by worker (nightly) on vm pid 23827 for 1500 ms, 28500 ms left;"
            + " an unnamed session, never expires",
        failure(trying).getMessage());
  }

  /** A logger that keeps what it is told. */
  private static final class Log implements System.Logger {
    record Line(Level level, String text, Throwable thrown) {}

    final List<Line> lines = new CopyOnWriteArrayList<>();

    @Override
    public String getName() {
      return "test";
    }

    @Override
    public boolean isLoggable(Level level) {
      return true;
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String text, Throwable thrown) {
      lines.add(new Line(level, text, thrown));
    }

    @Override
    public void log(Level level, ResourceBundle bundle, String format, Object... params) {
      lines.add(new Line(level, format, null));
    }
  }

  @Test
  void aBrokenConnectionIsOneLineAndItsStackIsForDebugging() throws Exception {
    Log log = new Log();
    Connected c = server.client(options().logger(log));
    c.hold("a");
    c.peer().cut();
    server.peer().greet();
    until("it is connected again", () -> c.client().isConnected());
    until("that is logged", () -> log.lines.stream().anyMatch(l -> l.text.contains("again")));
    for (Log.Line line : log.lines) {
      assertEquals(line.level == System.Logger.Level.DEBUG, line.thrown != null, line::toString);
    }
    assertTrue(log.lines.stream().anyMatch(l -> l.thrown != null));
  }

  @Test
  void holdsOfTheCallsAroundAreDeclared() throws Exception {
    Connected c = server.client();
    CompletableFuture<Void> calling =
        async(
            () ->
                c.client()
                    .call(
                        "a",
                        outer -> {
                          c.client().acquireAsync("b", PLAIN); // may be answered after the body
                          return c.client().call("c", PLAIN.declared(List.of("x")), in -> null);
                        }));
    var outer = c.peer().next("acquire");
    assertNull(outer.get("declared"));
    c.peer().grant(outer, 17L);
    assertNull(c.peer().next("acquire").get("declared"));
    var inner = c.peer().next("acquire");
    assertEquals(List.of("x", outer.get("id")), inner.get("declared"));
    c.peer().fails(inner, "deadlock");
    c.peer().ok(c.peer().next("release"));
    assertEquals("deadlock", code(calling));
  }
}
