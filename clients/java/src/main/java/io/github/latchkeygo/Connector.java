package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.breach;
import static io.github.latchkeygo.LatchkeyException.unavailable;

import io.github.latchkeygo.Deadlines.Grant;
import io.github.latchkeygo.LatchkeyException.Details;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongSupplier;

/**
 * Has a connection to the broker on which the session is open, and makes it again when it breaks:
 * section 7 of the protocol. It knows the session's name, and nothing of what is done in it.
 */
final class Connector implements Link.Owner {
  private static final long FIRST_PAUSE = 20 * Deadlines.MILLI;
  private static final long LONGEST_PAUSE = 1000 * Deadlines.MILLI;

  /** What a connection must live for the pauses to start small again. */
  private static final long SETTLED_LIFE = 100 * Deadlines.MILLI;

  /** Whose connection it is. All is called under the loop's lock. */
  interface Owner {
    /** The session is open. */
    void opened(Opened session);

    /** Something came on a connection with an open session. */
    void reply(Link from, Wire.Reply reply);

    /** There is no session at the broker any more. */
    void sessionLost();

    /** There is no connection, because of this. */
    void down(LatchkeyException error);

    /** After that: the session was open on it, or is somebody else's now. There will be another. */
    void broken(LatchkeyException error, boolean takenOver);

    /** After that: what answers is no broker, again and again. */
    void hopeless();

    /** The first attempt failed, and there is none after it. */
    void refused();
  }

  /**
   * A session that is open.
   *
   * @param resumed whether it is the one from before, which has these leases
   * @param again whether there was a connection before
   * @param sent when it was asked for
   */
  record Opened(Link link, boolean resumed, boolean again, long sent, List<Grant> leases) {}

  /** What is asked of the broker when a connection is new, until it answers. */
  private record Greeting(long n, long sent, boolean resume, List<Grant> parts) {}

  private final Loop loop;
  private final ConnectOptions options;
  private final String address;
  private final Link.Target target;
  private final String host;
  private final LongSupplier numbers;
  private final Owner owner;
  private final Loop.Alarm attempt; // bounds an attempt to connect, and the pause before it

  private Link link;
  private boolean ready; // the session is open on the link
  private long linkedAt;
  private boolean greetedBack; // the broker has said hello on this connection
  private Greeting greeting;
  private int greetFouls;
  private int adrift; // resumes that were sent and not answered
  private long pauseNext;

  private String id = ""; // of the session; empty while there is none at the broker
  private boolean opened;
  private long grace;
  private ServerInfo server = new ServerInfo("", "", "");
  private CompletableFuture<Void> first = new CompletableFuture<>();
  private Runnable leaving; // the client closes: told when no goodbye is possible

  /** The numbers are those of requests. */
  Connector(
      Loop loop,
      ConnectOptions options,
      Link.Target target,
      String address,
      String host,
      LongSupplier numbers,
      Owner owner) {
    this.loop = loop;
    this.options = options;
    this.address = address;
    this.target = target;
    this.host = host;
    this.numbers = numbers;
    this.owner = owner;
    this.grace = options.grace;
    this.attempt = loop.alarm(this::attemptDue);
  }

  /** Whether the session is open on a connection. */
  boolean isReady() {
    return ready;
  }

  ServerInfo server() {
    return server;
  }

  /** Of the session, in milliseconds; 0: it ends with its connection. */
  long grace() {
    return grace;
  }

  /** Makes the first connection and opens the session: one attempt. */
  CompletableFuture<Void> open() {
    CompletableFuture<Void> opening = first;
    connect();
    return opening;
  }

  private void connect() {
    greetedBack = false;
    greeting = null;
    link = new Link(loop, this);
    loop.use(link);
    long patience = options.connectTimeout * Deadlines.MILLI;
    // Time for more than one attempt while the session lives.
    if (opened && grace > 0) {
      patience = Math.min(patience, Math.max(grace * Deadlines.MILLI / 3, 250 * Deadlines.MILLI));
    }
    attempt.set(loop.now() + patience);
    link.dial(target, options.executor);
  }

  private void attemptDue() {
    if (link == null) connect();
    else if (!ready) link.fail(unavailable("no answer from " + address + " in time", null));
  }

  @Override
  public void linkUp(Link up) {
    up.send(Wire.HELLO);
    greet(up);
  }

  private void greet(Link to) {
    boolean resume = !id.isEmpty();
    greeting = new Greeting(numbers.getAsLong(), loop.now(), resume, new ArrayList<>());
    Map<String, Object> fields = new HashMap<>();
    if (resume) {
      fields.put("resume", id);
    } else {
      fields.putAll(who(options, host));
      fields.put("grace", grace);
    }
    to.send(Requests.encode(greeting.n, "open", fields));
  }

  /** Who this is. */
  static Map<String, Object> who(ConnectOptions options, String host) {
    Map<String, Object> fields = new HashMap<>();
    if (!options.name.isEmpty()) fields.put("name", options.name);
    if (!host.isEmpty()) fields.put("host", host);
    fields.put("pid", ProcessHandle.current().pid());
    fields.put("grace", options.grace);
    return fields;
  }

  @Override
  public void linkLine(Link from, byte[] line) {
    if (from != link) return;
    if (!greetedBack) {
      server = Wire.hello(line);
      greetedBack = true;
      return;
    }
    Wire.Reply reply = Wire.reply(line);
    if (reply.kind() == Wire.Kind.FAILED && reply.n() == 0) {
      from.fail(Wire.failure(reply.body())); // the last frame of a connection
      return;
    }
    if (ready) owner.reply(from, reply);
    else greeted(from, reply);
  }

  private void greeted(Link from, Wire.Reply reply) {
    Greeting g = greeting;
    if (g == null || reply.n() != g.n) return;
    switch (reply.kind()) {
      case PART -> g.parts.addAll(Wire.leases(reply.body(), 0));
      case OK -> {
        greeting = null;
        install(from, g, reply.body());
      }
      case FAILED -> {
        greeting = null;
        LatchkeyException error = Wire.failure(reply.body());
        if (!g.resume || !error.code().equals("session_lost")) {
          from.fail(error);
          return;
        }
        owner.sessionLost();
        if (leaving != null) leaving.run();
        else if (from == link) greet(from);
      }
      default -> {}
    }
  }

  /** Puts a connection with an open session to use. */
  private void install(Link to, Greeting g, Map<String, Object> body) {
    String named = Wire.text(body, "session");
    if (named.isEmpty()) throw breach("the answer to open names no session");
    if (g.resume && !named.equals(id)) {
      throw breach("the answer to a resume names another session");
    }
    List<Grant> leases = leases(g, body);
    long granted = Math.min(Wire.whole(body, "grace", grace), Limits.MAX_HOUR);
    boolean again = opened;
    if (!g.resume) {
      grace = granted;
      adrift = 0;
    }
    id = named;
    opened = true;
    linkedAt = loop.now();
    greetFouls = 0;
    attempt.clear();
    ready = true;
    owner.opened(new Opened(to, g.resume, again, g.sent, leases));
    if (first != null) first.complete(null);
    first = null;
  }

  private static List<Grant> leases(Greeting g, Map<String, Object> body) {
    long elapsed = Wire.whole(body, "elapsed", 0);
    List<Grant> out = new ArrayList<>(Wire.leases(body, elapsed));
    for (Grant part : g.parts) out.add(part.withElapsed(elapsed)); // which is told last
    return out;
  }

  @Override
  public void linkDown(Link from, LatchkeyException error) {
    if (from != link) return;
    boolean wasReady = ready;
    boolean takenOver = error.code().equals("session_lost") && !id.isEmpty();
    // A takeover, and a part of the answer, tell that the broker came to it.
    if (greeting != null && greeting.resume && greeting.parts.isEmpty() && !takenOver) adrift++;
    greeting = null;
    release();
    attempt.clear();
    owner.down(error);
    if (leaving != null) {
      // The next one says goodbye if it comes in time.
      if (wasReady || id.isEmpty() || (takenOver && !excuse())) leaving.run();
      else tryAgain();
      return;
    }
    if (first != null) {
      refuse(error);
      return;
    }
    if (wasReady && loop.now() - linkedAt >= SETTLED_LIFE) pauseNext = 0;
    if (wasReady || takenOver) { // which may be told in place of the answer to the open
      owner.broken(error, takenOver && !excuse());
    } else if (error.code().equals("protocol") && ++greetFouls >= Calls.FOULS) {
      greetFouls = 0;
      owner.hopeless();
    }
    tryAgain();
  }

  private void refuse(LatchkeyException error) {
    String reason = "no broker reached at " + address + ": " + error.reason();
    boolean away = error.code().equals("unavailable") && error.op().isEmpty();
    Throwable cause = error.getCause() == null ? error : error.getCause();
    Details details = Details.of("connect", "").reason(reason).cause(cause);
    CompletableFuture<Void> opening = first;
    first = null;
    owner.refused();
    opening.completeExceptionally(
        away ? LatchkeyException.of("unavailable", details) : error.describe("connect", ""));
  }

  private void tryAgain() {
    long pause = pauseNext;
    pauseNext = Math.min(Math.max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE);
    // Between half of a pause and all of it, so that many clients do not come back in step.
    attempt.set(loop.now() + pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1));
  }

  /**
   * Whether a takeover of the session may be of this side's own making: an open that was sent on a
   * connection which was given up, and to which the broker came after a newer one. Each such open
   * excuses one takeover, so that somebody else who has the id prevails in the end.
   */
  private boolean excuse() {
    if (adrift == 0) return false;
    adrift--;
    return true;
  }

  /** Has the next connection open another session. False if there is none to forget. */
  boolean forget() {
    boolean had = !id.isEmpty();
    id = "";
    return had;
  }

  /**
   * From now on connects only to say goodbye; at once if there is no connection, since others may
   * wait for what was held.
   *
   * @param nobody called when there is nobody to say goodbye to, or not any more
   */
  void leave(Runnable nobody) {
    leaving = nobody;
    if (id.isEmpty()) nobody.run();
    else if (link == null) attempt.set(loop.now());
  }

  /** Breaks the connection, for good. */
  void stop() {
    if (link != null) link.drop();
    release();
  }

  private void release() {
    link = null;
    loop.use(null);
    ready = false;
  }
}
