package io.github.latchkeygo;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** One request, from when it is made to its answer. It keeps its number on every connection. */
final class Call {
  /**
   * An answer.
   *
   * @param sent when the request that it is for was sent
   */
  record Answer(Map<String, Object> body, long sent) {}

  /** How a call ends: with an answer, or with an error. */
  interface Done {
    void done(Answer answer, LatchkeyException error);
  }

  private static final long NOT = -1;

  final long n;
  final String op;
  final Map<String, Object> fields;
  final long start;
  final Done done;

  /** When it was last sent; negative while the broker has certainly not seen it. */
  long sent = NOT;

  /** It was sent on an earlier connection, so that it may have been carried out. */
  boolean again;

  /** {@code queued} was told. */
  boolean told;

  /** Connections that ended in a breach of the protocol while it was on them. */
  int fouls;

  /** Nobody waits for it; the session sent it. */
  boolean ours;

  /** The caller gave up; its cancel is on the way. */
  boolean abandoned;

  /** The hold that it is about, if it is here. */
  Hold hold;

  // Of an acquire.
  AcquireOptions options;
  CompletableFuture<Hold> granted;
  CompletableFuture<Void> callback; // onQueued, on its way
  boolean fromCallback; // its caller is in the way of callbacks

  Call(long n, String op, Map<String, Object> fields, long start, Done done) {
    this.n = n;
    this.op = op;
    this.fields = fields;
    this.start = start;
    this.done = done;
  }

  boolean wasSent() {
    return sent != NOT;
  }

  void unsend() {
    sent = NOT;
  }

  boolean is(String name) {
    return op.equals(name);
  }

  boolean flag(String name) {
    return Boolean.TRUE.equals(fields.get(name));
  }

  String id() {
    return (String) fields.get("id");
  }

  /** Whether it may wait for its turn, and so for a broker that is away. */
  boolean waits() {
    return is("acquire") && !flag("try");
  }

  /** The first key of the request, for errors. */
  String key() {
    return hold != null ? hold.key() : key(fields);
  }

  static String key(Map<String, Object> fields) {
    return (String) keys(fields).get(0);
  }

  /** The keys that it names. */
  List<?> keys() {
    return keys(fields);
  }

  private static List<?> keys(Map<String, Object> fields) {
    if (fields.get("keys") instanceof List<?> keys) return keys;
    return List.of(fields.getOrDefault("key", ""));
  }

  /** Ends an acquire for its caller. */
  void tell(Hold hold, LatchkeyException error) {
    Runnable end =
        () -> {
          if (error != null) granted.completeExceptionally(error.describe("acquire", key()));
          else granted.complete(hold);
        };
    if (callback == null) end.run();
    else callback.whenComplete((ok, failed) -> end.run());
  }
}
