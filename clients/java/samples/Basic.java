import io.github.latchkeygo.AcquireOptions;
import io.github.latchkeygo.Client;
import io.github.latchkeygo.ConnectOptions;
import io.github.latchkeygo.ListOptions;
import java.time.Duration;

/** One lease, exclusive, released at the end of the body. */
final class Basic {
  private Basic() {}

  public static void main(String[] args) throws InterruptedException {
    try (Client client = Client.connect(ConnectOptions.defaults().name("basic"))) {
      int invoiced =
          client.call(
              "sample-basic/invoices",
              AcquireOptions.defaults().ttl(Duration.ofSeconds(10)).label("invoices"),
              hold -> {
                Say.claim("the lease is held", hold.isSafe());
                Say.claim("its token is a number above 0", hold.token() > 0);
                // Here goes what only one process may do at a time.
                return 42;
              });
      Say.claim("the body's result comes back", invoiced == 42);
      var keys = client.list(ListOptions.key("sample-basic/invoices")).keys();
      Say.claim("nobody holds the key any more", keys.isEmpty());
    }
  }
}
