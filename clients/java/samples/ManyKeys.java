import io.github.latchkeygo.AcquireOptions;
import io.github.latchkeygo.Client;
import io.github.latchkeygo.ConnectOptions;
import io.github.latchkeygo.Hold;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Two accounts at once, all or none, so that crossed requests cannot block each other. */
final class ManyKeys {
  private ManyKeys() {}

  public static void main(String[] args) throws InterruptedException {
    String a = "sample-many/account-1";
    String b = "sample-many/account-2";
    AcquireOptions o = AcquireOptions.defaults();
    try (Client client = Client.connect(ConnectOptions.defaults().name("many-keys"))) {
      CompletableFuture<Hold> crossed;
      try (Hold hold = client.acquire(List.of(a, b), o)) {
        Say.claim("two keys are held under one id", hold.keys().size() == 2);
        var tokens = hold.tokens();
        Say.claim(
            "each key has a token of its own",
            tokens.size() == 2 && !tokens.get(a).equals(tokens.get(b)));
        crossed = client.acquireAsync(List.of(b, a), o);
        Say.claim("the crossed request waits", !crossed.isDone());
      }
      try (Hold second = crossed.join()) {
        Say.claim("crossed requests took turns", second.isSafe());
      }
    }
  }
}
