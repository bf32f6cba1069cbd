package io.github.latchkeygo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A server on the loopback that does exactly what a test says, for orders that a real broker rarely
 * takes.
 */
final class Scripted implements AfterEachCallback {
  /** A grace that no busy machine uses up; no ping comes in the middle of what a test sends. */
  static final Duration LONG = Duration.ofSeconds(60);

  static final long PATIENCE = 60;

  private final ServerSocket server;
  private final BlockingQueue<Peer> peers = new LinkedBlockingQueue<>();
  private final List<Peer> all = new ArrayList<>();
  private final List<Client> clients = new ArrayList<>();

  Scripted() {
    try {
      server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    start("scripted server", this::accept);
  }

  private static void start(String name, Runnable body) {
    Thread t = new Thread(body, name);
    t.setDaemon(true);
    t.start();
  }

  private void accept() {
    try {
      while (true) {
        Peer peer = new Peer(server.accept());
        synchronized (this) {
          all.add(peer);
        }
        peers.add(peer);
      }
    } catch (IOException e) {
      // It was closed.
    }
  }

  String address() {
    return "127.0.0.1:" + server.getLocalPort();
  }

  /** The next connection. */
  Peer peer() throws InterruptedException {
    Peer peer = peers.poll(PATIENCE, TimeUnit.SECONDS);
    assertNotNull(peer, "a connection of the client");
    return peer;
  }

  /** Connects a client without answering it. */
  CompletableFuture<Client> dial(ConnectOptions options) {
    return async(
        () -> {
          Client client = Client.connect(options.address(address()));
          synchronized (this) {
            clients.add(client);
          }
          return client;
        });
  }

  static ConnectOptions options() {
    return ConnectOptions.defaults().grace(LONG).logger(null);
  }

  /** Connects a client and answers its open. */
  Connected client(ConnectOptions options) throws InterruptedException {
    CompletableFuture<Client> connecting = dial(options);
    Peer peer = peer();
    peer.greet();
    return new Connected(within("the client connects", connecting), peer);
  }

  Connected client() throws InterruptedException {
    return client(options());
  }

  record Connected(Client client, Peer peer) {
    /** Holds a key. */
    Hold hold(String key, AcquireOptions o, Object token, Object... more)
        throws InterruptedException {
      return granted(client.acquireAsync(key, o), token, more);
    }

    Hold hold(String key) throws InterruptedException {
      return hold(key, AcquireOptions.defaults(), 17L);
    }

    /** Holds several keys, with tokens from 17 on. */
    Hold hold(List<String> keys) throws InterruptedException {
      return granted(client.acquireAsync(keys, AcquireOptions.defaults()), 17L);
    }

    private Hold granted(CompletableFuture<Hold> acquiring, Object token, Object... more)
        throws InterruptedException {
      peer.grant(peer.next("acquire"), token, more);
      return within("the grant", acquiring);
    }

    /** Closes the client. */
    CompletableFuture<Void> closing() {
      return async(
          () -> {
            client.close();
            return null;
          });
    }
  }

  /** How a resume lists holds, with tokens from 17 on. */
  static List<Map<String, Object>> leases(Hold... holds) {
    List<Map<String, Object>> out = new ArrayList<>();
    for (Hold hold : holds) {
      List<Object> tokens = new ArrayList<>();
      for (int i = 0; i < hold.keys().size(); i++) tokens.add(17L + i);
      Map<String, Object> lease = frame("id", hold.id(), "keys", hold.keys(), "tokens", tokens);
      lease.putAll(frame("ttl", 30000, "remaining", 30000, "waited", 0));
      out.add(lease);
    }
    return out;
  }

  /** Ends what the test left, when it is a test's extension. */
  @Override
  public synchronized void afterEach(ExtensionContext test) throws IOException {
    server.close();
    for (Peer peer : all) peer.leaving = true; // so that a goodbye is short
    for (Client client : clients) client.close();
    for (Peer peer : all) peer.cut();
  }

  // Waiting.

  /** Runs something in a thread of its own. */
  static <T> CompletableFuture<T> async(Callable<T> body) {
    CompletableFuture<T> out = new CompletableFuture<>();
    start(
        "test",
        () -> {
          try {
            out.complete(body.call());
          } catch (Throwable t) {
            out.completeExceptionally(t);
          }
        });
    return out;
  }

  /** The value of a future; a test that would hang fails and names what it waited for. */
  static <T> T within(String what, CompletableFuture<T> future) throws InterruptedException {
    try {
      return future.get(PATIENCE, TimeUnit.SECONDS);
    } catch (TimeoutException e) {
      return fail("not within " + PATIENCE + " s: " + what);
    } catch (java.util.concurrent.ExecutionException e) {
      throw new AssertionError(what, e.getCause());
    }
  }

  /** What a future fails with. */
  static Throwable failure(CompletableFuture<?> future) throws InterruptedException {
    return within(
        "a failure",
        future.handle(
            (value, e) -> {
              if (e == null) fail("it succeeded");
              return e instanceof CompletionException ? e.getCause() : e;
            }));
  }

  static String code(CompletableFuture<?> future) throws InterruptedException {
    Throwable e = failure(future);
    return e instanceof LatchkeyException l ? l.code() : String.valueOf(e);
  }

  /** The cause of a hold's loss. */
  static LeaseLostException lost(Hold hold) throws InterruptedException {
    return within("the hold is lost", hold.lost().toCompletableFuture());
  }

  interface Condition {
    boolean holds() throws InterruptedException;
  }

  /** Waits until a condition holds. */
  static void until(String what, Condition condition) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
    while (!condition.holds()) {
      if (System.nanoTime() > end) fail("not within " + PATIENCE + " s: " + what);
      TimeUnit.MILLISECONDS.sleep(2);
    }
  }

  static Map<String, Object> frame(Object... fields) {
    Map<String, Object> out = new LinkedHashMap<>();
    for (int i = 0; i < fields.length; i += 2) out.put((String) fields[i], fields[i + 1]);
    return out;
  }

  /** One connection as the server sees it. */
  static final class Peer {
    private static final Map<String, Object> END = Map.of();

    private final Socket socket;
    private final BlockingQueue<Map<String, Object>> frames = new LinkedBlockingQueue<>();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();

    /** Answers pings by itself. */
    volatile boolean pongs = true;

    /** Answers a goodbye by itself. */
    volatile boolean leaving;

    Peer(Socket socket) {
      this.socket = socket;
      start("scripted peer", this::read);
    }

    private void read() {
      try {
        BufferedReader in =
            new BufferedReader(
                new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
          Map<String, Object> frame = Json.asObject(Json.parse(line));
          Object op = frame.get("do");
          if (("ping".equals(op) && pongs) || ("close".equals(op) && leaving)) ok(frame);
          else frames.add(frame);
        }
      } catch (IOException e) {
        // It was cut.
      }
      ended.complete(null);
      frames.add(END);
    }

    Map<String, Object> next() throws InterruptedException {
      Map<String, Object> frame = frames.poll(PATIENCE, TimeUnit.SECONDS);
      assertNotNull(frame, "a frame of the client");
      if (frame == END) fail("the client closed the connection");
      return frame;
    }

    /** The next frame, which must be of this operation. */
    Map<String, Object> next(String op) throws InterruptedException {
      Map<String, Object> frame = next();
      assertEquals(op, frame.get("do"), frame::toString);
      return frame;
    }

    void awaitEnd() throws InterruptedException {
      within("the client closes the connection", ended);
    }

    int unread() {
      return frames.size();
    }

    @SafeVarargs
    final void send(Map<String, Object>... sent) {
      StringBuilder text = new StringBuilder();
      for (Map<String, Object> f : sent) {
        Json.write(text, f);
        text.append('\n');
      }
      raw(text.toString().getBytes(StandardCharsets.UTF_8));
    }

    synchronized void raw(byte[] bytes) {
      try {
        OutputStream out = socket.getOutputStream();
        out.write(bytes);
        out.flush();
      } catch (IOException e) {
        // The client is gone, which is what it notices first.
      }
    }

    void cut() {
      try {
        socket.close();
      } catch (IOException e) {
        throw new AssertionError(e);
      }
    }

    void hello() throws InterruptedException {
      assertEquals(1L, next().get("latchkey"));
      send(frame("latchkey", 1, "features", List.of(), "server", "scripted", "durability", "x"));
    }

    /** Answers hello and open. */
    Map<String, Object> greet(String session, Object... more) throws InterruptedException {
      hello();
      Map<String, Object> open = next("open");
      Map<String, Object> answer = frame("n", open.get("n"), "ok", true, "session", session);
      answer.put("grace", open.getOrDefault("grace", 3000L));
      answer.put("elapsed", 0);
      answer.putAll(frame(more));
      send(answer);
      return open;
    }

    Map<String, Object> greet() throws InterruptedException {
      return greet("S1");
    }

    /** Answers an acquire with a grant. */
    void grant(Map<String, Object> acquire, Object token, Object... more) {
      Map<String, Object> answer =
          frame("n", acquire.get("n"), "ok", true, "id", acquire.get("id"));
      if (acquire.get("keys") instanceof List<?> keys) {
        List<Object> tokens = new ArrayList<>();
        for (int i = 0; i < keys.size(); i++) tokens.add((Long) token + i);
        answer.putAll(frame("keys", keys, "tokens", tokens));
      } else {
        answer.put("key", acquire.get("key"));
        if (!"absent".equals(token)) answer.put("token", token);
      }
      if (acquire.containsKey("forever")) answer.put("forever", true);
      else answer.putAll(frame("ttl", acquire.get("ttl"), "remaining", acquire.get("ttl")));
      answer.putAll(frame("elapsed", 0, "waited", 0));
      answer.putAll(frame(more));
      send(answer);
    }

    /** Answers a renewal. */
    void renewed(Map<String, Object> renew, Hold hold, long ttl, long remaining) {
      send(
          frame(
              "n",
              renew.get("n"),
              "ok",
              true,
              "id",
              hold.id(),
              "key",
              hold.key(),
              "token",
              17,
              "ttl",
              ttl,
              "elapsed",
              0,
              "remaining",
              remaining,
              "waited",
              0));
    }

    void ok(Map<String, Object> request) {
      send(frame("n", request.get("n"), "ok", true));
    }

    void fails(Map<String, Object> request, String code) {
      send(frame("n", request.get("n"), "ok", false, "code", code, "op", request.get("do")));
    }
  }

  /** A clock that can be set forward, as a process finds it that was stopped. */
  static final class Shifted implements Clock {
    private final Clock real = SystemClock.SHARED;
    private volatile long shift;

    void shift(Duration by) {
      shift += by.toNanos();
    }

    @Override
    public long now() {
      return real.now() + shift;
    }

    @Override
    public long sleepUntil(long instant) {
      return real.sleepUntil(instant - shift);
    }

    @Override
    public long toNanoTime(long instant) {
      return real.toNanoTime(instant - shift);
    }
  }
}
