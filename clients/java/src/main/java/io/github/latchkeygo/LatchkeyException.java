package io.github.latchkeygo;

import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import java.util.stream.Collectors;

/**
 * Base of all exceptions of this package; each code of the protocol has a class of its own, below
 * the class of its kind.
 */
public abstract class LatchkeyException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** What an exception is about. */
  public enum Kind {
    /** How the request ended. */
    OUTCOME,
    /** The caller, or the peer, breaks a rule. */
    MISTAKE,
    /** A hold was lost. */
    LOSS,
    /** Nothing was changed; it may succeed later. */
    RETRY,
    /** What happened cannot be known. */
    UNKNOWN,
    /** A defect of the broker. */
    DEFECT
  }

  /** The exception of each code. */
  private static final Map<String, BiFunction<String, Details, LatchkeyException>> CLASSES =
      Map.ofEntries(
          Map.entry("busy", BusyException::new),
          Map.entry("timeout", WaitTimeoutException::new),
          Map.entry("cancelled", CancelledException::new),
          Map.entry("refused", RefusedException::new),
          Map.entry("deadlock", DeadlockException::new),
          Map.entry("unknown", UnknownOutcomeException::new),
          Map.entry("over", OverException::new),
          Map.entry("not_held", NotHeldException::new),
          Map.entry("expired", ExpiredException::new),
          Map.entry("forced", ForcedException::new),
          Map.entry("session_lost", SessionLostException::new),
          Map.entry("service_gone", ServiceGoneException::new),
          Map.entry("unavailable", UnavailableException::new),
          Map.entry("closed", ClosedException::new),
          Map.entry("protocol", ProtocolException::new),
          Map.entry("internal", InternalException::new));

  /** The stable name of what happened. */
  private final String code;

  /** What was attempted. */
  private final String op;

  /** The key, when there is one. */
  private final String key;

  /** For people. */
  private final String reason;

  /** Who is in the way. */
  private final transient List<Holder> holders;

  /** Who waits for whom. */
  private final transient List<CycleEntry> cycle;

  LatchkeyException(String code, Details d) {
    super(render(code, d), d.cause);
    this.code = code;
    this.op = d.op;
    this.key = d.key;
    this.reason = d.reason;
    this.holders = d.holders;
    this.cycle = d.cycle;
  }

  /**
   * What the code is about: an outcome, a loss, something worth another try.
   *
   * @return the kind
   */
  public abstract Kind kind();

  /**
   * The stable name of what happened, for programs.
   *
   * @return a code of the protocol
   */
  public String code() {
    return code;
  }

  /**
   * What was attempted: acquire, renew, release, hold.
   *
   * @return the operation; empty when there was none
   */
  public String op() {
    return op;
  }

  /**
   * The key that it is about.
   *
   * @return the key; empty when there is none
   */
  public String key() {
    return key;
  }

  /**
   * For people: what is wrong and what to do. It is not stable.
   *
   * @return the reason, maybe empty
   */
  public String reason() {
    return reason;
  }

  /**
   * Who is in the way, for {@code busy} and {@code timeout}; at most eight.
   *
   * @return the holders, maybe none
   */
  public List<Holder> holders() {
    return holders == null ? List.of() : holders;
  }

  /**
   * Who waits for whom, for {@code deadlock}; the last one waits for the first.
   *
   * @return the cycle, maybe empty
   */
  public List<CycleEntry> cycle() {
    return cycle == null ? List.of() : cycle;
  }

  /** Makes the exception of a code; an unknown one becomes an internal one of that name. */
  static LatchkeyException of(String code, Details d) {
    return CLASSES.getOrDefault(code, InternalException::new).apply(code, d);
  }

  /** Makes the loss of a hold for a code. */
  static LeaseLostException loss(String code, Details d) {
    return switch (code) {
      case "not_held" -> new HoldReleasedException(code, d);
      case "closed" -> new HoldClosedException(code, d);
      default -> of(code, d) instanceof LeaseLostException l ? l : new LeaseLostException(code, d);
    };
  }

  static LatchkeyException of(String code, String reason) {
    return of(code, Details.of("", "").reason(reason));
  }

  static LatchkeyException refuse(String reason) {
    return of("refused", reason);
  }

  static LatchkeyException unavailable(String reason, Throwable cause) {
    return of("unavailable", Details.of("", "").reason(reason).cause(cause));
  }

  /** A breach of the protocol by the peer. */
  static LatchkeyException breach(String reason) {
    return of("protocol", reason);
  }

  /** The same, with who attempted it filled in. */
  LatchkeyException describe(String byOp, String aboutKey) {
    if (!op.isEmpty()) return this;
    return again(byOp, key.isEmpty() ? aboutKey : key, getCause());
  }

  /** A copy to be thrown in the caller's thread, whose stack trace shows the caller. */
  LatchkeyException fresh() {
    return again(op, key, getCause());
  }

  LatchkeyException withCause(Throwable cause) {
    return again(op, key, cause);
  }

  private LatchkeyException again(String byOp, String aboutKey, Throwable cause) {
    if (this instanceof FencingUnknownException) return this;
    Details d = Details.of(byOp, aboutKey).reason(reason).cause(cause);
    d.holders(holders()).cycle(cycle());
    return this instanceof LeaseLostException ? loss(code, d) : of(code, d);
  }

  private static String render(String code, Details d) {
    StringBuilder text = new StringBuilder(d.op);
    if (!d.key.isEmpty()) text.append(text.isEmpty() ? "" : " ").append(Json.quote(d.key));
    text.append(text.isEmpty() ? "" : ": ").append(code.replace('_', ' '));
    boolean oneself = d.cycle.size() == 1;
    if (!d.reason.isEmpty() && !oneself) text.append(": ").append(d.reason);
    if (!d.holders.isEmpty()) {
      text.append(": held by ");
      text.append(d.holders.stream().map(Holder::toString).collect(Collectors.joining("; ")));
    }
    if (oneself) {
      CycleEntry self = d.cycle.get(0);
      text.append(": you already hold this key: ").append(Json.quote(self.key()));
      if (!self.who().isEmpty()) text.append(", as ").append(self.who());
    } else if (!d.cycle.isEmpty()) {
      text.append(": ");
      text.append(
          d.cycle.stream()
              .map(w -> w.who() + " waits for " + Json.quote(w.key()))
              .collect(Collectors.joining(", ")));
    }
    return text.toString();
  }

  /** What there is to say besides the code. */
  static final class Details {
    private final String op;
    private final String key;
    private String reason = "";
    private List<Holder> holders = List.of();
    private List<CycleEntry> cycle = List.of();
    private Throwable cause;

    private Details(String op, String key) {
      this.op = op;
      this.key = key;
    }

    static Details of(String op, String key) {
      return new Details(op, key);
    }

    Details reason(String value) {
      reason = value;
      return this;
    }

    Details holders(List<Holder> value) {
      holders = value;
      return this;
    }

    Details cycle(List<CycleEntry> value) {
      cycle = value;
      return this;
    }

    Details cause(Throwable value) {
      cause = value;
      return this;
    }
  }
}
