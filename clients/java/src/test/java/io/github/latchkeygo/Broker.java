package io.github.latchkeygo;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A real broker. {@code LATCHKEY_BINARY} names it; {@code ./run test} builds one. */
final class Broker implements AutoCloseable {
  private static final Pattern ADDRESS = Pattern.compile("^tcp +(127\\.0\\.0\\.1:\\d+)");

  private final List<String> args;
  private final List<Client> clients = new ArrayList<>();
  private Process process;
  private String address = "127.0.0.1:0"; // its own choice, and the same again after a restart

  Broker(String... args) throws IOException {
    this.args = Arrays.asList(args);
    start();
  }

  void start() throws IOException {
    String binary = System.getenv("LATCHKEY_BINARY");
    assertTrue(binary != null, "LATCHKEY_BINARY is not set: run this through ./run test");
    List<String> command =
        new ArrayList<>(List.of(binary, "serve", "--listen", address, "--http", ""));
    command.addAll(args);
    process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
    BufferedReader out =
        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
    for (String line = out.readLine(); line != null; line = out.readLine()) {
      Matcher m = ADDRESS.matcher(line);
      if (m.find()) {
        address = m.group(1);
        return;
      }
    }
    throw new IOException("the broker says no address");
  }

  String address() {
    return address;
  }

  Client connect(ConnectOptions options) throws InterruptedException {
    Client client = Client.connect(options.address(address));
    clients.add(client);
    return client;
  }

  Client connect() throws InterruptedException {
    return connect(Scripted.options());
  }

  void signal(String name) throws IOException, InterruptedException {
    Process kill = new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start();
    assertEquals(0, kill.waitFor());
  }

  void kill() throws InterruptedException {
    process.destroyForcibly();
    assertTrue(process.waitFor(Scripted.PATIENCE, TimeUnit.SECONDS));
  }

  @Override
  public void close() throws IOException {
    try {
      if (process.isAlive()) signal("CONT");
      for (Client client : clients) client.close();
      kill();
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }
}
