package io.github.latchkeygo;

import static io.github.latchkeygo.LatchkeyException.unavailable;

import java.util.Map;

/** Signs of life: pings that keep the session, and the end of a connection that is silent. */
final class Pulse {
  /** Between pings when there is no grace that would say. */
  private static final long IDLE_PING = 5000 * Deadlines.MILLI;

  private final Loop loop;
  private final Calls calls;
  private final Loop.Alarm pinger;
  private final Loop.Alarm verdict; // ends a silent connection, after what has come was read

  private Link link; // with an open session, or null
  private long grace;
  private Call probe; // the ping that is not answered
  private boolean heard; // something came since the last tick
  private boolean heardAtVerdict;

  Pulse(Loop loop, Calls calls) {
    this.loop = loop;
    this.calls = calls;
    this.pinger = loop.alarm(this::ping);
    this.verdict = loop.alarm(this::judge);
  }

  /** Pings on a connection with an open session. */
  void start(Link to, long graceOfSession) {
    link = to;
    grace = graceOfSession;
    probe = null;
    pinger.set(loop.now() + interval());
  }

  void stop() {
    link = null;
    pinger.clear();
    verdict.clear();
  }

  /** Something came. */
  void heard() {
    heard = true;
  }

  /** The ping was answered. */
  void answered() {
    probe = null;
  }

  private long interval() {
    return grace > 0 ? Math.max(grace * Deadlines.MILLI / 3, Deadlines.MILLI) : IDLE_PING;
  }

  private void ping() {
    if (link == null) return;
    long now = loop.now();
    if (probe == null) {
      probe = calls.ours("ping", Map.of());
    } else if (!heard || (grace > 0 && now - probe.sent >= grace * Deadlines.MILLI)) {
      // A process that stood still has not looked yet at what came: let it read first.
      heardAtVerdict = heard;
      verdict.set(now);
    }
    heard = false;
    pinger.set(now + interval());
  }

  private void judge() {
    if (link == null || probe == null || (!heardAtVerdict && heard)) return;
    link.fail(unavailable("the broker answers no ping", null));
  }
}
