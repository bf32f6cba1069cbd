import io.github.latchkeygo.Client;
import io.github.latchkeygo.ConnectOptions;
import io.github.latchkeygo.Hold;

/** A holder that was overtaken without noticing is shut out by its token. */
final class FencedWrite {
  private FencedWrite() {}

  /** What the lease protects. With SQL: UPDATE … SET token = $2 … WHERE id = $3 AND token <= $2. */
  private static final class Ledger {
    String value = "";
    private long highest;

    /** Whether the write was let through: false means that a later holder was here. */
    boolean write(String text, long token) {
      if (token < highest) return false;
      highest = token;
      value = text;
      return true;
    }
  }

  public static void main(String[] args) throws InterruptedException {
    Ledger ledger = new Ledger();
    try (Client client = Client.connect(ConnectOptions.defaults().name("fenced-write"))) {
      // What a holder that is frozen in the middle of a write has in its hands.
      long token = client.acquire("sample-fence/ledger").token();
      Say.claim("the first holder writes", ledger.write("early", token));
      client.force("sample-fence/ledger", "fenced-write", "the holder hangs");
      try (Hold late = client.acquire("sample-fence/ledger")) {
        Say.claim("the later holder has a higher token", late.token() > token);
        Say.claim("the later holder writes", ledger.write("late", late.token()));
        Say.claim("the early holder, thawed, is refused", !ledger.write("early again", token));
        Say.claim("nothing was overwritten", ledger.value.equals("late"));
      }
    }
  }
}
