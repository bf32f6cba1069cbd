package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.refuse;
import static io.github.latchkeygo.LatchkeyException.unavailable;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.LatchkeyException.Details;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;

/**
 * Requests that have no answer yet. They are sent on the connection of the session, kept while
 * there is none, and sent again on the next under the same numbers. What is not called by users has
 * the loop's lock.
 */
final class Calls {
  /** Breaches of the protocol in a row after which callers are told rather than kept waiting. */
  static final int FOULS = 3;

  private static final Call.Done NOTHING = (answer, error) -> {};

  private final Loop loop;
  private final String address;
  private final Map<Long, Call> calls = new LinkedHashMap<>();
  private final Set<String> waiting = new HashSet<>(); // ids of acquires
  private final Loop.Alarm overdue; // gives calls up without a connection
  private long last; // the number given last
  private Link link; // with an open session, or null
  private LatchkeyException trouble; // why there is none
  private long patient; // until when calls that cannot wait are kept without one
  private boolean closed;

  Calls(Loop loop, String address) {
    this.loop = loop;
    this.address = address;
    this.overdue = loop.alarm(this::giveUpOverdue);
  }

  /** The number of another request. */
  long number() {
    return ++last;
  }

  Call get(long n) {
    return calls.get(n);
  }

  /** Whether an acquire of this id has no answer yet. */
  boolean awaits(String id) {
    return waiting.contains(id);
  }

  /** What calls that are not answered are about, by id. */
  Set<Object> ids() {
    Set<Object> out = new HashSet<>();
    for (Call call : calls.values()) out.add(call.fields.get("id"));
    return out;
  }

  // Sending.

  /** Asks for a lease. */
  Call acquire(Map<String, Object> fields, AcquireOptions o, boolean fromCallback) {
    Call call = new Call(number(), "acquire", fields, loop.now(), NOTHING);
    call.options = o;
    call.granted = new CompletableFuture<>();
    call.fromCallback = fromCallback;
    submit(call);
    waiting.add(call.id());
    return call;
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
      limit.set(loop.now() + Limits.CANCEL_WAIT * Deadlines.MILLI);
      ours(
          "cancel",
          Map.of("id", call.id()),
          (answer, error) -> {
            limit.clear();
            drop(call.n);
            LatchkeyException end =
                error == null
                    ? cancelled(call)
                    : unknown(call, "the cancel failed: " + error.getMessage());
            end(call, null, null, end);
          });
    } finally {
      loop.exit();
    }
  }

  /** How an acquire ends whose caller gave up. */
  static LatchkeyException cancelled(Call call) {
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
      Call.Done done =
          (answer, error) ->
              loop.defer(
                  () -> {
                    if (error == null) out.complete(answer);
                    else out.completeExceptionally(error.describe(op, key));
                  });
      Call call = new Call(number(), op, fields, loop.now(), done);
      call.hold = hold;
      submit(call);
    } catch (LatchkeyException e) {
      out.completeExceptionally(e.describe(op, key));
    } finally {
      loop.exit();
    }
    return out;
  }

  /** Sends a call, keeps it for the next connection, or throws. */
  void submit(Call call) {
    if (closed) throw closed(call.op);
    if (calls.size() >= Limits.MAX_IN_FLIGHT) {
      throw refuse(calls.size() + " requests have no answer yet, no more are allowed (MaxInFlight)")
          .describe(call.op, "");
    }
    if (link == null && !call.waits() && call.start >= patient) {
      throw LatchkeyException.of(
          "unavailable", Details.of(call.op, "").reason(away()).cause(trouble));
    }
    if (link != null && link.unsent() > Limits.MAX_UNSENT_BYTES) {
      throw unavailable("the broker does not read what is sent (MaxUnsent)", null);
    }
    // Nothing else can grow beyond a frame.
    if (call.fields.containsKey("keys") || call.fields.containsKey("declared")) {
      Requests.checkFrame(Requests.encode(call.n, call.op, call.fields), Limits.RESEND_ROOM);
    }
    calls.put(call.n, call);
    if (link != null) transmit(call);
    else overdue.hasten(due(call));
  }

  /** Sends a request that is the session's own, for whose answer nobody waits. */
  Call ours(String op, Map<String, Object> fields) {
    return ours(op, fields, NOTHING);
  }

  Call ours(String op, Map<String, Object> fields, Call.Done done) {
    Call call = new Call(number(), op, fields, loop.now(), done);
    ours(call);
    return call;
  }

  /** Sends a call that is the session's own, unless it is on its way. */
  void ours(Call call) {
    call.ours = true;
    if (calls.putIfAbsent(call.n, call) == null && link != null) transmit(call);
  }

  private void transmit(Call call) {
    long now = loop.now();
    Map<String, Object> fields = call.fields;
    long age = (now - call.start) / Deadlines.MILLI;
    if (call.is("acquire") && age >= 1) {
      fields = new HashMap<>(fields);
      fields.put("waited", age);
      fields.computeIfPresent("wait", (name, wait) -> Math.max((Long) wait - age, 1));
    }
    call.sent = now;
    link.send(Requests.encode(call.n, call.op, fields));
  }

  // Settling.

  /** Ends a call for its caller. */
  void end(Call call, Answer answer, Hold hold, LatchkeyException error) {
    if (call.granted == null) call.done.done(answer, error);
    else loop.defer(() -> call.tell(hold, error));
  }

  /** Forgets a call, and tells nobody. */
  void drop(long n) {
    Call call = calls.remove(n);
    if (call != null && call.granted != null) waiting.remove(call.id());
  }

  void resolve(Call call, Answer answer) {
    drop(call.n);
    end(call, answer, null, null);
  }

  void reject(Call call, LatchkeyException error) {
    drop(call.n);
    end(call, null, null, error);
  }

  // Connections.

  boolean connected() {
    return link != null;
  }

  /**
   * Sends everything that has no answer, in the old order.
   *
   * @param fresh whether the session is another one than before
   */
  void start(Link to, boolean fresh) {
    link = to;
    trouble = null;
    overdue.clear();
    for (Call call : new ArrayList<>(calls.values())) {
      if (call.abandoned) {
        drop(call.n); // its cancel follows
        continue;
      }
      if (fresh && call.again && call.is("acquire") && call.flag("detach")) {
        // A grant that nobody was told of would be in the way until its ttl.
        to.send(Requests.encode(number(), "release", Map.of("id", call.id())));
      }
      transmit(call);
    }
  }

  /** There is no connection, because of this. */
  void stop(LatchkeyException why) {
    link = null;
    trouble = why;
  }

  /** Keeps what was sent, and until an instant also what cannot wait, for the next connection. */
  void keep(long until) {
    patient = until;
    for (Call call : new ArrayList<>(calls.values())) {
      if (call.is("ping")) drop(call.n);
      if (!call.wasSent()) continue;
      call.again = true;
      if (foul() && !call.told && ++call.fouls >= FOULS) giveUp(call);
    }
    for (Call call : calls.values()) overdue.hasten(due(call));
  }

  /** Settles calls of a session that is somebody else's now. */
  void takenOver() {
    for (Call call : new ArrayList<>(calls.values())) {
      if (call.is("list") || call.is("stats") || call.is("watch")) continue;
      reject(call, LatchkeyException.of("session_lost", "another connection resumed the session"));
    }
  }

  /** Settles calls about holds of the session that is gone; what waits is kept. */
  void sessionLost() {
    for (Call call : new ArrayList<>(calls.values())) loseCall(call);
  }

  private void loseCall(Call call) {
    Answer none = new Answer(Map.of(), call.start);
    switch (call.op) {
      case "acquire" -> {
        if (!call.abandoned) return;
        drop(call.n);
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

  // Giving up.

  /** Until when a call is kept without a connection. */
  private long due(Call call) {
    if (call.ours) return Deadlines.NEVER;
    if (!call.waits()) return patient;
    return call.fields.get("wait") instanceof Long wait
        ? call.start + wait * Deadlines.MILLI
        : Deadlines.NEVER;
  }

  private void giveUpOverdue() {
    if (link != null) return;
    long now = loop.now();
    for (Call call : new ArrayList<>(calls.values())) if (due(call) <= now) giveUp(call);
    for (Call call : calls.values()) overdue.hasten(due(call));
  }

  /** Answers all calls, because no connection is of use. */
  void giveUp() {
    for (Call call : new ArrayList<>(calls.values())) giveUp(call);
  }

  /** Answers a call while there is no connection. What was sent has an unknown outcome. */
  private void giveUp(Call call) {
    if (call.ours) return;
    Details why =
        Details.of("", "")
            .reason(away() + (foul() ? ": " + trouble.getMessage() : ""))
            .cause(trouble);
    if (!call.wasSent()) {
      String code = foul() ? "protocol" : call.waits() ? "timeout" : "unavailable";
      reject(call, LatchkeyException.of(code, why));
      return;
    }
    reject(call, LatchkeyException.of("unknown", why));
    // The next connection undoes it.
    if (call.is("acquire") && !call.abandoned) ours("cancel", Map.of("id", call.id()));
  }

  /** Whether the last connection ended in a breach of the protocol. */
  private boolean foul() {
    return trouble != null && trouble.code().equals("protocol");
  }

  private String away() {
    return "the broker at " + address + " cannot be reached";
  }

  // The end.

  /** Answers everything, and refuses what comes after. */
  void close() {
    closed = true;
    overdue.clear();
    for (Call call : List.copyOf(calls.values())) {
      boolean lasting = call.wasSent() && call.is("acquire") && call.flag("detach");
      String reason = "the client was closed before the answer; a grant lasts until its ttl";
      reject(call, lasting ? LatchkeyException.of("unknown", reason) : closed(call.op));
    }
  }

  static LatchkeyException closed(String op) {
    return LatchkeyException.of("closed", Details.of(op, "").reason("the client was closed"));
  }
}
