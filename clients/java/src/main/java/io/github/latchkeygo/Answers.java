package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.breach;

import io.github.latchkeygo.Call.Answer;
import io.github.latchkeygo.Deadlines.Grant;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** What the answers to calls decide. It has no state of its own. */
final class Answers {
  private final Loop loop;
  private final Calls calls;
  private final Holds holds;
  private final Callbacks callbacks;

  Answers(Loop loop, Calls calls, Holds holds, Callbacks callbacks) {
    this.loop = loop;
    this.calls = calls;
    this.holds = holds;
    this.callbacks = callbacks;
  }

  void queued(Call call, Map<String, Object> body) {
    if (call.told) return; // what is sent again is queued again
    call.told = true;
    if (call.options == null || call.options.onQueued == null || call.abandoned) return;
    Queued queued = Wire.queued(body);
    CompletableFuture<Void> told = new CompletableFuture<>();
    call.callback = told;
    Runnable tell = () -> call.options.onQueued.accept(queued);
    if (call.fromCallback) callbacks.runAside("onQueued", tell, told);
    else callbacks.run("onQueued", tell, told);
  }

  void succeeded(Call call, Map<String, Object> body) {
    long sent = call.wasSent() ? call.sent : call.start;
    if (call.granted == null) {
      calls.resolve(call, new Answer(body, sent));
      return;
    }
    Grant grant = Wire.grant(body); // a breach leaves the call to be asked again
    if (!grant.id().equals(call.id()) || !sameKeys(grant.keys(), call.keys())) {
      throw breach("a grant is of something else than was asked for");
    }
    if (call.abandoned) return; // it crossed the cancel, which releases it
    calls.drop(call.n);
    Hold hold = new Hold(holds, grant, sent, call.options);
    if (loop.now() >= hold.deadline()) {
      // Giving it back is kinder than letting the key idle until the broker ends it.
      calls.ours("release", Map.of("id", grant.id()));
      String reason = "the grant arrived when its time was already up; it was given back";
      calls.end(call, null, null, LatchkeyException.of("expired", reason));
      return;
    }
    holds.add(hold);
    calls.end(call, null, hold, null);
  }

  private static boolean sameKeys(List<String> granted, List<?> asked) {
    return granted.size() == asked.size() && new HashSet<Object>(granted).containsAll(asked);
  }

  void failed(Call call, LatchkeyException error) {
    boolean gone = error.code().equals("session_lost");
    boolean retry = gone || (error.code().equals("closed") && call.waits());
    if (call.granted != null && !call.abandoned && retry) {
      // Nothing was done, and nothing is lost by asking again once there is a connection.
      call.unsend();
    } else if (isDone(call, error)) {
      calls.resolve(call, new Answer(Map.of(), call.start));
    } else if (call.abandoned && !error.code().equals("unknown")) {
      calls.reject(call, Calls.cancelled(call));
    } else {
      calls.reject(call, error);
    }
  }

  /** Whether a failure says that the first sending had done it. */
  private static boolean isDone(Call call, LatchkeyException error) {
    if (!error.code().equals("not_held") && !error.code().equals("over")) return false;
    if (call.is("cancel")) return true;
    return call.is("release") && call.again && (call.hold == null || call.hold.cause() == null);
  }
}
