package io.github.latchkeygo;

import static io.github.latchkeygo.Scripted.async;
import static io.github.latchkeygo.Scripted.code;
import static io.github.latchkeygo.Scripted.failure;
import static io.github.latchkeygo.Scripted.frame;
import static io.github.latchkeygo.Scripted.leases;
import static io.github.latchkeygo.Scripted.lost;
import static io.github.latchkeygo.Scripted.options;
import static io.github.latchkeygo.Scripted.until;
import static io.github.latchkeygo.Scripted.within;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.latchkeygo.Scripted.Connected;
import io.github.latchkeygo.Scripted.Peer;
import io.github.latchkeygo.Scripted.Shifted;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** The client against a scripted server: orders that a real broker rarely takes. */
final class SessionTest {
  private static final AcquireOptions PLAIN = AcquireOptions.defaults();

  @RegisterExtension final Scripted server = new Scripted();

  private static Duration ms(long n) {
    return Duration.ofMillis(n);
  }

  @Test
  void aGrantHasItsTokenItsDeadlineAndIsReleasedOnce() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a", PLAIN.ttl(ms(1000)).label("nightly"), 17L);
    assertEquals(17, hold.token());
    assertEquals(Map.of("a", 17L), hold.tokens());
    assertTrue(hold.safeFor().compareTo(ms(980)) <= 0);
    assertTrue(hold.safeUntil().getAsLong() - System.nanoTime() < 980_000_000L);
    CompletableFuture<Void> one = hold.releaseAsync();
    CompletableFuture<Void> two = hold.releaseAsync();
    Map<String, Object> release = nextBut(c.peer(), "renew", "release");
    assertEquals(frame("n", release.get("n"), "do", "release", "id", hold.id()), release);
    c.peer().ok(release);
    within("one release", one);
    within("the other", two);
    hold.release();
    assertFalse(hold.isSafe());
    assertThrows(NotHeldException.class, hold::check);
    assertFalse(hold.lost().toCompletableFuture().isDone(), "a release is no loss");
    assertEquals(0, c.peer().unread());
  }

  /** A busy machine may be late enough for a renewal. */
  private static Map<String, Object> nextBut(Peer peer, String not, String op)
      throws InterruptedException {
    Map<String, Object> frame = peer.next();
    while (not.equals(frame.get("do"))) frame = peer.next();
    assertEquals(op, frame.get("do"));
    return frame;
  }

  @Test
  void aTokenThatIsNoSafeIntegerIsUnknownAndNeverANumber() throws Exception {
    Connected c = server.client();
    List<Object> bad = Arrays.asList("absent", null, 1L << 53, 9007199254740993L, 1.5, "17", 0, -1);
    for (int i = 0; i < bad.size(); i++) {
      Hold hold = c.hold("k" + i, PLAIN, bad.get(i));
      assertThrows(FencingUnknownException.class, hold::token, "token " + bad.get(i));
      assertThrows(FencingUnknownException.class, hold::tokens);
      assertTrue(hold.isSafe(), "it is held all the same");
    }
    assertEquals(9007199254740991L, c.hold("largest", PLAIN, 9007199254740991L).token());
  }

  @Test
  void framesThatComeByteByByteOrManyAtOnceAreTheSame() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> one = c.client().acquireAsync("ü€🔑", PLAIN);
    CompletableFuture<Hold> two = c.client().acquireAsync("b", PLAIN);
    StringBuilder text = new StringBuilder();
    for (int i = 0; i < 2; i++) {
      Map<String, Object> f = c.peer().next("acquire");
      Json.write(
          text,
          frame(
              "n",
              f.get("n"),
              "ok",
              true,
              "id",
              f.get("id"),
              "key",
              f.get("key"),
              "token",
              5,
              "ttl",
              30000,
              "remaining",
              30000));
      text.append('\n');
    }
    for (byte b : text.toString().getBytes(StandardCharsets.UTF_8)) {
      c.peer().raw(new byte[] {b});
    }
    assertEquals("ü€🔑", within("one grant", one).key());
    within("the other", two);
  }

  @Test
  void anInterruptTakesBackWhatWaits() throws Exception {
    Connected c = server.client();
    CompletableFuture<Queued> queued = new CompletableFuture<>();
    CompletableFuture<Thread> caller = new CompletableFuture<>();
    CompletableFuture<Boolean> interrupted =
        async(
            () -> {
              caller.complete(Thread.currentThread());
              assertThrows(
                  InterruptedException.class,
                  () -> c.client().acquire("a", PLAIN.onQueued(queued::complete)));
              return Thread.currentThread().isInterrupted();
            });
    Map<String, Object> f = c.peer().next("acquire");
    c.peer()
        .send(
            frame(
                "n",
                f.get("n"),
                "queued",
                true,
                "id",
                f.get("id"),
                "key",
                "a",
                "position",
                2,
                "ahead",
                List.of(frame("mode", "shared", "token", 4))));
    Queued told = within("queued is told", queued);
    assertEquals(2, told.position());
    assertEquals(Mode.SHARED, told.ahead().get(0).mode());
    within("the caller", caller).interrupt();
    Map<String, Object> cancel = c.peer().next("cancel");
    assertEquals(f.get("id"), cancel.get("id"));
    c.peer().fails(f, "cancelled");
    c.peer().ok(cancel);
    assertFalse(within("the end", interrupted));
    c.hold("b"); // the connection has survived it, and this is the first frame that comes
  }

  @Test
  void aGrantThatCrossesItsCancelIsNobodys() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> acquiring = c.client().acquireAsync("a", PLAIN);
    Map<String, Object> f = c.peer().next("acquire");
    acquiring.cancel(false);
    Map<String, Object> cancel = c.peer().next("cancel");
    c.peer().grant(f, 17L);
    c.peer().ok(cancel);
    assertInstanceOf(CancellationException.class, failure(acquiring));
    // The id is free again, and nothing is renewed or released.
    until(
        "the id is free",
        () -> {
          CompletableFuture<Hold> again =
              c.client().acquireAsync("a", PLAIN.id((String) f.get("id")));
          return !again.isCompletedExceptionally();
        });
    assertEquals(f.get("id"), c.peer().next("acquire").get("id"));
  }

  @Test
  void anInterruptWithoutAnAnswerSaysThatTheOutcomeIsUnknown() throws Exception {
    Connected c = server.client();
    CompletableFuture<Thread> caller = new CompletableFuture<>();
    CompletableFuture<InterruptedException> ended =
        async(
            () -> {
              caller.complete(Thread.currentThread());
              return assertThrows(InterruptedException.class, () -> c.client().acquire("a"));
            });
    c.peer().next("acquire");
    within("the caller", caller).interrupt();
    c.peer().next("cancel");
    Throwable[] suppressed = within("the end", ended).getSuppressed();
    assertInstanceOf(UnknownOutcomeException.class, suppressed[0]);
  }

  @Test
  void anInterruptedThreadSendsNothing() throws Exception {
    Connected c = server.client();
    CompletableFuture<InterruptedException> ended =
        async(
            () -> {
              Thread.currentThread().interrupt();
              return assertThrows(InterruptedException.class, () -> c.client().acquire("a"));
            });
    within("the end", ended);
    c.hold("b"); // the first frame that comes
  }

  @Test
  void aFutureThatIsCompletedOtherwiseTakesTheRequestBack() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> acquiring = c.client().acquireAsync("a", PLAIN);
    Map<String, Object> f = c.peer().next("acquire");
    acquiring.completeExceptionally(new java.util.concurrent.TimeoutException());
    assertEquals(f.get("id"), c.peer().next("cancel").get("id"));
    CompletableFuture<Hold> other = c.client().acquireAsync("b", PLAIN);
    Map<String, Object> g = c.peer().next("acquire");
    other.complete(null); // as completeOnTimeout does
    assertEquals(g.get("id"), c.peer().next("cancel").get("id"));
  }

  @Test
  void aBrokenConnectionIsMadeAgainAndRequestsAreSentAgainWithTheirAge() throws Exception {
    Connected c = server.client();
    CompletableFuture<String> troubled = new CompletableFuture<>();
    Hold hold = c.hold("a", PLAIN.onTroubled((h, e) -> troubled.complete(e.code())), 17L);
    CompletableFuture<Hold> waiting =
        c.client().acquireAsync("b", PLAIN.waitAtMost(Duration.ofMinutes(1)));
    Map<String, Object> first = c.peer().next("acquire");
    long began = System.nanoTime();
    until("the request has an age", () -> System.nanoTime() - began > 5_000_000);
    c.peer().cut();
    assertEquals("unavailable", within("trouble is told", troubled));
    Peer second = server.peer();
    Map<String, Object> open = second.greet("S1", "leases", leases(hold));
    assertEquals("S1", open.get("resume"));
    Map<String, Object> again = second.next("acquire");
    assertEquals(first.get("id"), again.get("id"));
    assertTrue((Long) again.get("waited") >= 5, "it says how long it has waited");
    assertTrue((Long) again.get("wait") <= 59_995, "what is left of its bound");
    second.grant(again, 18L);
    assertEquals(18, within("the grant", waiting).token());
    assertTrue(hold.isSafe(), "nothing was lost");
  }

  @Test
  void afterAResumeWhatIsNotListedIsLostAndWhatNobodyWantsIsReleased() throws Exception {
    Connected c = server.client();
    Hold kept = c.hold(List.of("a", "b"));
    Hold gone = c.hold("c", PLAIN, 9L);
    c.peer().cut();
    Peer second = server.peer();
    second.hello();
    Map<String, Object> open = second.next("open");
    // A long list comes in parts.
    second.send(
        frame("n", open.get("n"), "leases", leases(kept)),
        frame(
            "n",
            open.get("n"),
            "ok",
            true,
            "session",
            "S1",
            "grace",
            2940,
            "elapsed",
            0,
            "leases",
            List.of(
                frame(
                    "id",
                    "stranger",
                    "keys",
                    List.of("x"),
                    "tokens",
                    List.of(5),
                    "forever",
                    true))));
    assertEquals("stranger", second.next("release").get("id"));
    assertEquals("forced", lost(gone).code());
    assertTrue(kept.isSafe());
  }

  @Test
  void sessionLostAtTheResume() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    Hold detached = c.hold("d", PLAIN.detach(), 20L, "detached", true);
    CompletableFuture<Hold> waiting = c.client().acquireAsync("b", PLAIN);
    Map<String, Object> first = c.peer().next("acquire");
    CompletableFuture<Void> releasing = c.hold("c").releaseAsync();
    c.peer().next("release");
    c.peer().cut();
    Peer second = server.peer();
    second.hello();
    Map<String, Object> resume = second.next("open");
    assertEquals("S1", resume.get("resume"));
    second.fails(resume, "session_lost");
    Map<String, Object> open = second.next("open");
    assertNull(open.get("resume"));
    assertEquals("session_lost", lost(hold).code());
    assertFalse(hold.isSafe());
    second.send(frame("n", open.get("n"), "ok", true, "session", "S2", "grace", 3000));
    Map<String, Object> again = second.next("acquire");
    assertEquals(first.get("id"), again.get("id"));
    second.grant(again, 21L);
    assertEquals(21, within("the grant", waiting).token());
    within("the end of the session released it", releasing);
    assertTrue(detached.isSafe(), "a detached hold outlives its session");
    assertThrows(SessionLostException.class, hold::release);
  }

  @Test
  void aNoticeThatTheSessionIsLostWhileSomebodyWaits() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    CompletableFuture<Hold> waiting = c.client().acquireAsync("b", PLAIN);
    Map<String, Object> first = c.peer().next("acquire");
    c.peer()
        .send(
            frame("lost", "session_lost"),
            frame("n", first.get("n"), "ok", false, "code", "session_lost", "op", "acquire"));
    assertEquals("session_lost", lost(hold).code());
    Peer second = server.peer();
    assertNull(second.greet("S2").get("resume"), "the lost session is not asked for again");
    second.grant(second.next("acquire"), 30L);
    assertEquals(30, within("the grant", waiting).token());
  }

  @Test
  void noticesEndAHoldAtOnceWithWhoDidIt() throws Exception {
    Connected c = server.client();
    Hold forced = c.hold("a");
    c.peer()
        .send(frame("lost", "forced", "id", forced.id(), "key", "a", "token", 17, "by", "alice"));
    LatchkeyException why = lost(forced);
    assertInstanceOf(ForcedException.class, why);
    assertTrue(why.reason().contains("alice"));
    Hold many = c.hold(List.of("a", "b"));
    c.peer()
        .send( // the first is about an older hold of that key
            frame("lost", "forced", "id", many.id(), "key", "b", "token", 4),
            frame("lost", "expired", "id", many.id(), "key", "b", "token", 18));
    assertEquals("expired", lost(many).code());
    CompletableFuture<Void> releasing = many.releaseAsync();
    c.peer().ok(c.peer().next("release")); // gives back the key that is left
    assertEquals("expired", code(releasing));
  }

  @Test
  void holdsAreRenewedAndFailingRenewalsAreToldBeforeTheLoss() throws Exception {
    Connected c = server.client(options().grace(Duration.ZERO));
    List<String> told = new CopyOnWriteArrayList<>();
    Hold hold = c.hold("a", PLAIN.ttl(ms(900)).onTroubled((h, e) -> told.add(e.code())), 17L);
    long first = hold.safeUntil().getAsLong();
    Map<String, Object> renew = c.peer().next("renew");
    assertEquals(frame("n", renew.get("n"), "do", "renew", "id", hold.id()), renew);
    c.peer().renewed(renew, hold, 900, 900);
    until("the deadline moves ahead", () -> hold.safeUntil().getAsLong() > first);
    long second = hold.safeUntil().getAsLong();
    for (int i = 0; i < 2; i++) c.peer().fails(c.peer().next("renew"), "unavailable");
    assertEquals("service_gone", lost(hold).code());
    assertTrue(told.size() >= 2, told::toString);
    assertTrue(System.nanoTime() >= second, "not before its deadline");
  }

  @Test
  void aRenewalWhoseAnswerSaysNothingRenewsNothing() throws Exception {
    Connected c = server.client(options().grace(Duration.ZERO));
    Hold hold = c.hold("a", PLAIN.ttl(ms(600)), 17L);
    for (int i = 0; i < 2; i++) c.peer().ok(c.peer().next("renew"));
    assertEquals("service_gone", lost(hold).code());
  }

  @Test
  void withoutRenewalsOnlyTheDeadlineIsWatched() throws Exception {
    Connected c = server.client(options().grace(Duration.ZERO));
    Hold hold = c.hold("a", PLAIN.ttl(ms(300)).renew(false), 17L);
    assertEquals("expired", lost(hold).code());
    assertEquals(0, c.peer().unread());
  }

  @Test
  void renewChangesTheTtlAndWhatItCannotDoEndsTheHold() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    CompletableFuture<Void> renewing = hold.renewAsync(ms(60_000));
    Map<String, Object> f = c.peer().next("renew");
    assertEquals(60_000L, f.get("ttl"));
    c.peer().renewed(f, hold, 60_000, 60_000);
    within("the renewal", renewing);
    assertEquals(ms(60_000), hold.ttl().orElseThrow());
    assertThrows(RefusedException.class, () -> hold.renew(ms(99)));
    CompletableFuture<Void> failing = hold.renewAsync(ms(60_000));
    c.peer().fails(c.peer().next("renew"), "not_held");
    assertEquals("expired", code(failing));
    assertEquals("expired", lost(hold).code());
  }

  @Test
  void aThawedProcessKnowsByTheClockBeforeAnyTimerHasRun() throws Exception {
    Shifted clock = new Shifted();
    Connected c = server.client(options().clock(clock));
    Hold hold = c.hold("a");
    assertTrue(hold.isSafe());
    clock.shift(Duration.ofMinutes(10)); // nothing else has happened
    assertFalse(hold.isSafe());
    assertThrows(LeaseLostException.class, hold::check);
    assertTrue(List.of("expired", "service_gone").contains(lost(hold).code()));
  }

  @Test
  void noAnswerFromBeforeAFreezeMakesALostHoldSafeAgain() throws Exception {
    Shifted clock = new Shifted();
    Connected c = server.client(options().clock(clock));
    Hold hold = c.hold("a");
    CompletableFuture<Void> renewing = hold.renewAsync(ms(900_000));
    Map<String, Object> f = c.peer().next("renew");
    clock.shift(Duration.ofMinutes(10));
    c.peer().renewed(f, hold, 900_000, 900_000);
    assertInstanceOf(LeaseLostException.class, failure(renewing));
    assertFalse(hold.isSafe());
  }

  @Test
  void aGrantThatArrivesTooLateIsGivenBack() throws Exception {
    Shifted clock = new Shifted();
    Connected c = server.client(options().grace(Duration.ZERO).clock(clock));
    CompletableFuture<Hold> acquiring = c.client().acquireAsync("a", PLAIN.ttl(ms(1000)));
    Map<String, Object> f = c.peer().next("acquire");
    clock.shift(ms(5000));
    c.peer().grant(f, 17L);
    assertEquals(f.get("id"), c.peer().next("release").get("id"));
    assertEquals("expired", code(acquiring));
  }

  @Test
  void aLinkThatIsDeadWithoutBeingClosedIsGivenUp() throws Exception {
    Connected c = server.client(options().grace(ms(900)));
    Hold hold = c.hold("a");
    c.peer().pongs = false;
    server.peer(); // a new attempt, since no ping is answered
    assertEquals("service_gone", lost(hold).code());
    assertTrue(hold.safeFor().isNegative() || hold.safeFor().isZero());
    c.peer().awaitEnd();
  }

  @Test
  void aReleaseThatIsSentAgainAndNotHeldWasDone() throws Exception {
    Connected c = server.client();
    CompletableFuture<Void> releasing = c.hold("a").releaseAsync();
    c.peer().next("release");
    c.peer().cut();
    Peer second = server.peer();
    second.greet("S1", "leases", List.of());
    second.fails(second.next("release"), "not_held");
    within("the release", releasing);
  }

  @Test
  void withoutABroker() throws Exception {
    Connected c = server.client(options().grace(ms(500)));
    CompletableFuture<Hold> sent = c.client().acquireAsync("a", PLAIN.tryOnce());
    c.peer().next("acquire");
    c.peer().cut();
    until("the client has noticed", () -> !c.client().isConnected());
    CompletableFuture<Hold> bounded = c.client().acquireAsync("b", PLAIN.waitAtMost(ms(200)));
    CompletableFuture<Hold> tried = c.client().acquireAsync("c", PLAIN.tryOnce());
    assertEquals("unknown", code(sent));
    assertEquals("timeout", code(bounded));
    assertEquals("unavailable", code(tried));
    assertThrows(UnavailableException.class, () -> c.client().list(ListOptions.all()));
  }

  @Test
  void aBrokerThatClosesSendsRequestsBackAndTheyWaitForTheNext() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> waiting = c.client().acquireAsync("a", PLAIN);
    Map<String, Object> f = c.peer().next("acquire");
    c.peer()
        .send(
            frame("n", f.get("n"), "ok", false, "code", "closed", "op", "acquire"),
            frame("ok", false, "code", "closed", "reason", "bye"));
    Peer second = server.peer();
    second.greet();
    second.grant(second.next("acquire"), 40L);
    assertEquals(40, within("the grant", waiting).token());
  }

  @Test
  void whatAClosingBrokerSentBackIsTakenBackWithoutAsking() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> waiting = c.client().acquireAsync("a", PLAIN);
    Map<String, Object> f = c.peer().next("acquire");
    c.peer()
        .send(
            frame("n", f.get("n"), "ok", false, "code", "closed", "op", "acquire"),
            frame("ok", false, "code", "closed", "reason", "bye"));
    until("the client has noticed", () -> !c.client().isConnected());
    waiting.cancel(false);
    Peer second = server.peer();
    second.greet();
    new Connected(c.client(), second).hold("b"); // the first frame that comes
  }

  @Test
  void garbageALineWithoutEndAndAWrongVersionAreErrorsWithAType() throws Exception {
    byte[] endless = "x".repeat(1_100_000).getBytes(StandardCharsets.UTF_8);
    for (byte[] answer :
        List.of(
            "+OK\n".getBytes(StandardCharsets.UTF_8),
            "{\"latchkey\":2}\n".getBytes(StandardCharsets.UTF_8),
            "null\n".getBytes(StandardCharsets.UTF_8),
            new byte[] {'"', (byte) 0xff, '"', '\n'},
            endless)) {
      CompletableFuture<Client> connecting = server.dial(options());
      server.peer().raw(answer);
      assertInstanceOf(ProtocolException.class, failure(connecting));
    }
    CompletableFuture<Client> refused = server.dial(options());
    server.peer().send(frame("ok", false, "code", "refused", "reason", "10000 are open"));
    assertEquals("refused", code(refused));
    assertEquals("unavailable", code(server.dial(options().connectTimeout(ms(100)))));
    for (String bad : List.of("nowhere", "unix:", "a:b", "host:0", "host:70000", "::1:80")) {
      assertThrows(RefusedException.class, () -> Client.connect(bad), bad);
    }
  }

  @Test
  void garbageInTheMiddleIsToldAfterAFewConnections() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> waiting = c.client().acquireAsync("a", PLAIN);
    Peer p = c.peer();
    for (int i = 0; i < 3; i++) {
      p.next("acquire");
      p.raw("{\"n\":\"five\"}\n".getBytes(StandardCharsets.UTF_8));
      p = server.peer();
      p.greet();
    }
    assertEquals("unknown", code(waiting));
    assertEquals("cancel", p.next().get("do"), "what may have been granted is taken back");
  }

  @Test
  void aGrantWithoutAnEndIsNotTakenForOneThatHasNone() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> acquiring = c.client().acquireAsync("a", PLAIN);
    Map<String, Object> f = c.peer().next("acquire");
    c.peer().send(frame("n", f.get("n"), "ok", true, "id", f.get("id"), "key", "a", "token", 5));
    c.peer().awaitEnd();
    Peer second = server.peer();
    second.greet();
    second.grant(second.next("acquire"), 6L);
    assertEquals(6, within("the grant", acquiring).token());
  }

  @Test
  void unknownFieldsAreIgnoredAndUnknownCodesKeepTheirName() throws Exception {
    Connected c = server.client();
    c.hold("a", PLAIN, 3L, "region", frame("name", "eu"), "note", null);
    CompletableFuture<Hold> failing = c.client().acquireAsync("b", PLAIN);
    c.peer().fails(c.peer().next("acquire"), "preempted");
    LatchkeyException e = (LatchkeyException) failure(failing);
    assertInstanceOf(InternalException.class, e);
    assertEquals("preempted", e.code());
  }

  @Test
  void whatBreaksARuleIsRefusedHereAndNothingIsSent() throws Exception {
    Connected c = server.client();
    record Bad(List<String> keys, AcquireOptions options) {}
    List<String> a = List.of("a");
    List<String> huge = IntStream.range(0, 64).mapToObj(i -> "\u0001".repeat(500) + i).toList();
    for (Bad bad :
        List.of(
            new Bad(List.of(""), PLAIN),
            new Bad(List.of(), PLAIN),
            new Bad(List.of("a", "a"), PLAIN),
            new Bad(List.of("k".repeat(513)), PLAIN),
            new Bad(List.of("\ud800"), PLAIN),
            new Bad(a, PLAIN.ttl(ms(99))),
            new Bad(a, PLAIN.ttl(Duration.ofDays(367))),
            new Bad(a, PLAIN.ttl(Duration.ofSeconds(Long.MAX_VALUE))),
            new Bad(a, PLAIN.waitAtMost(Duration.ZERO)),
            new Bad(a, PLAIN.tryOnce().waitAtMost(ms(5))),
            new Bad(a, PLAIN.counted(0)),
            new Bad(a, PLAIN.preferReaders()),
            new Bad(a, PLAIN.id("")),
            new Bad(huge, PLAIN))) {
      assertThrows(
          RefusedException.class,
          () -> c.client().acquire(bad.keys, bad.options),
          () -> bad.options.fields(a).toString());
    }
    Hold hold = c.hold("a", PLAIN.id("mine"), 5L);
    assertThrows(RefusedException.class, () -> c.client().acquire("b", PLAIN.id("mine")));
    assertEquals(0, c.peer().unread());
    assertEquals("mine", hold.id());
  }

  @Test
  void moreThanTenThousandUnansweredRequestsAreRefused() throws Exception {
    Connected c = server.client();
    List<CompletableFuture<Hold>> all = new ArrayList<>();
    for (int i = 0; i < Limits.MAX_IN_FLIGHT; i++) {
      all.add(c.client().acquireAsync("k" + i, PLAIN));
    }
    assertEquals("refused", code(c.client().acquireAsync("one too many", PLAIN)));
    c.client().close();
    assertEquals("closed", code(all.get(0)));
    assertEquals("closed", code(all.get(all.size() - 1)));
  }

  @Test
  void callReturnsWhatTheBodyDoesAndReleasesWhateverHappens() throws Exception {
    Connected c = server.client();
    CompletableFuture<Long> calling = async(() -> c.client().call("a", hold -> hold.token() + 1));
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().ok(c.peer().next("release"));
    assertEquals(18, within("the call", calling));
    CompletableFuture<Void> failing =
        async(
            () ->
                c.client()
                    .call(
                        "a",
                        hold -> {
                          throw new IOException("body");
                        }));
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().ok(c.peer().next("release"));
    assertInstanceOf(IOException.class, failure(failing));
  }

  @Test
  void callInterruptsItsBodyAtTheLossAndThrowsIt() throws Exception {
    Connected c = server.client();
    CountDownLatch never = new CountDownLatch(1);
    CompletableFuture<Boolean> interruptedAfter = new CompletableFuture<>();
    CompletableFuture<Void> calling =
        async(
            () -> {
              try {
                return c.client()
                    .call(
                        "a",
                        hold -> {
                          c.peer()
                              .send(
                                  frame(
                                      "lost", "expired", "id", hold.id(), "key", "a", "token", 17));
                          try {
                            never.await();
                          } catch (InterruptedException e) {
                            throw new IllegalStateException("half done", e);
                          }
                          return null;
                        });
              } finally {
                interruptedAfter.complete(Thread.currentThread().isInterrupted());
              }
            });
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().fails(c.peer().next("release"), "not_held");
    LatchkeyException e = (LatchkeyException) failure(calling);
    assertInstanceOf(ExpiredException.class, e);
    assertEquals("half done", e.getCause().getMessage());
    assertFalse(within("the call", interruptedAfter), "the interrupt does not outlive the call");
  }

  @Test
  void aBodyThatDoesNotLookIsToldAllTheSame() throws Exception {
    Connected c = server.client();
    CompletableFuture<Void> go = new CompletableFuture<>();
    CompletableFuture<Boolean> calling =
        async(
            () -> {
              assertThrows(
                  ForcedException.class,
                  () ->
                      c.client()
                          .call(
                              "a",
                              hold -> {
                                c.peer().send(frame("lost", "forced", "id", hold.id(), "key", "a"));
                                hold.onLost(why -> go.complete(null));
                                while (!go.isDone()) Thread.onSpinWait();
                                return null;
                              }));
              return Thread.interrupted();
            });
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().fails(c.peer().next("release"), "not_held");
    assertFalse(within("the call", calling), "the interrupt was taken back");
  }

  @Test
  void tryWithResourcesReleasesAlsoWhenInterrupted() throws Exception {
    Connected c = server.client();
    CompletableFuture<Boolean> scope =
        async(
            () -> {
              try (Hold hold = c.client().acquire("a")) {
                assertTrue(hold.isSafe());
                Thread.currentThread().interrupt();
              }
              return Thread.interrupted();
            });
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().ok(c.peer().next("release"));
    assertTrue(within("the scope", scope), "the interrupt is kept");
  }

  @Test
  void closeEndsEveryCallTellsEveryHoldAndSaysGoodbye() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    Client client = c.client();
    List<CompletableFuture<?>> calls =
        List.of(
            client.acquireAsync("b", PLAIN),
            async(() -> client.acquire("b2")),
            async(() -> client.list(ListOptions.all())),
            async(() -> client.force("c", "", "")),
            async(() -> client.watchPrefix("")),
            async(client::stats),
            hold.renewAsync(ms(1000)));
    for (int i = 0; i < calls.size(); i++) c.peer().next();
    CompletableFuture<Void> closing = c.closing();
    c.peer().ok(c.peer().next("close"));
    for (CompletableFuture<?> call : calls) assertEquals("closed", code(call));
    assertInstanceOf(HoldClosedException.class, lost(hold));
    within("close", closing);
    client.close();
    assertThrows(ClosedException.class, () -> client.acquire("d"));
    assertThrows(HoldClosedException.class, hold::release);
    assertThrows(HoldClosedException.class, hold::close);
    assertFalse(hold.isSafe());
    assertEquals(List.of(), threads());
  }

  /** The threads that clients have just now. */
  static List<String> threads() {
    return Thread.getAllStackTraces().keySet().stream()
        .filter(t -> t.isAlive() && t.getName().startsWith("latchkey-"))
        .map(Thread::getName)
        .toList();
  }

  @Test
  void closeDoesNotWaitForABrokerThatDoesNotAnswer() throws Exception {
    Connected c = server.client();
    c.client().close();
    assertEquals(List.of(), threads());
  }

  @Test
  void closeFromACallback() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    CompletableFuture<Void> closed = new CompletableFuture<>();
    hold.onLost(
        why -> {
          c.client().close();
          closed.complete(null);
        });
    c.peer().send(frame("lost", "forced", "id", hold.id(), "key", "a"));
    c.peer().ok(c.peer().next("close"));
    within("close", closed);
    until("no thread is left", () -> threads().isEmpty());
  }

  @Test
  void aSecondClientThatResumesTheSessionKeepsIt() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().send(frame("ok", false, "code", "session_lost", "reason", "resumed elsewhere"));
    assertEquals("session_lost", lost(hold).code());
    assertNull(server.peer().greet("S2").get("resume"));
  }

  @Test
  void watchHasEventsInOrderAGapAfterAReconnectAndAnEnd() throws Exception {
    Connected c = server.client();
    CompletableFuture<Watch> watching = async(() -> c.client().watchPrefix("jobs/"));
    Map<String, Object> f = c.peer().next("watch");
    assertEquals("jobs/", f.get("prefix"));
    Object n = f.get("n");
    c.peer()
        .send(
            frame("n", n, "ok", true),
            frame("n", n, "event", "granted", "key", "jobs/1", "token", 5, "mode", "shared"));
    Watch watch = within("the watch", watching);
    WatchEvent first = watch.next();
    assertEquals("granted", first.event());
    assertEquals(5, first.token().getAsLong());
    assertSame(Mode.SHARED, first.mode());
    c.peer().cut();
    Peer second = server.peer();
    second.greet();
    Object again = second.next("watch").get("n");
    second.send(
        frame("n", again, "ok", true), frame("n", again, "event", "released", "key", "jobs/1"));
    assertTrue(watch.next().isGap());
    assertEquals("released", watch.next().event());
    assertTrue(watch.poll(Duration.ZERO).isEmpty());
    watch.close();
    assertEquals(again, second.next("unwatch").get("watch"));
    watch.close();
    assertThrows(ClosedException.class, watch::next);
  }

  @Test
  void aWatchThatIsNotReadKeepsAGapInsteadOfAHeap() throws Exception {
    Watch watch = new Watch(3, () -> {});
    for (int i = 0; i < 11; i++) {
      watch.push(Wire.event(frame("event", "granted", "key", "k" + i)));
    }
    List<String> seen = new ArrayList<>();
    for (var e = watch.poll(Duration.ZERO); e.isPresent(); e = watch.poll(Duration.ZERO)) {
      seen.add(e.get().event() + e.get().key());
    }
    assertEquals("gap", seen.get(0), "whoever reads learns first that it is not all");
    assertEquals("grantedk10", seen.get(seen.size() - 1));
    assertTrue(seen.size() <= 3);
  }

  @Test
  void callbacksThatThrowOrHangCostNobodyALease() throws Exception {
    CountDownLatch hang = new CountDownLatch(1);
    List<String> told = new CopyOnWriteArrayList<>();
    Connected c =
        server.client(
            options()
                .grace(ms(3000))
                .onTroubled(
                    (h, e) -> {
                      told.add(e.code());
                      throw new IllegalStateException("a callback");
                    }));
    Hold one = c.hold("a");
    Hold two = c.hold("b");
    one.onLost(
        why -> {
          try {
            hang.await();
          } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
          }
        });
    c.peer().send(frame("lost", "forced", "id", one.id(), "key", "a"));
    until("it is lost", () -> !one.isSafe());
    long before = two.safeUntil().getAsLong();
    until("pings go on while a callback hangs", () -> two.safeUntil().getAsLong() > before);
    c.peer().cut();
    Peer second = server.peer();
    second.greet("S1", "leases", leases(two));
    until("it is back", () -> c.client().isConnected());
    assertTrue(two.isSafe());
    hang.countDown();
    until("trouble was told", () -> !told.isEmpty());
    assertTrue(two.isSafe());
  }

  @Test
  void aCallbackMayWaitForALease() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    CompletableFuture<Long> again = new CompletableFuture<>();
    CompletableFuture<Queued> queued = new CompletableFuture<>();
    hold.onLost(
        why -> {
          try {
            again.complete(c.client().acquire("a", PLAIN.onQueued(queued::complete)).token());
          } catch (InterruptedException e) {
            again.completeExceptionally(e);
          }
        });
    c.peer().send(frame("lost", "forced", "id", hold.id(), "key", "a"));
    Map<String, Object> f = c.peer().next("acquire");
    c.peer().send(frame("n", f.get("n"), "queued", true, "id", f.get("id"), "key", "a"));
    within("queued is told", queued);
    c.peer().grant(f, 18L);
    assertEquals(18, within("the grant", again));
  }

  @Test
  void whoeverWaitsInADependentStageHangsNobody() throws Exception {
    Connected c = server.client();
    LinkedBlockingQueue<String> done = new LinkedBlockingQueue<>();
    c.client()
        .acquireAsync("a", PLAIN)
        .thenAccept(
            hold -> {
              hold.releaseAsync().join(); // its answer comes on the thread that must not be this
              done.add("released");
            });
    c.peer().grant(c.peer().next("acquire"), 17L);
    c.peer().ok(c.peer().next("release"));
    until("it is released", () -> !done.isEmpty());
  }
}
