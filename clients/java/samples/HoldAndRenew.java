import io.github.latchkeygo.AcquireOptions;
import io.github.latchkeygo.BusyException;
import io.github.latchkeygo.Client;
import io.github.latchkeygo.ConnectOptions;
import io.github.latchkeygo.Hold;
import java.time.Duration;

/** A lease with a short ttl is kept for several times as long. */
final class HoldAndRenew {
  private HoldAndRenew() {}

  public static void main(String[] args) throws InterruptedException {
    String key = "sample-renew/leader";
    AcquireOptions once = AcquireOptions.defaults().tryOnce();
    try (Client client = Client.connect(ConnectOptions.defaults().name("hold-and-renew"))) {
      Hold hold = client.acquire(key, AcquireOptions.defaults().ttl(Duration.ofSeconds(1)));
      long first = hold.safeUntil().orElseThrow();
      Thread.sleep(2500);
      Say.claim("held for more than two ttls", hold.isSafe());
      Say.claim(
          "renewals have moved the deadline ahead", hold.safeUntil().orElseThrow() - first > 0);
      boolean busy = false;
      try {
        client.acquire(key, once);
      } catch (BusyException e) {
        busy = true;
      }
      Say.claim("meanwhile it is busy for everyone else", busy);
      hold.release();
      try (Hold next = client.acquire(key, once)) {
        Say.claim("after the release the next one has a higher token", next.token() > hold.token());
      }
    }
  }
}
