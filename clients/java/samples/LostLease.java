import io.github.latchkeygo.Client;
import io.github.latchkeygo.ConnectOptions;
import io.github.latchkeygo.ForcedException;

/** An administrator takes the lease away, and the work that is under way is stopped. */
final class LostLease {
  private LostLease() {}

  public static void main(String[] args) throws InterruptedException {
    boolean[] stopped = {false};
    ForcedException loss = null;
    try (Client client = Client.connect(ConnectOptions.defaults().name("lost-lease"));
        Client admin = Client.connect(ConnectOptions.defaults().name("admin"))) {
      try {
        client.call(
            "sample-lost/report",
            hold -> {
              admin.force(hold.key(), "alice", "stuck since Monday");
              try {
                Thread.sleep(60_000); // any work that ends when its thread is interrupted
              } catch (InterruptedException e) {
                stopped[0] = true;
                Say.claim("the hold is not safe any more", !hold.isSafe());
                throw e;
              }
              return null;
            });
      } catch (ForcedException e) {
        loss = e;
      }
    }
    Say.claim("the work was stopped", stopped[0]);
    Say.claim("call throws the loss", loss != null);
    Say.claim("the reason names who did it", loss.reason().contains("alice"));
  }
}
