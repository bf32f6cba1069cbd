package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;

import io.github.latchkeygo.Call.Answer;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * The session of a client over connections that break. What it consists of does the work; here is
 * what they owe one another when something happens.
 *
 * <p>All of them have the state of one session, behind the lock of its loop.
 */
final class Session implements Connector.Owner {
  final Loop loop;
  final Callbacks callbacks;
  private final Calls calls;
  private final Holds holds;
  private final Watches watches;
  private final Answers answers;
  private final Pulse pulse;
  private final Connector connector;

  private boolean closing;
  private final CompletableFuture<Void> farewell = new CompletableFuture<>(); // waited for at most
  private final CompletableFuture<Void> closed = new CompletableFuture<>();

  Session(ConnectOptions options, String address, String host) throws IOException {
    Link.Target target = Link.Target.parse(address);
    this.loop = new Loop(options.clock, options.name);
    this.callbacks = new Callbacks(options, address);
    this.calls = new Calls(loop, address);
    this.holds = new Holds(loop, calls, callbacks);
    this.watches = new Watches(loop, calls);
    this.answers = new Answers(loop, calls, holds, callbacks);
    this.pulse = new Pulse(loop, calls);
    this.connector = new Connector(loop, options, target, address, host, calls::number, this);
  }

  /** Makes the first connection and opens the session: one attempt. */
  CompletableFuture<Void> open() {
    loop.thread.start();
    loop.enter();
    try {
      return connector.open();
    } finally {
      loop.exit();
    }
  }

  boolean connected() {
    loop.enter();
    try {
      return connector.isReady();
    } finally {
      loop.exit();
    }
  }

  ServerInfo server() {
    loop.enter();
    try {
      return connector.server();
    } finally {
      loop.exit();
    }
  }

  // What users ask.

  /** Asks for a lease. */
  Call acquire(Map<String, Object> fields, AcquireOptions o) {
    Requests.check("acquire", fields);
    loop.enter();
    try {
      String id = (String) fields.get("id");
      if (holds.has(id) || calls.awaits(id)) {
        throw refuse(
                "this client holds, or waits, under the same id; leave it out for one of its own")
            .describe("acquire", Call.key(fields));
      }
      return calls.acquire(fields, o, callbacks.isCurrent());
    } finally {
      loop.exit();
    }
  }

  /** Takes a request back whose caller gave up. What was granted meanwhile is released. */
  void abandon(Call call) {
    calls.abandon(call);
  }

  /** Runs one command that is about no hold of this client. */
  CompletableFuture<Answer> command(String op, Map<String, Object> fields) {
    return calls.command(op, fields, null);
  }

  /** Begins a watch; the future completes when the broker has it. */
  CompletableFuture<Watch> watch(Map<String, Object> fields, int buffer) {
    return watches.begin(fields, buffer);
  }

  // What happens to the connection.

  @Override
  public void opened(Connector.Opened o) {
    if (o.resumed()) {
      // A goodbye ends what is listed, except what was detached to last.
      if (!closing) holds.reconcile(o.leases(), o.sent());
      holds.proof(o.sent(), connector.grace());
    } else {
      holds.begin(o.sent(), connector.grace());
    }
    if (o.again()) {
      String how = o.resumed() ? ", session resumed" : "";
      callbacks.log(Level.INFO, "connected to the broker again" + how, null);
    }
    watches.again();
    calls.start(o.link(), !o.resumed());
    pulse.start(o.link(), connector.grace());
  }

  @Override
  public void down(LatchkeyException error) {
    pulse.stop();
    calls.stop(error);
  }

  @Override
  public void broken(LatchkeyException error, boolean takenOver) {
    if (takenOver) {
      // Another connection resumed it: its holds are that one's now, and are not taken back.
      calls.takenOver();
      sessionLost();
    }
    long until = holds.until();
    long grace = Limits.DEFAULT_GRACE * Deadlines.MILLI;
    calls.keep(until == Deadlines.NEVER ? loop.now() + grace : until);
    if (connector.grace() <= 0) sessionLost(); // it ended with its connection
    callbacks.log(Level.WARNING, "the connection to the broker broke", error);
    holds.trouble(error);
  }

  @Override
  public void hopeless() {
    calls.giveUp();
  }

  @Override
  public void sessionLost() {
    if (!connector.forget()) return;
    String with = "the broker ended the session, with " + holds.size() + " holds";
    callbacks.log(Level.WARNING, with, null);
    calls.sessionLost();
    holds.sessionLost();
  }

  /** The broker's word that the session is gone; the next one gets its own connection. */
  private void sessionLost(Link from) {
    sessionLost();
    from.fail(LatchkeyException.of("session_lost", "the broker ended the session"));
  }

  @Override
  public void refused() {
    closing = true;
    finish();
  }

  // What comes on it.

  @Override
  public void reply(Link from, Wire.Reply reply) {
    pulse.heard();
    Map<String, Object> body = reply.body();
    Call call = calls.get(reply.n());
    switch (reply.kind()) {
      case LOST -> {
        String id = Wire.text(body, "id");
        if (id.isEmpty()) sessionLost(from);
        else holds.noticed(id, body);
      }
      case EVENT -> watches.event(reply.n(), body);
      case QUEUED -> {
        if (call != null) answers.queued(call, body);
      }
      case OK -> {
        if (call != null) succeeded(call, body);
      }
      case FAILED -> {
        if (call != null) failed(from, call, Wire.failure(body));
      }
      default -> {}
    }
  }

  private void succeeded(Call call, Map<String, Object> body) {
    if (call.is("ping")) {
      pulse.answered();
      holds.proof(call.sent, connector.grace());
    }
    answers.succeeded(call, body);
  }

  private void failed(Link from, Call call, LatchkeyException error) {
    boolean gone = error.code().equals("session_lost");
    if (call.is("ping")) {
      pulse.answered();
      calls.drop(call.n);
      if (!gone) from.fail(error); // a broker that closes; the next one will say
    } else {
      answers.failed(call, error);
    }
    if (gone) sessionLost(from);
  }

  // The end.

  /** Says goodbye, which releases what is not detached; completes when nothing is left. */
  CompletableFuture<Void> close() {
    loop.enter();
    try {
      if (closing) return closed;
      closing = true;
      pulse.stop();
      holds.close();
      calls.close();
      watches.close();
      farewell.thenRun(this::finish);
      connector.leave(() -> farewell.complete(null));
      if (!farewell.isDone()) sayGoodbye();
      return closed;
    } finally {
      loop.exit();
    }
  }

  private void sayGoodbye() {
    Loop.Alarm limit =
        loop.alarm(
            () -> {
              String late = "no answer to the goodbye; holds end with the grace";
              callbacks.log(Level.WARNING, late, null);
              farewell.complete(null);
            });
    limit.set(loop.now() + Limits.CANCEL_WAIT * Deadlines.MILLI);
    // Without a connection, the next one has it sent if it comes in time.
    calls.ours("close", Map.of(), (answer, error) -> farewell.complete(null));
  }

  /** Lets the threads end. */
  private void finish() {
    connector.stop();
    loop.stop();
    callbacks.stop();
    closed.complete(null);
  }

  /** Waits for the threads to end, but not for the one that asks. */
  void join(long millis) throws InterruptedException {
    if (Thread.currentThread() != loop.thread) loop.thread.join(millis);
    if (!callbacks.isCurrent()) callbacks.awaitEnd(millis);
  }
}
