package io.github.latchkeygo;

import static io.github.latchkeygo.Scripted.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The code of the README runs as it stands, in the body of a main method. */
final class ReadmeTest {
  private static final Pattern BLOCK = Pattern.compile("(?ms)^```java\n(.*?)^```$");

  @TempDir private Path folder;

  @Test
  void everyBlockRuns() throws Exception {
    Matcher m = BLOCK.matcher(Files.readString(Path.of("README.md")));
    int blocks = 0;
    try (Broker broker = new Broker()) {
      Client client = broker.connect();
      while (m.find()) {
        run("Block" + blocks++, m.group(1), broker, client);
      }
    }
    assertEquals(3, blocks);
  }

  private void run(String name, String block, Broker broker, Client client) throws Exception {
    List<String> lines = block.lines().toList();
    String imports =
        lines.stream().filter(l -> l.startsWith("import ")).collect(Collectors.joining("\n"));
    String body =
        lines.stream().filter(l -> !l.startsWith("import ")).collect(Collectors.joining("\n"));
    String main = "public static void main(String[] args) throws InterruptedException {";
    Path file = folder.resolve(name + ".java");
    Files.writeString(file, imports + "\nclass " + name + " {" + main + body + "}}");
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    ProcessBuilder builder =
        new ProcessBuilder(java, "-cp", "target/classes", file.toString())
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve(name + ".out").toFile());
    builder.environment().put("LATCHKEY_SERVER", broker.address());
    Process process = builder.start();
    try {
      if (block.contains("watch.next")) {
        until("it watches", () -> !process.isAlive() || (Long) client.stats().get("watches") > 0);
        client.acquire("invoices/1").release();
      }
      boolean ended = process.waitFor(3 * Scripted.PATIENCE, TimeUnit.SECONDS);
      File out = folder.resolve(name + ".out").toFile();
      String said = Files.readString(out.toPath());
      assertTrue(ended, said);
      assertEquals(0, process.exitValue(), said);
    } finally {
      process.destroyForcibly();
    }
  }
}
