package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.unavailable;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One connection: lines in, frames out. It knows nothing of sessions. */
final class Link {
  private static final Pattern TCP =
      Pattern.compile("(?:\\[([^\\]]+)\\]|([^:\\[\\]]+)):(\\d{1,5})");

  /** Hosts that need no look-up, which could block. */
  private static final Pattern LITERAL = Pattern.compile("localhost|[0-9.]+|.*:.*");

  /** Pieces read before others get their turn. */
  private static final int READS = 16;

  /** Who uses a connection. */
  interface Owner {
    /** The connection stands; nothing came yet. */
    void linkUp(Link link);

    /** One line. What it throws breaks the connection. */
    void linkLine(Link link, byte[] line);

    /** It is of no use any more; called once, and last. */
    void linkDown(Link link, LatchkeyException error);
  }

  /** Where a broker listens: a path, or a host and a port. */
  record Target(String path, String host, int port) {
    static Target parse(String address) {
      if (address.startsWith("unix:")) {
        String path = address.substring("unix:".length());
        if (path.isEmpty()) throw refused(address, "has no path after unix:");
        return new Target(path, "", 0);
      }
      Matcher m = TCP.matcher(address);
      int port = m.matches() ? Integer.parseInt(m.group(3)) : 0;
      if (port < 1 || port > 65_535) {
        throw refused(address, "is neither host:port nor unix:/path");
      }
      return new Target("", m.group(1) == null ? m.group(2) : m.group(1), port);
    }

    private static LatchkeyException refused(String address, String what) {
      return LatchkeyException.refuse("address " + Json.quote(address) + " " + what)
          .describe("connect", "");
    }

    private List<SocketAddress> addresses() throws IOException {
      if (!path.isEmpty()) return List.of(UnixDomainSocketAddress.of(path));
      List<SocketAddress> out = new ArrayList<>();
      for (InetAddress a : InetAddress.getAllByName(host)) out.add(new InetSocketAddress(a, port));
      return out;
    }
  }

  private final Loop loop;
  private final Owner owner;
  private final Lines lines = new Lines(Limits.MAX_REPLY_BYTES);
  private final ByteBuffer piece = ByteBuffer.allocate(32 * 1024);
  private List<SocketAddress> addresses = List.of();
  private int tried;
  private SocketChannel channel;
  private SelectionKey key;
  private boolean up;
  private boolean down;
  private byte[] out = new byte[1024];
  private int outStart;
  private int outEnd;

  Link(Loop loop, Owner owner) {
    this.loop = loop;
    this.owner = owner;
  }

  /** Begins to connect. The executor is for what may block. */
  void dial(Target target, Executor executor) {
    if (!target.path.isEmpty() || LITERAL.matcher(target.host).matches()) resolve(target);
    else executor.execute(() -> resolve(target));
  }

  private void resolve(Target target) {
    List<SocketAddress> found = List.of();
    LatchkeyException failure = null;
    try {
      found = target.addresses();
    } catch (IOException | IllegalArgumentException e) {
      failure = unavailable("cannot look up " + target.host + target.path + ": " + e, e);
    }
    loop.enter();
    try {
      addresses = found;
      if (failure != null) fail(failure);
      else if (!down) next();
    } finally {
      loop.exit();
    }
  }

  /** Tries the next address. */
  private void next() {
    try {
      SocketAddress address = addresses.get(tried++);
      if (address instanceof UnixDomainSocketAddress) {
        channel = SocketChannel.open(StandardProtocolFamily.UNIX);
      } else {
        channel = SocketChannel.open();
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      }
      channel.configureBlocking(false);
      boolean done = channel.connect(address);
      int ops = done ? SelectionKey.OP_READ : SelectionKey.OP_CONNECT;
      key = channel.register(loop.selector(), ops, this);
      loop.stir();
      if (done) connected();
    } catch (IOException | RuntimeException e) {
      failed(e);
    }
  }

  private void connected() {
    up = true;
    owner.linkUp(this);
  }

  private void failed(Exception e) {
    if (!up && !down && tried < addresses.size()) {
      discard();
      next();
      return;
    }
    fail(e instanceof LatchkeyException l ? l : unavailable(String.valueOf(e.getMessage()), e));
  }

  /** Bytes that were sent and not taken by the kernel yet. */
  int unsent() {
    return outEnd - outStart;
  }

  /** Sends one frame, together with those that follow at once. */
  void send(String frame) {
    if (down) return;
    byte[] bytes = frame.getBytes(StandardCharsets.UTF_8);
    if (outEnd + bytes.length > out.length) {
      int size = unsent();
      byte[] room =
          size + bytes.length > out.length / 2 ? new byte[2 * (size + bytes.length)] : out;
      System.arraycopy(out, outStart, room, 0, size);
      out = room;
      outStart = 0;
      outEnd = size;
    }
    System.arraycopy(bytes, 0, out, outEnd, bytes.length);
    outEnd += bytes.length;
    loop.stir();
  }

  /** Writes what the kernel takes. Only the loop's thread calls it. */
  void flush() {
    if (down || !up || outStart == outEnd) return;
    try {
      outStart += channel.write(ByteBuffer.wrap(out, outStart, outEnd - outStart));
      boolean all = outStart == outEnd;
      if (all) {
        outStart = 0;
        outEnd = 0;
        if (out.length > 1024 * 1024) out = new byte[1024];
      }
      key.interestOps(all ? SelectionKey.OP_READ : SelectionKey.OP_READ | SelectionKey.OP_WRITE);
    } catch (IOException | RuntimeException e) {
      failed(e);
    }
  }

  /** Handles what the selector found. Only the loop's thread calls it. */
  void ready() {
    if (down || !key.isValid()) return;
    try {
      if (!up) {
        if (!channel.finishConnect()) return;
        key.interestOps(SelectionKey.OP_READ);
        connected();
        return;
      }
      if (key.isReadable()) read();
    } catch (IOException | RuntimeException e) {
      failed(
          e instanceof IOException || e instanceof LatchkeyException
              ? e
              : LatchkeyException.of("internal", "a defect of this client").withCause(e));
    }
  }

  private void read() throws IOException {
    for (int i = 0; i < READS && !down; i++) {
      piece.clear();
      int size = channel.read(piece);
      if (size < 0) throw unavailable("the broker closed the connection", null);
      if (size == 0) return;
      lines.push(
          piece.array(),
          size,
          line -> {
            if (!down) owner.linkLine(this, line);
          });
      if (size < piece.capacity()) return;
    }
  }

  /** Breaks the connection and tells the owner, once. */
  void fail(LatchkeyException error) {
    if (down) return;
    drop();
    owner.linkDown(this, error);
  }

  /** Breaks the connection and tells nobody. */
  void drop() {
    down = true;
    outStart = 0;
    outEnd = 0;
    discard();
  }

  private void discard() {
    if (channel == null) return;
    try {
      channel.close();
    } catch (IOException e) {
      // It is closed all the same.
    }
    loop.stir(); // the selector has to let go of it
  }
}
