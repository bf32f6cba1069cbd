package io.github.latchkeygo;

import static io.github.latchkeygo.Scripted.async;
import static io.github.latchkeygo.Scripted.lost;
import static io.github.latchkeygo.Scripted.options;
import static io.github.latchkeygo.Scripted.until;
import static io.github.latchkeygo.Scripted.within;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The client against the real broker: killed, restarted, stopped. */
final class BrokerTest {
  private static final AcquireOptions PLAIN = AcquireOptions.defaults();
  private static final AcquireOptions TRY = PLAIN.tryOnce();

  @TempDir private Path folder;

  /** A request that is known to wait. */
  private static CompletableFuture<Hold> waiting(Client client, String key, AcquireOptions o)
      throws InterruptedException {
    CompletableFuture<Queued> queued = new CompletableFuture<>();
    CompletableFuture<Hold> out = client.acquireAsync(key, o.onQueued(queued::complete));
    within(key + " is queued for", queued);
    return out;
  }

  @Test
  void aCallInACallOnTheSameKeyIsRefused() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect(options().name("a"));
      String inner =
          a.call(
              "k",
              outer -> {
                LatchkeyException e =
                    assertThrows(DeadlockException.class, () -> a.call("k", hold -> null));
                String told = "acquire \"k\": deadlock: you already hold this key: \"k\", as a";
                assertTrue(e.getMessage().startsWith(told), e.getMessage());
                assertEquals("k", e.cycle().get(0).key());
                return a.call("other", hold -> a.call("third", deep -> "done"));
              });
      assertEquals("done", inner);
      a.call("k", hold -> null); // nothing is declared any more
      Hold plain = a.acquire("k");
      CompletableFuture<Hold> second = waiting(a, "k", PLAIN);
      plain.release();
      within("a request without a call around waits", second);
    }
  }

  @Test
  void modesManyKeysBusyTimeoutOrderAndTokens() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect(options().name("a"));
      Client b = broker.connect(options().name("b"));
      assertEquals("memory", a.server().durability());
      assertEquals("clock", a.server().fencing());
      Hold first = a.acquire("k", PLAIN.label("nightly"));
      BusyException busy = assertThrows(BusyException.class, () -> b.acquire("k", TRY));
      assertEquals("nightly", busy.holders().get(0).label());
      assertEquals(first.token(), busy.holders().get(0).token().getAsLong());
      AcquireOptions bounded = PLAIN.waitAtMost(Duration.ofMillis(20));
      assertThrows(WaitTimeoutException.class, () -> b.acquire("k", bounded));
      CompletableFuture<Hold> second = waiting(b, "k", PLAIN);
      CompletableFuture<Hold> third = waiting(a, "k", PLAIN);
      first.release();
      Hold next = within("the second", second);
      assertTrue(next.token() > first.token());
      assertFalse(third.isDone());
      next.release();
      within("the third", third).release();

      List<Hold> holds = new ArrayList<>();
      holds.add(a.acquire("s", PLAIN.shared()));
      holds.add(b.acquire("s", PLAIN.shared()));
      assertThrows(BusyException.class, () -> b.acquire("s", TRY));
      for (int i = 0; i < 2; i++) holds.add(a.acquire("c", PLAIN.counted(2)));
      assertThrows(BusyException.class, () -> b.acquire("c", TRY.counted(2)));
      Hold many = a.acquire(List.of("m2", "m1"), PLAIN);
      assertEquals(List.of("m1", "m2"), List.copyOf(many.tokens().keySet()));
      assertThrows(RefusedException.class, many::token);
      holds.add(many);
      Hold forever = a.acquire("f", PLAIN.forever());
      assertTrue(forever.ttl().isEmpty());
      assertTrue(forever.isSafe());
      holds.add(forever);
      for (Hold hold : holds) hold.release();
      assertEquals(List.of(), a.list(ListOptions.all()).keys());
    }
  }

  @Test
  void deadlocksOfDeclaredHoldsAreRefusedAndNameTheCycle() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect(options().name("a"));
      Client b = broker.connect(options().name("b"));
      Hold x = a.acquire("x");
      Hold y = b.acquire("y");
      CompletableFuture<Hold> waits = waiting(a, "y", PLAIN.declared(List.of(x.id())));
      DeadlockException e =
          assertThrows(
              DeadlockException.class, () -> b.acquire("x", PLAIN.declared(List.of(y.id()))));
      assertEquals(2, e.cycle().size());
      y.release();
      within("the grant", waits).release();
      x.release();
    }
  }

  @Test
  void cancelLeavesNothingAndASightOfIt() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect();
      Client b = broker.connect();
      Watch watch = b.watchKey("k");
      Hold hold = a.acquire("k");
      CompletableFuture<Hold> waits = waiting(b, "k", PLAIN);
      KeyState state = a.list(ListOptions.prefix("k")).keys().get(0);
      assertEquals(1, state.waiting());
      assertEquals(1, state.holders().size());
      assertEquals(1, state.waiters().get(0).keys());
      waits.cancel(false);
      until(
          "nobody waits", () -> a.list(ListOptions.key("k").brief()).keys().get(0).waiting() == 0);
      hold.release();
      for (String event : List.of("granted", "queued", "dequeued", "released")) {
        assertEquals(event, watch.next().event());
      }
      assertEquals(1L, a.stats().get("granted"));
      assertEquals(0L, a.stats().get("waiters"));
    }
  }

  @Test
  void forceEndsAHoldAtOnceAndItsFenceIsAboveTheToken() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect();
      Client b = broker.connect();
      Hold hold = a.acquire("k");
      Forced forced = b.force("k", "alice", "stuck");
      assertEquals(List.of(hold.token()), forced.tokens());
      assertTrue(forced.fence() > hold.token());
      assertEquals("forced", lost(hold).code());
      assertThrows(ForcedException.class, hold::release);
      assertThrows(NotHeldException.class, () -> b.force("k", 5, "alice", ""));
    }
  }

  @Test
  void aDurableBrokerThatIsKilledAndStartedAgain() throws Exception {
    try (Broker broker = new Broker("--data", folder.resolve("data").toString())) {
      Client a = broker.connect();
      Client b = broker.connect();
      Hold hold = a.acquire("k");
      CompletableFuture<Hold> second = waiting(b, "k", PLAIN);
      // Places come back by age, which is told in milliseconds and as exactly as the machine is
      // quick.
      until(
          "it has an age",
          () -> {
            Waiter waiter = a.list(ListOptions.key("k")).keys().get(0).waiters().get(0);
            return waiter.age().toMillis() >= 1000;
          });
      CompletableFuture<Hold> third = waiting(a, "k", PLAIN);
      broker.kill();
      until("the clients have noticed", () -> !a.isConnected() && !b.isConnected());
      broker.start();
      until("both sessions are resumed", () -> a.isConnected() && b.isConnected());
      assertTrue(hold.isSafe());
      until(
          "both requests are back",
          () -> a.list(ListOptions.key("k")).keys().get(0).waiting() == 2);
      hold.release();
      Hold next = within("the second grant", second);
      assertTrue(next.token() > hold.token());
      next.release();
      within("the third grant", third).release();
    }
  }

  @Test
  void aBrokerInMemoryThatIsKilledAndStartedAgain() throws Exception {
    try (Broker broker = new Broker()) {
      Client a = broker.connect();
      Client b = broker.connect();
      Hold hold = a.acquire("k");
      CompletableFuture<Hold> waits = waiting(b, "k", PLAIN);
      broker.kill();
      broker.start();
      assertEquals("session_lost", lost(hold).code());
      assertFalse(hold.isSafe());
      within("the grant", waits).release();
    }
  }

  @Test
  void aBrokerThatIsStopped() throws Exception {
    try (Broker broker = new Broker()) {
      CompletableFuture<Boolean> told = new CompletableFuture<>(); // of the loss, by then
      ConnectOptions options = options().grace(Duration.ofSeconds(6));
      Client client =
          broker.connect(
              options.onTroubled(
                  (hold, error) -> told.complete(hold.lost().toCompletableFuture().isDone())));
      Hold hold = client.acquire("k");
      broker.signal("STOP");
      assertFalse(within("trouble", told), "trouble is told before the loss");
      assertEquals("service_gone", lost(hold).code());
      assertTrue(hold.safeFor().toMillis() > -2000);
      broker.signal("CONT");
      Hold next = within("the next grant", client.acquireAsync("k", PLAIN));
      assertTrue(next.token() > hold.token());
      next.release();
    }
  }

  @Test
  void aUnixSocket() throws Exception {
    Path socket = folder.resolve("socket");
    try (Broker broker = new Broker("--unix", socket.toString())) {
      until("the socket is there", () -> Files.exists(socket));
      try (Client client = Client.connect("unix:" + socket)) {
        assertEquals("k", client.call("k", Hold::key));
      }
      assertThrows(UnavailableException.class, () -> Client.connect("unix:" + socket + "-not"));
      broker.connect().close();
    }
  }

  @Test
  void afterCloseNoThreadAndNoSocketIsLeft() throws Exception {
    try (Broker broker = new Broker()) {
      until("no thread of another test", () -> SessionTest.threads().isEmpty());
      long before = openFiles();
      for (int i = 0; i < 3; i++) {
        Client client = Client.connect(options().address(broker.address()));
        Watch watch = client.watchPrefix("");
        Hold hold = client.acquire("a", PLAIN.ttl(Duration.ofMillis(500 + i)));
        client.acquire("b");
        CompletableFuture<Hold> waits = waiting(client, "a", PLAIN);
        if (i == 1) broker.signal("STOP");
        if (i == 2) hold.releaseAsync();
        client.close();
        assertEquals(List.of(), SessionTest.threads());
        assertTrue(watch.next() != null, "events that came are still read");
        if (i == 1) broker.signal("CONT");
        assertTrue(waits.handle((h, e) -> true).get(Scripted.PATIENCE, TimeUnit.SECONDS));
        watch.close();
      }
      until("only the files of before", () -> openFiles() <= before);
    }
  }

  /** What this process has open; sockets and selectors are among it. */
  private static long openFiles() {
    int count = 0;
    File[] open = new File("/proc/self/fd").listFiles();
    if (open == null) return 0; // not on this system
    for (File file : open) {
      try {
        String name = Files.readSymbolicLink(file.toPath()).toString();
        if (name.startsWith("socket:") || name.contains("eventpoll")) count++;
      } catch (IOException e) {
        // It was closed meanwhile.
      }
    }
    return count;
  }

  @Test
  void aProcessWhoseClientIsClosedEndsByItself() throws Exception {
    try (Broker broker = new Broker()) {
      Client client = broker.connect();
      Process agent =
          new ProcessBuilder("./run", "agent")
              .redirectError(ProcessBuilder.Redirect.INHERIT)
              .start();
      try (BufferedReader out =
          new BufferedReader(
              new InputStreamReader(agent.getInputStream(), StandardCharsets.UTF_8))) {
        say(agent, "{\"do\":\"connect\",\"addr\":\"" + broker.address() + "\",\"name\":\"child\"}");
        say(agent, "{\"do\":\"acquire\",\"ref\":\"r1\",\"keys\":[\"k\"]}");
        CompletableFuture<Void> talk =
            async(
                () -> {
                  assertTrue(out.readLine().contains("connected"));
                  assertTrue(out.readLine().contains("granted"));
                  say(agent, "{\"do\":\"acquire\",\"ref\":\"r2\",\"keys\":[\"k\"]}");
                  assertTrue(out.readLine().contains("queued"));
                  say(agent, "{\"do\":\"close\"}");
                  List<String> rest = out.lines().toList();
                  assertTrue(rest.get(rest.size() - 1).contains("closed"), rest::toString);
                  assertFalse(rest.toString().contains("error"), rest::toString);
                  return null;
                });
        within("the agent ends", talk);
        assertTrue(agent.waitFor(Scripted.PATIENCE, TimeUnit.SECONDS));
        assertEquals(0, agent.exitValue());
      } finally {
        agent.destroyForcibly();
      }
      assertEquals(List.of(), client.list(ListOptions.all()).keys());
      assertEquals(1L, client.stats().get("sessions"));
    }
  }

  private static void say(Process agent, String line) throws IOException {
    agent.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
    agent.getOutputStream().flush();
  }
}
