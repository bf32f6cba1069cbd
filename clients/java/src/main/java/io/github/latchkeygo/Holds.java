package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.unavailable;

import io.github.latchkeygo.Deadlines.Grant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;

/** What is held in the session, and until when the session lives for certain. */
final class Holds {
  final Loop loop;
  final Calls calls;
  final Callbacks callbacks;
  private final Loop.Alarm reaper; // the session's deadline

  // Behind the loop's lock.
  private final Map<String, Hold> holds = new LinkedHashMap<>();
  private long until = Deadlines.NEVER;

  Holds(Loop loop, Calls calls, Callbacks callbacks) {
    this.loop = loop;
    this.calls = calls;
    this.callbacks = callbacks;
    this.reaper = loop.alarm(this::sweep);
  }

  /** The deadline of the session. */
  long until() {
    return until;
  }

  int size() {
    return holds.size();
  }

  boolean has(String id) {
    return holds.containsKey(id);
  }

  void add(Hold hold) {
    holds.put(hold.id(), hold);
    hold.arm();
    reaper.hasten(until);
  }

  /** The hold has ended on this side. */
  void forget(Hold hold) {
    holds.remove(hold.id(), hold);
  }

  // The session's deadline.

  /**
   * A new session was opened by a request that was sent then. What was held in an earlier one was
   * told lost before this, so that the deadline of this one makes nothing look safe.
   */
  void begin(long sent, long grace) {
    until = Deadlines.session(sent, grace);
    reaper.hasten(until);
  }

  /** The broker had a sign of life that was sent then. */
  void proof(long sent, long grace) {
    long proven = Deadlines.session(sent, grace);
    if (proven <= until && until != Deadlines.NEVER) return;
    sweep();
    until = proven;
  }

  /** Ends what is past its deadline. */
  private void sweep() {
    for (Hold hold : new ArrayList<>(holds.values())) hold.sweep();
    if (!holds.isEmpty() && until > loop.now()) reaper.set(until);
  }

  // What the broker says.

  /** Compares what is held here with what the broker says after a resume that was sent then. */
  void reconcile(List<Grant> leases, long sent) {
    Map<String, Grant> listed = new LinkedHashMap<>();
    for (Grant grant : leases) listed.put(grant.id(), grant);
    Set<Object> wanted = calls.ids(); // a call that is not answered is about it
    for (Hold hold : new ArrayList<>(holds.values())) {
      hold.sweep();
      if (hold.cause() != null) continue; // it is given back
      wanted.add(hold.id());
      Grant grant = listed.get(hold.id());
      if (grant != null && hold.isAllOf(grant)) hold.resumed(grant, sent);
      else hold.lose("forced", "it ended while the connection was broken", null);
    }
    for (String held : listed.keySet()) {
      if (!wanted.contains(held)) calls.ours("release", Map.of("id", held));
    }
  }

  /** Takes a notice that one of them ended. */
  void noticed(String id, Map<String, Object> body) {
    Hold hold = holds.get(id);
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

  /** The session ended, and with it all that was not detached. */
  void sessionLost() {
    for (Hold hold : new ArrayList<>(holds.values())) {
      if (!hold.isDetached()) hold.lose("session_lost", "the broker ended the session", null);
    }
  }

  /** The connection broke. */
  void trouble(LatchkeyException error) {
    for (Hold hold : new ArrayList<>(holds.values())) {
      if (!hold.isDetached()) {
        callbacks.troubled(hold, unavailable("the connection to the broker broke", error));
      }
    }
  }

  void close() {
    reaper.clear();
    for (Hold hold : new ArrayList<>(holds.values())) {
      hold.lose("closed", "the client was closed", null);
    }
  }
}
