package io.github.latchkeygo;

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
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.latchkeygo.Scripted.Connected;
import io.github.latchkeygo.Scripted.Peer;
import io.github.latchkeygo.Scripted.Shifted;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** What a resume may find, and answers that are not what was asked for. */
final class ResumeTest {
  private static final AcquireOptions PLAIN = AcquireOptions.defaults();
  private static final Map<String, Object> TAKEN =
      frame("ok", false, "code", "session_lost", "reason", "another connection resumed it");

  @RegisterExtension final Scripted server = new Scripted();

  /** A connection on which the client asks for its session, unanswered. */
  private Peer unanswered() throws InterruptedException {
    Peer peer = server.peer();
    peer.hello();
    assertEquals("S1", peer.next("open").get("resume"));
    return peer;
  }

  @Test
  void aResumeOfItsOwnThatTheBrokerComesToLateIsTakenForWhatItIs() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    CompletableFuture<Hold> waiting = c.client().acquireAsync("b", PLAIN);
    Object asked = c.peer().next("acquire").get("id");
    c.peer().cut();
    for (int i = 0; i < 2; i++) unanswered().cut();
    Peer second = server.peer();
    assertEquals("S1", second.greet("S1", "leases", leases(hold)).get("resume"));
    assertEquals(asked, second.next("acquire").get("id"));
    second.send(TAKEN);

    // It may also be told in place of the answer.
    unanswered().send(TAKEN);
    Peer fourth = server.peer();
    assertEquals("S1", fourth.greet("S1", "leases", leases(hold)).get("resume"));
    assertEquals(asked, fourth.next("acquire").get("id"));
    assertTrue(hold.isSafe());

    // Nothing is left to excuse it: now it was somebody else.
    fourth.send(TAKEN);
    assertEquals("session_lost", lost(hold).code());
    assertNull(server.peer().greet("S2").get("resume"));
    assertEquals("session_lost", code(waiting));
  }

  @Test
  void aTakeoverInPlaceOfTheAnswerToAResumeWithNothingToExcuseIt() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().cut();
    unanswered().send(TAKEN);
    assertEquals("session_lost", lost(hold).code());
    assertNull(server.peer().greet("S2").get("resume"));
  }

  @Test
  void whatAResumeFindsPastItsDeadlineIsLostAndGivenBack() throws Exception {
    Shifted clock = new Shifted();
    Duration calm = Duration.ofMinutes(10); // no attempt to connect ends within the shift
    Connected c = server.client(options().grace(calm).connectTimeout(calm).clock(clock));
    Hold hold = c.hold("a", PLAIN.renew(false), 17L);
    c.peer().cut();
    Peer second = server.peer();
    second.hello();
    Object n = second.next("open").get("n");
    clock.shift(Duration.ofSeconds(40)); // unseen by any timer, and within the grace
    second.send(
        frame("n", n, "ok", true, "session", "S1", "grace", 600000, "leases", leases(hold)));
    assertEquals(hold.id(), second.next("release").get("id"));
    assertEquals("expired", lost(hold).code());
    c.client().acquireAsync("b", PLAIN);
    second.next("acquire"); // the release was sent once
  }

  @Test
  void whatWasGivenBackWhileTheLinkWasDownIsReleasedAfterTheResume() throws Exception {
    Shifted clock = new Shifted();
    Connected c = server.client(options().clock(clock));
    Hold hold = c.hold("a");
    c.peer().cut();
    Peer second = unanswered();
    clock.shift(Duration.ofSeconds(61));
    assertFalse(hold.isSafe());
    CompletableFuture<Void> releasing = hold.releaseAsync();
    second.cut();
    Peer third = server.peer();
    third.greet("S1", "leases", leases(hold));
    assertEquals(hold.id(), third.next("release").get("id"));
    assertInstanceOf(LeaseLostException.class, failure(releasing));
  }

  @Test
  void closeWithoutAConnectionSaysGoodbyeOnTheNextOneIfItComesInTime() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().cut();
    Peer second = server.peer();
    CompletableFuture<Void> closing = c.closing();
    assertEquals("closed", lost(hold).code());
    second.cut();
    Peer third = server.peer();
    assertEquals("S1", third.greet("S1", "leases", leases(hold)).get("resume"));
    third.ok(third.next("close"));
    within("close", closing);
    assertEquals(List.of(), SessionTest.threads());
  }

  @Test
  void closeWithoutAConnectionAndWithoutASessionOpensNoOther() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().cut();
    Peer second = server.peer();
    CompletableFuture<Void> closing = c.closing();
    assertEquals("closed", lost(hold).code());
    second.hello();
    second.fails(second.next("open"), "session_lost");
    within("close", closing);
    second.awaitEnd();
    assertTrue(second.unread() <= 1, "nothing but the end");
  }

  @Test
  void anotherSessionThanTheOneResumedVouchesForNothing() throws Exception {
    Connected c = server.client();
    Hold hold = c.hold("a");
    c.peer().cut();
    Peer second = server.peer();
    second.greet("S2", "leases", leases(hold));
    second.awaitEnd();
    Peer third = server.peer();
    assertEquals("S1", third.greet("S1", "leases", leases(hold)).get("resume"));
    until("it is connected again", () -> c.client().isConnected());
    assertTrue(hold.isSafe());
  }

  @Test
  void aGrantOfSomethingElseThanWasAskedForIsNone() throws Exception {
    Connected c = server.client();
    CompletableFuture<Hold> acquiring = c.client().acquireAsync(List.of("a", "b"), PLAIN);
    Peer p = c.peer();
    for (List<String> keys : List.of(List.of("a", "c"), List.of("a"))) {
      p.grant(p.next("acquire"), 5L, "keys", keys);
      p.awaitEnd();
      p = server.peer();
      p.greet();
    }
    p.grant(p.next("acquire"), 6L, "keys", List.of("b", "a"));
    assertEquals(Map.of("b", 6L, "a", 7L), within("the grant", acquiring).tokens());
  }

  @Test
  void aRequestThatJustFitsAFrameCanBeSentAgain() throws Exception {
    Connected c = server.client();
    List<String> keys = new ArrayList<>();
    for (int i = 10; i < 52; i++) keys.add("\u0001".repeat(256) + i);
    keys.add("x".repeat(400));
    int fitting = 0;
    for (int size = 200; size < 340; size++) {
      List<String> all = new ArrayList<>(keys);
      all.add("y".repeat(size));
      if (!c.client().acquireAsync(all, PLAIN).isCompletedExceptionally()) fitting++;
    }
    assertTrue(fitting > 0 && fitting < 140, "some are refused: " + (140 - fitting));
    for (int i = 0; i < fitting; i++) c.peer().next("acquire");
    c.peer().cut();
    Peer second = server.peer();
    second.greet();
    for (int i = 0; i < fitting; i++) {
      StringBuilder line = new StringBuilder();
      Json.write(line, second.next("acquire"));
      assertTrue(line.length() <= Limits.MAX_REQUEST_BYTES, () -> line.length() + " bytes");
    }
  }

  @Test
  void timesWithoutMeasureAreNoneThatHasPassed() throws Exception {
    Connected c = server.client(options().grace(Duration.ZERO));
    long most = Limits.MAX_INTEGER;
    Hold hold = c.hold("a", PLAIN, 5L, "ttl", most, "remaining", most, "elapsed", most);
    assertTrue(hold.isSafe());
    c.client().acquireAsync("b", PLAIN);
    c.peer().next("acquire"); // and nothing was renewed
  }

  @Test
  void renewalsThatAreAnsweredWithNoTtlDoNotSpin() throws Exception {
    Shifted clock = new Shifted();
    Connected c = server.client(options().clock(clock));
    Hold hold = c.hold("a", PLAIN.ttl(Duration.ofMillis(300)), 17L);
    c.peer().renewed(c.peer().next("renew"), hold, 0, 100_000);
    long began = System.nanoTime();
    for (int i = 0; i < 10; i++) c.peer().renewed(c.peer().next("renew"), hold, 0, 100_000);
    assertTrue(System.nanoTime() - began >= 90_000_000, "each comes 10 ms after the last");
  }
}
