package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.breach;
import static io.github.latchkeygo.LatchkeyException.refuse;
import static io.github.latchkeygo.LatchkeyException.unavailable;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.Deadlines.Grant;
import io.github.latchkeygo.LatchkeyException.Details;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.BiConsumer;

/** The session of a client over connections that break: section 7 of the protocol. */
final class Session implements Link.Owner {
  private static final long FIRST_PAUSE = 20 * Deadlines.MILLI;
  private static final long LONGEST_PAUSE = 1000 * Deadlines.MILLI;

  /** What a connection must live for the pauses to start small again. */
  private static final long SETTLED_LIFE = 100 * Deadlines.MILLI;

  /** Breaches of the protocol in a row after which callers are told rather than kept waiting. */
  private static final int FOULS = 3;

  /** Between pings when there is no grace that would say. */
  private static final long IDLE_PING = 5000 * Deadlines.MILLI;

  private static final SecureRandom RANDOM = new SecureRandom();
  private static final byte[] pool = new byte[16 * 64];
  private static int drawn = pool.length;

  /** What is asked of the broker when a connection is new, until it answers. */
  private record Greeting(long n, long sent, boolean resume, List<Grant> parts) {}

  /** A watch, and what to ask for to have it again. */
  private record Watching(Watch watch, Map<String, Object> fields) {}

  final Loop loop;
  final Callbacks callbacks;
  private final ConnectOptions options;
  private final String address;
  private final Link.Target target;
  private final String host;

  // All of it is behind the loop's lock.
  private final Map<Long, Call> calls = new LinkedHashMap<>();
  private final Map<String, Hold> holds = new LinkedHashMap<>();
  private final Set<String> waiting = new HashSet<>(); // ids of acquires
  private final Map<Long, Watching> watches = new LinkedHashMap<>();
  private long lastN;

  private Link link;
  private boolean ready; // the session is open on the link
  private long linkedAt;
  private boolean greetedBack; // the broker has said hello on this connection
  private Greeting greeting;
  private int greetFouls;
  private int adrift; // resumes that were sent and not answered
  private long pauseNext;
  private LatchkeyException trouble; // why there is no connection
  private long patient; // until when calls that cannot wait are kept without one

  private String id = ""; // empty while there is no session at the broker
  private boolean opened;
  private long grace;
  private long until = Deadlines.NEVER;

  private Call probe; // the ping that is not answered
  private boolean heard; // something came since the last tick
  private boolean heardAtVerdict;
  private final Loop.Alarm attempt; // bounds an attempt to connect, and the pause before it
  private final Loop.Alarm pinger;
  private final Loop.Alarm verdict; // ends a silent connection, after what has come was read
  private final Loop.Alarm reaper; // the session's deadline
  private final Loop.Alarm overdue; // gives calls up without a connection

  private CompletableFuture<Void> first = new CompletableFuture<>();
  private boolean closing;
  private CompletableFuture<Void> farewell; // ends the wait for the goodbye's answer
  private final CompletableFuture<Void> closed = new CompletableFuture<>();
  private ServerInfo server = new ServerInfo("", "", "");

  Session(ConnectOptions options, String address, String host) throws IOException {
    this.options = options;
    this.address = address;
    this.target = Link.Target.parse(address);
    this.host = host;
    this.grace = options.grace;
    this.loop = new Loop(options.clock, options.name);
    this.callbacks = new Callbacks(options.name, this::callbackThrew);
    this.attempt = loop.alarm(this::attemptDue);
    this.pinger = loop.alarm(this::ping);
    this.verdict = loop.alarm(this::judgeSilence);
    this.reaper = loop.alarm(this::reap);
    this.overdue = loop.alarm(this::giveUpOverdue);
  }

  /** 128 random bits, drawn from the system for many ids at once. */
  static synchronized String randomId() {
    if (drawn == pool.length) {
      RANDOM.nextBytes(pool);
      drawn = 0;
    }
    drawn += 16;
    return HexFormat.of().formatHex(pool, drawn - 16, drawn);
  }

  long now() {
    return loop.clock.now();
  }

  /** The deadline of the session. */
  long until() {
    return until;
  }

  boolean connected() {
    loop.enter();
    try {
      return ready;
    } finally {
      loop.exit();
    }
  }

  ServerInfo server() {
    loop.enter();
    try {
      return server;
    } finally {
      loop.exit();
    }
  }

  // Connecting.

  /** Makes the first connection and opens the session: one attempt. */
  CompletableFuture<Void> open() {
    loop.thread.start();
    loop.enter();
    try {
      CompletableFuture<Void> opening = first;
      connect();
      return opening;
    } finally {
      loop.exit();
    }
  }

  private void refuseOpen(LatchkeyException error) {
    CompletableFuture<Void> opening = first;
    first = null;
    closing = true;
    if (link != null) link.drop();
    link = null;
    finish();
    opening.completeExceptionally(error);
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
    attempt.set(now() + patience);
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
    greeting = new Greeting(++lastN, now(), resume, new ArrayList<>());
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
    heard = true;
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
    if (ready) take(from, reply);
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
        loseSession();
        if (farewell != null) farewell.complete(null); // there is nobody to say goodbye to
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
    long elapsed = Wire.whole(body, "elapsed", 0);
    List<Grant> leases = new ArrayList<>(Wire.leases(body, elapsed));
    for (Grant p : g.parts) {
      leases.add(
          new Grant(
              p.id(),
              p.keys(),
              p.tokens(),
              p.ttl(),
              elapsed,
              p.remaining(),
              p.waited(),
              p.detached()));
    }
    long granted = Math.min(Wire.whole(body, "grace", grace), Limits.MAX_HOUR);
    boolean again = opened;
    if (!g.resume) {
      grace = granted;
      adrift = 0;
    }
    id = named;
    opened = true;
    linkedAt = now();
    greetFouls = 0;
    trouble = null;
    attempt.clear();
    overdue.clear();
    if (g.resume) {
      // A goodbye ends what is listed, except what was detached to last.
      if (!closing) reconcile(leases, g.sent);
      proof(g.sent);
    } else {
      // What was held in an earlier session was told lost before this, so that the deadline of
      // this one makes nothing look safe.
      until = Deadlines.session(g.sent, grace);
      reaper.hasten(until);
    }
    if (again) {
      log(
          Level.INFO,
          "connected to the broker again" + (g.resume ? ", session resumed" : ""),
          null);
    }
    ready = true; // what was added until now is sent by the next
    sendAgain(to, !g.resume);
    probe = null;
    pinger.set(now() + pingEvery());
    if (first != null) first.complete(null);
    first = null;
  }

  @Override
  public void linkDown(Link from, LatchkeyException error) {
    if (from != link) return;
    boolean wasReady = ready;
    boolean takenOver = error.code().equals("session_lost") && !id.isEmpty();
    // A takeover, and a part of the answer, tell that the broker came to it.
    if (greeting != null && greeting.resume && greeting.parts.isEmpty() && !takenOver) adrift++;
    greeting = null;
    link = null;
    loop.use(null);
    ready = false;
    pinger.clear();
    verdict.clear();
    attempt.clear();
    if (farewell != null) {
      // The next one says goodbye if it comes in time.
      if (wasReady || id.isEmpty() || (takenOver && !excuse())) farewell.complete(null);
      else tryAgain();
      return;
    }
    if (first != null) {
      String reason = "no broker reached at " + address + ": " + error.reason();
      boolean away = error.code().equals("unavailable") && error.op().isEmpty();
      Throwable cause = error.getCause() == null ? error : error.getCause();
      Details details = Details.of("connect", "").reason(reason).cause(cause);
      refuseOpen(
          away ? LatchkeyException.of("unavailable", details) : error.describe("connect", ""));
      return;
    }
    if (closing) return;
    trouble = error;
    boolean foul = error.code().equals("protocol");
    if (wasReady && now() - linkedAt >= SETTLED_LIFE) pauseNext = 0;
    if (wasReady || takenOver) { // which may be told in place of the answer to the open
      broken(error, foul, takenOver && !excuse());
    } else if (foul && ++greetFouls >= FOULS) {
      greetFouls = 0;
      for (Call call : new ArrayList<>(calls.values())) giveUp(call);
    }
    tryAgain();
  }

  private void tryAgain() {
    long pause = pauseNext;
    pauseNext = Math.min(Math.max(2 * pause, FIRST_PAUSE), LONGEST_PAUSE);
    // Between half of a pause and all of it, so that many clients do not come back in step.
    attempt.set(now() + pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2 + 1));
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

  /** Adjusts everything to having no connection. */
  private void broken(LatchkeyException error, boolean foul, boolean takenOver) {
    probe = null;
    patient = until == Deadlines.NEVER ? now() + Limits.DEFAULT_GRACE * Deadlines.MILLI : until;
    if (takenOver) {
      // Another connection resumed it: its holds are that one's now, and are not taken back.
      for (Call call : new ArrayList<>(calls.values())) {
        if (call.is("list") || call.is("stats") || call.is("watch")) continue;
        reject(
            call, LatchkeyException.of("session_lost", "another connection resumed the session"));
      }
      loseSession();
    }
    for (Call call : new ArrayList<>(calls.values())) {
      if (call.is("ping")) drop(call);
      if (!call.wasSent()) continue;
      call.again = true;
      if (foul && !call.told && ++call.fouls >= FOULS) giveUp(call);
    }
    if (grace <= 0) loseSession(); // it ended with its connection
    log(Level.WARNING, "the connection to the broker broke", error);
    for (Hold hold : new ArrayList<>(holds.values())) {
      if (!hold.isDetached()) {
        troubled(hold, unavailable("the connection to the broker broke", error));
      }
    }
    for (Call call : calls.values()) overdue.hasten(due(call));
  }

  /** Takes the end of the session at the broker: holds are lost, what waits is kept. */
  private void loseSession() {
    if (id.isEmpty()) return;
    id = "";
    log(Level.WARNING, "the broker ended the session, with " + holds.size() + " holds", null);
    for (Call call : new ArrayList<>(calls.values())) loseCall(call);
    for (Hold hold : new ArrayList<>(holds.values())) {
      if (!hold.isDetached()) hold.lose("session_lost", "the broker ended the session", null);
    }
  }

  /** Settles a call about a hold of the session that is gone. */
  private void loseCall(Call call) {
    Answer none = new Answer(Map.of(), call.start);
    switch (call.op) {
      case "acquire" -> {
        if (!call.abandoned) return;
        drop(call);
        // The end released it, but for a grant that outlives it.
        if (call.again && call.flag("detach")) ours("release", Map.of("id", call.id()));
      }
      case "cancel", "unwatch" -> resolve(call, none);
      case "release", "renew", "detach" -> {
        if (call.hold == null || call.hold.isDetached()) return; // it outlives this session
        if (call.is("release") && call.hold.cause() == null) {
          resolve(call, none); // if it was not carried out, the end did the same
        } else {
          reject(call, LatchkeyException.of("session_lost", "the session ended, the hold with it"));
        }
      }
      default -> {}
    }
  }

  /** Compares what is held here with what the broker says after a resume. */
  private void reconcile(List<Grant> leases, long sent) {
    Map<String, Grant> listed = new LinkedHashMap<>();
    for (Grant grant : leases) listed.put(grant.id(), grant);
    Set<Object> wanted = new HashSet<>(); // a call that is not answered is about it
    for (Call call : calls.values()) wanted.add(call.fields.get("id"));
    for (Hold hold : new ArrayList<>(holds.values())) {
      hold.sweep();
      if (hold.cause() != null) continue; // it is given back
      wanted.add(hold.id());
      Grant grant = listed.get(hold.id());
      if (grant != null && hold.isAllOf(grant)) hold.resumed(grant, sent);
      else hold.lose("forced", "it ended while the connection was broken", null);
    }
    for (String held : listed.keySet()) {
      if (!wanted.contains(held)) ours("release", Map.of("id", held));
    }
  }

  /** Sends everything that has no answer, in the old order. */
  private void sendAgain(Link to, boolean fresh) {
    for (Map.Entry<Long, Watching> e : watches.entrySet()) {
      calls.computeIfAbsent(e.getKey(), n -> watchAgain(n, e.getValue()));
    }
    for (Call call : new ArrayList<>(calls.values())) {
      if (call.abandoned) {
        drop(call); // its cancel follows
        continue;
      }
      if (fresh && call.again && call.is("acquire") && call.flag("detach")) {
        // A grant that nobody was told of would be in the way until its ttl.
        to.send(Requests.encode(++lastN, "release", Map.of("id", call.id())));
      }
      transmit(to, call);
    }
  }

  // Calls.

  private static void nothing(Answer answer, LatchkeyException error) {}

  /** Asks for a lease. */
  Call acquire(Map<String, Object> fields, AcquireOptions o) {
    Requests.check("acquire", fields);
    loop.enter();
    try {
      Call call = new Call(++lastN, "acquire", fields, now(), Session::nothing);
      call.options = o;
      call.granted = new CompletableFuture<>();
      call.fromCallback = callbacks.isCurrent();
      String named = call.id();
      if (holds.containsKey(named) || waiting.contains(named)) {
        throw refuse(
                "this client holds, or waits, under the same id; leave it out for one of its own")
            .describe("acquire", call.key());
      }
      submit(call);
      waiting.add(named);
      return call;
    } finally {
      loop.exit();
    }
  }

  /** Takes a request back whose caller gave up. What was granted meanwhile is released. */
  void abandon(Call call) {
    loop.enter();
    try {
      if (!calls.containsKey(call.n) || call.abandoned) {
        call.granted.thenAccept(Hold::releaseInternal);
        return;
      }
      if (!call.wasSent()) {
        reject(call, cancelled(call));
        return;
      }
      call.abandoned = true;
      // The cancel stays on its way also when nobody waits for its answer any more.
      Loop.Alarm limit =
          loop.alarm(() -> end(call, null, null, unknown(call, "no answer to the cancel")));
      limit.set(now() + Limits.CANCEL_WAIT * Deadlines.MILLI);
      Call cancel =
          new Call(
              ++lastN,
              "cancel",
              Map.of("id", call.id()),
              now(),
              (answer, error) -> {
                limit.clear();
                drop(call);
                LatchkeyException end =
                    error == null
                        ? cancelled(call)
                        : unknown(call, "the cancel failed: " + error.getMessage());
                end(call, null, null, end);
              });
      ours(cancel);
    } finally {
      loop.exit();
    }
  }

  private static LatchkeyException cancelled(Call call) {
    return LatchkeyException.of(
        "cancelled",
        Details.of("acquire", call.key()).reason("the caller gave up; nothing is held or queued"));
  }

  private static LatchkeyException unknown(Call call, String reason) {
    return LatchkeyException.of(
        "unknown",
        Details.of("acquire", call.key()).reason(reason + "; a grant ends with its ttl"));
  }

  /** Runs one command. */
  CompletableFuture<Answer> command(String op, Map<String, Object> fields, Hold hold) {
    CompletableFuture<Answer> out = new CompletableFuture<>();
    Requests.check(op, fields);
    String key = hold != null ? hold.key() : fields.get("key") instanceof String s ? s : "";
    loop.enter();
    try {
      Call call =
          new Call(
              ++lastN,
              op,
              fields,
              now(),
              (answer, error) -> {
                loop.defer(
                    () -> {
                      if (error == null) out.complete(answer);
                      else out.completeExceptionally(error.describe(op, key));
                    });
              });
      call.hold = hold;
      submit(call);
    } catch (LatchkeyException e) {
      out.completeExceptionally(e.describe(op, key));
    } finally {
      loop.exit();
    }
    return out;
  }

  /** Begins a watch; the future completes when the broker has it. */
  CompletableFuture<Watch> watch(Map<String, Object> fields, int buffer) {
    Requests.check("watch", fields);
    CompletableFuture<Watch> out = new CompletableFuture<>();
    loop.enter();
    try {
      if (watches.size() >= Limits.MAX_WATCHES) {
        throw refuse("at most " + Limits.MAX_WATCHES + " watches of a client (MaxWatches)")
            .describe("watch", "");
      }
      long n = ++lastN;
      Watch watch = new Watch(buffer, () -> unwatch(n));
      submit(
          new Call(
              n,
              "watch",
              fields,
              now(),
              (answer, error) -> {
                if (error != null) {
                  out.completeExceptionally(error.describe("watch", ""));
                  return;
                }
                watches.put(n, new Watching(watch, fields));
                // Whoever asked may have gone.
                if (!out.complete(watch)) unwatch(n);
              }));
      return out;
    } finally {
      loop.exit();
    }
  }

  /** The call that begins a watch again on another connection. */
  private Call watchAgain(long n, Watching w) {
    Call call =
        new Call(
            n,
            "watch",
            w.fields,
            now(),
            (answer, error) -> {
              if (error == null) {
                w.watch.push(WatchEvent.GAP);
                return;
              }
              w.watch.end(error, false);
              watches.remove(n);
            });
    call.ours = true;
    return call;
  }

  private void unwatch(long n) {
    loop.enter();
    try {
      if (watches.remove(n) == null || closing) return;
      Call call = calls.get(n);
      if (call != null) drop(call);
      // Without a connection there is nothing to end: the next one does not begin it.
      if (ready) ours("unwatch", Map.of("watch", n));
    } finally {
      loop.exit();
    }
  }

  private void ours(String op, Map<String, Object> fields) {
    ours(new Call(++lastN, op, fields, now(), Session::nothing));
  }

  /** Sends a call that is the session's own. */
  private void ours(Call call) {
    call.ours = true;
    calls.put(call.n, call);
    if (ready && link != null) transmit(link, call);
  }

  /** Sends a call, keeps it for the next connection, or throws. */
  private void submit(Call call) {
    if (closing) throw closedError(call.op);
    if (calls.size() >= Limits.MAX_IN_FLIGHT) {
      throw refuse(calls.size() + " requests have no answer yet, no more are allowed (MaxInFlight)")
          .describe(call.op, "");
    }
    Link to = ready ? link : null;
    if (to == null && !call.waits() && call.start >= patient) {
      throw LatchkeyException.of(
          "unavailable", Details.of(call.op, "").reason(away()).cause(trouble));
    }
    if (to != null && to.unsent() > Limits.MAX_UNSENT_BYTES) {
      throw unavailable("the broker does not read what is sent (MaxUnsent)", null);
    }
    // Nothing else can grow beyond a frame.
    if (call.fields.containsKey("keys") || call.fields.containsKey("declared")) {
      Requests.checkFrame(Requests.encode(call.n, call.op, call.fields), Limits.RESEND_ROOM);
    }
    calls.put(call.n, call);
    if (to != null) transmit(to, call);
    else overdue.hasten(due(call));
  }

  private String away() {
    return "the broker at " + address + " cannot be reached";
  }

  private void transmit(Link to, Call call) {
    long now = now();
    Map<String, Object> fields = call.fields;
    long age = (now - call.start) / Deadlines.MILLI;
    if (call.is("acquire") && age >= 1) {
      fields = new HashMap<>(fields);
      fields.put("waited", age);
      fields.computeIfPresent("wait", (name, wait) -> Math.max((Long) wait - age, 1));
    }
    call.sent = now;
    to.send(Requests.encode(call.n, call.op, fields));
  }

  /** Ends a call for its caller. */
  private void end(Call call, Answer answer, Hold hold, LatchkeyException error) {
    if (call.granted == null) call.done.done(answer, error);
    else loop.defer(() -> call.tell(hold, error));
  }

  private void drop(Call call) {
    calls.remove(call.n);
    if (call.granted != null) waiting.remove(call.id());
  }

  private void resolve(Call call, Answer answer) {
    drop(call);
    end(call, answer, null, null);
  }

  private void reject(Call call, LatchkeyException error) {
    drop(call);
    end(call, null, null, error);
  }

  /** Until when a call is kept without a connection. */
  private long due(Call call) {
    if (call.ours) return Deadlines.NEVER;
    if (!call.waits()) return patient;
    return call.fields.get("wait") instanceof Long wait
        ? call.start + wait * Deadlines.MILLI
        : Deadlines.NEVER;
  }

  private void giveUpOverdue() {
    if (ready) return;
    long now = now();
    for (Call call : new ArrayList<>(calls.values())) if (due(call) <= now) giveUp(call);
    for (Call call : calls.values()) overdue.hasten(due(call));
  }

  /** Answers a call while there is no connection. What was sent has an unknown outcome. */
  private void giveUp(Call call) {
    if (call.ours) return;
    boolean foul = trouble != null && trouble.code().equals("protocol");
    Details why =
        Details.of("", "")
            .reason(away() + (foul ? ": " + trouble.getMessage() : ""))
            .cause(trouble);
    if (!call.wasSent()) {
      String code = foul ? "protocol" : call.waits() ? "timeout" : "unavailable";
      reject(call, LatchkeyException.of(code, why));
      return;
    }
    reject(call, LatchkeyException.of("unknown", why));
    // The next connection undoes it.
    if (call.is("acquire") && !call.abandoned) ours("cancel", Map.of("id", call.id()));
  }

  // Answers.

  private void take(Link from, Wire.Reply reply) {
    Call call = calls.get(reply.n());
    switch (reply.kind()) {
      case LOST -> noticed(from, reply.body());
      case EVENT -> {
        Watching w = watches.get(reply.n());
        if (w != null) w.watch.push(Wire.event(reply.body()));
      }
      case QUEUED -> {
        if (call != null) queued(call, reply.body());
      }
      case OK -> {
        if (call != null) succeeded(call, reply.body());
      }
      case FAILED -> {
        if (call != null) failed(from, call, Wire.failure(reply.body()));
      }
      default -> {}
    }
  }

  private void queued(Call call, Map<String, Object> body) {
    if (call.told) return; // what is sent again is queued again
    call.told = true;
    if (call.options == null || call.options.onQueued == null || call.abandoned) return;
    Queued queued = Wire.queued(body);
    CompletableFuture<Void> told = new CompletableFuture<>();
    call.callback = told;
    Runnable tell = () -> call.options.onQueued.accept(queued);
    if (call.fromCallback) {
      options.executor.execute(() -> callbacks.guard("onQueued", tell, told));
    } else {
      callbacks.run("onQueued", tell, told);
    }
  }

  private void succeeded(Call call, Map<String, Object> body) {
    long sent = call.wasSent() ? call.sent : call.start;
    if (call.granted == null) {
      if (call.is("ping")) {
        probe = null;
        proof(sent);
      }
      resolve(call, new Answer(body, sent));
      return;
    }
    Grant grant = Wire.grant(body); // a breach leaves the call to be asked again
    if (!grant.id().equals(call.id()) || !sameKeys(grant.keys(), call.keys())) {
      throw breach("a grant is of something else than was asked for");
    }
    if (call.abandoned) return; // it crossed the cancel, which releases it
    drop(call);
    Hold hold = new Hold(this, grant, sent, call.options);
    if (now() >= hold.deadline()) {
      // Giving it back is kinder than letting the key idle until the broker ends it.
      ours("release", Map.of("id", grant.id()));
      end(
          call,
          null,
          null,
          LatchkeyException.of(
              "expired", "the grant arrived when its time was already up; it was given back"));
      return;
    }
    holds.put(hold.id(), hold);
    hold.arm();
    reaper.hasten(until);
    end(call, null, hold, null);
  }

  private static boolean sameKeys(List<String> granted, List<?> asked) {
    return granted.size() == asked.size() && new HashSet<Object>(granted).containsAll(asked);
  }

  private void failed(Link from, Call call, LatchkeyException error) {
    boolean gone = error.code().equals("session_lost");
    boolean retry = gone || (error.code().equals("closed") && call.waits());
    if (call.is("ping")) {
      drop(call);
      probe = null;
      if (!gone) {
        from.fail(error); // a broker that closes; the next one will say
        return;
      }
    } else if (call.granted != null && !call.abandoned && retry) {
      // Nothing was done, and nothing is lost by asking again once there is a connection.
      call.unsend();
    } else if (isDone(call, error)) {
      resolve(call, new Answer(Map.of(), call.start));
    } else if (call.abandoned && !error.code().equals("unknown")) {
      reject(call, cancelled(call));
    } else {
      reject(call, error);
    }
    if (gone) lostSession(from);
  }

  /** Whether a failure says that the first sending had done it. */
  private static boolean isDone(Call call, LatchkeyException error) {
    if (!error.code().equals("not_held") && !error.code().equals("over")) return false;
    if (call.is("cancel")) return true;
    return call.is("release") && call.again && (call.hold == null || call.hold.cause() == null);
  }

  private void noticed(Link from, Map<String, Object> body) {
    String named = Wire.text(body, "id");
    if (named.isEmpty()) {
      lostSession(from);
      return;
    }
    Hold hold = holds.get(named);
    String key = Wire.text(body, "key");
    OptionalLong token = Wire.token(body.get("token"));
    if (hold == null || (!key.isEmpty() && !hold.holds(key, token))) return;
    String code = Wire.text(body, "lost");
    String by = Wire.text(body, "by");
    String reason =
        switch (code) {
          case "expired" -> "its time ran out";
          case "forced" -> "an administrator took it away";
          case "not_held" -> "it was released by its id from elsewhere";
          default -> "the broker ended it";
        };
    hold.lose(code, by.isEmpty() ? reason : reason + ": " + by, null);
  }

  /** The broker's word that the session is gone; the next one gets its own connection. */
  private void lostSession(Link from) {
    loseSession();
    from.fail(LatchkeyException.of("session_lost", "the broker ended the session"));
  }

  // Signs of life.

  /** The broker had a sign of life that was sent then. */
  private void proof(long sent) {
    long proven = Deadlines.session(sent, grace);
    if (proven <= until && until != Deadlines.NEVER) return;
    sweep();
    until = proven;
  }

  private long pingEvery() {
    return grace > 0 ? Math.max(grace * Deadlines.MILLI / 3, Deadlines.MILLI) : IDLE_PING;
  }

  private void ping() {
    if (!ready || link == null) return;
    long now = now();
    if (probe == null) {
      probe = new Call(++lastN, "ping", Map.of(), now, Session::nothing);
      ours(probe);
    } else if (!heard || (grace > 0 && now - probe.sent >= grace * Deadlines.MILLI)) {
      // A process that stood still has not looked yet at what came: let it read first.
      heardAtVerdict = heard;
      verdict.set(now);
    }
    heard = false;
    pinger.set(now + pingEvery());
  }

  private void judgeSilence() {
    if (link == null || probe == null || (!heardAtVerdict && heard)) return;
    link.fail(unavailable("the broker answers no ping", null));
  }

  /** Ends what is past its deadline, when the session's has passed. */
  private void reap() {
    sweep();
  }

  private void sweep() {
    for (Hold hold : new ArrayList<>(holds.values())) hold.sweep();
    if (!holds.isEmpty() && until > now()) reaper.set(until);
  }

  // For holds.

  /** The hold has ended on this side. */
  void forget(Hold hold) {
    holds.remove(hold.id(), hold);
  }

  void troubled(Hold hold, LatchkeyException error) {
    log(Level.WARNING, "the lease on " + hold.key() + " is not confirmed; trying again", error);
    var own = hold.options().onTroubled;
    var all = options.onTroubled;
    if (own != null) callbacks.run("onTroubled", () -> own.accept(hold, error), null);
    if (all != null) callbacks.run("onTroubled", () -> all.accept(hold, error), null);
  }

  void callbackThrew(String what, RuntimeException e) {
    callbacks.run("a logger", () -> logThrown(what, e), null);
  }

  private void logThrown(String what, RuntimeException e) {
    if (options.logger != null)
      options.logger.log(Level.WARNING, "latchkey: " + what + " threw", e);
  }

  /** Hands an outcome on by the executor, so that what depends on it cannot be in the way here. */
  <T> void publish(CompletableFuture<T> future, BiConsumer<T, LatchkeyException> take) {
    future.whenComplete(
        (value, failure) -> {
          Runnable handOn = () -> take.accept(value, Client.unwrap(failure));
          try {
            options.executor.execute(handOn);
          } catch (RejectedExecutionException e) {
            callbacks.run("a future", handOn, null);
          }
        });
  }

  <T> CompletableFuture<T> published(CompletableFuture<T> future) {
    CompletableFuture<T> out = new CompletableFuture<>();
    publish(
        future,
        (value, error) -> {
          if (error == null) out.complete(value);
          else out.completeExceptionally(error);
        });
    return out;
  }

  // The end.

  /** Says goodbye, which releases what is not detached; completes when nothing is left. */
  CompletableFuture<Void> close() {
    loop.enter();
    try {
      if (closing) return closed;
      closing = true;
      pinger.clear();
      verdict.clear();
      reaper.clear();
      overdue.clear();
      for (Hold hold : new ArrayList<>(holds.values())) {
        hold.lose("closed", "the client was closed", null);
      }
      for (Call call : new ArrayList<>(calls.values())) {
        boolean lasting = call.wasSent() && call.is("acquire") && call.flag("detach");
        String reason = "the client was closed before the answer; a grant lasts until its ttl";
        reject(call, lasting ? LatchkeyException.of("unknown", reason) : closedError(call.op));
      }
      for (Watching w : watches.values()) w.watch.end(closedError("watch"), false);
      watches.clear();
      farewell = new CompletableFuture<>();
      farewell.thenRun(this::finish);
      if (id.isEmpty()) {
        farewell.complete(null); // there is nobody to say goodbye to
        return closed;
      }
      Loop.Alarm limit =
          loop.alarm(
              () -> {
                log(Level.WARNING, "no answer to the goodbye; holds end with the grace", null);
                farewell.complete(null);
              });
      limit.set(now() + Limits.CANCEL_WAIT * Deadlines.MILLI);
      ours(new Call(++lastN, "close", Map.of(), now(), (a, e) -> farewell.complete(null)));
      // Without a connection, the next one says it if it comes in time: others may wait for what
      // was held.
      if (link == null) attempt.set(now());
      return closed;
    } finally {
      loop.exit();
    }
  }

  /** Lets the threads end. */
  private void finish() {
    if (link != null) link.drop();
    link = null;
    ready = false;
    loop.use(null);
    loop.stop();
    callbacks.stop();
    closed.complete(null);
  }

  /** Waits for the threads to end, but not for the one that asks. */
  void join(long millis) throws InterruptedException {
    if (Thread.currentThread() != loop.thread) loop.thread.join(millis);
    if (!callbacks.isCurrent()) callbacks.awaitEnd(millis);
  }

  private static LatchkeyException closedError(String op) {
    return LatchkeyException.of("closed", Details.of(op, "").reason("the client was closed"));
  }

  private void log(Level level, String message, Throwable error) {
    if (options.logger == null) return;
    // Without the stack, which would show this client's thread and nothing of the cause.
    String text = "latchkey: " + message + (error == null ? "" : ": " + error.getMessage());
    Runnable tell =
        () -> {
          options.logger.log(level, text + " (" + address + ")");
          if (error != null) options.logger.log(Level.DEBUG, "latchkey: " + message, error);
        };
    callbacks.run("a logger", tell, null);
  }
}
