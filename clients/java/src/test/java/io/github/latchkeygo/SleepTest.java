package io.github.latchkeygo;

import static io.github.latchkeygo.Scripted.lost;
import static io.github.latchkeygo.Scripted.options;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.latchkeygo.Scripted.Connected;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A machine that sleeps: its clocks, and what its holds know when it wakes up. */
final class SleepTest {
  private static final AcquireOptions PLAIN = AcquireOptions.defaults();
  private static final long MILLI = 1_000_000;

  @RegisterExtension final Scripted server = new Scripted();

  /** The clocks of a machine. Time passes by itself, or by hand; sleep by hand. */
  private static final class Machine {
    private final boolean byHand;
    private volatile long passed = 7_123_456_789L;
    private volatile long slept;
    private volatile long stepped;
    private volatile boolean away;
    private volatile int reads;

    Machine(boolean byHand) {
      this.byHand = byHand;
    }

    SystemClock clock() {
      return new SystemClock(this::nano, this::timeOfDay, this::uptime);
    }

    private long nano() {
      return byHand ? passed : System.nanoTime();
    }

    private long timeOfDay() {
      return (nano() + slept + stepped) / MILLI * MILLI;
    }

    private long uptime() throws IOException {
      reads++;
      if (away) throw new IOException("away");
      return (nano() + slept + 3_003_000_000L) / (10 * MILLI) * (10 * MILLI);
    }

    void sleep(Duration by) {
      slept += by.toNanos();
    }

    void pass(long nanos) {
      passed += nanos;
    }
  }

  private static void assertNear(long want, long got) {
    assertTrue(got >= want && got <= want + 20 * MILLI, () -> got + " ns, want " + want);
  }

  @Test
  void theFirstLookAfterASleepKnowsOfIt() throws Exception {
    Machine machine = new Machine(false);
    Connected c = server.client(options().grace(Duration.ofHours(1)).clock(machine.clock()));
    Hold hold = c.hold("a", PLAIN.ttl(Duration.ofHours(1)), 17L);
    Duration before = hold.safeFor();
    long until = hold.safeUntil().getAsLong();
    machine.sleep(Duration.ofMinutes(20));
    assertTrue(hold.isSafe(), "a third of its time");
    Duration nearer = before.minus(hold.safeFor());
    assertTrue(nearer.compareTo(Duration.ofMinutes(20)) >= 0, nearer::toString);
    assertTrue(until - hold.safeUntil().getAsLong() >= TimeUnit.MINUTES.toNanos(20));
    machine.sleep(Duration.ofMinutes(40)); // and no timer has run
    assertFalse(hold.isSafe());
    assertThrows(LeaseLostException.class, hold::check);
    assertEquals("expired", lost(hold).code());
  }

  @Test
  void aGrantThatWasSleptThroughIsGivenBack() throws Exception {
    Machine machine = new Machine(false);
    Connected c = server.client(options().grace(Duration.ofHours(1)).clock(machine.clock()));
    var acquiring = c.client().acquireAsync("a", PLAIN);
    var f = c.peer().next("acquire");
    machine.sleep(Duration.ofSeconds(30));
    c.peer().grant(f, 17L);
    assertEquals(f.get("id"), c.peer().next("release").get("id"));
    assertEquals("expired", Scripted.code(acquiring));
  }

  @Test
  void aLossInASleepIsToldSoonAfterItThoughNobodyLooks() throws Exception {
    Machine machine = new Machine(false);
    Connected c = server.client(options().grace(Duration.ofHours(1)).clock(machine.clock()));
    Hold hold = c.hold("a", PLAIN.ttl(Duration.ofHours(1)).renew(false), 17L);
    machine.sleep(Duration.ofHours(1));
    assertEquals("expired", lost(hold).code()); // long before the next ping
  }

  @Test
  void sleepCountsWheneverALookIsTakenAndNeverMoreThanTwoGrains() {
    for (long pause : new long[] {0, MILLI, 11 * MILLI, 3_456_789_012L}) {
      Machine machine = new Machine(true);
      SystemClock clock = machine.clock();
      long start = clock.now();
      long want = 0;
      for (int i = 0; i < 50; i++) {
        machine.pass(pause);
        want += pause;
        assertNear(want, clock.now() - start);
        machine.sleep(Duration.ofNanos(30 * MILLI + i * 1_234_567_890L));
        want += 30 * MILLI + i * 1_234_567_890L;
        assertNear(want, clock.now() - start);
      }
      assertEquals(machine.nano(), clock.toNanoTime(clock.now()));
    }
  }

  @Test
  void aTimeOfDayThatIsSetIsNoSleep() {
    Machine machine = new Machine(true);
    SystemClock clock = machine.clock();
    long start = clock.now();
    for (long step : new long[] {3_600_000, -7_200_000, 25, -25}) {
      machine.stepped += step * MILLI;
      assertEquals(start, clock.now());
    }
    // Set back by as much as was slept, it hides a sleep for as long as a reading is used.
    machine.stepped -= 60_000 * MILLI;
    machine.sleep(Duration.ofMinutes(1));
    machine.pass(10 * MILLI);
    assertNear(TimeUnit.MINUTES.toNanos(1) + 10 * MILLI, clock.now() - start);
  }

  @Test
  void theFileIsReadOnceInTenMilliseconds() {
    Machine machine = new Machine(true);
    SystemClock clock = machine.clock();
    int first = machine.reads;
    for (int i = 0; i < 10_000; i++) {
      machine.pass(MILLI / 100);
      clock.now();
    }
    assertTrue(machine.reads - first <= 10, () -> machine.reads + " readings in 100 ms");
  }

  @Test
  void withoutTheFileNoSleepCountsAndTimeGoesOn() {
    Machine machine = new Machine(true);
    machine.away = true;
    SystemClock never = machine.clock();
    machine.away = false;
    SystemClock clock = machine.clock();
    machine.away = true;
    long start = clock.now();
    long neverStart = never.now();
    machine.sleep(Duration.ofMinutes(1));
    machine.pass(50 * MILLI);
    assertEquals(50 * MILLI, clock.now() - start);
    assertEquals(50 * MILLI, never.now() - neverStart);
    machine.away = false;
    machine.pass(50 * MILLI);
    assertNear(TimeUnit.MINUTES.toNanos(1) + 100 * MILLI, clock.now() - start);
    assertEquals(100 * MILLI, never.now() - neverStart);
    assertEquals(3_600_000, never.sleepUntil(never.now() + TimeUnit.HOURS.toNanos(1)));
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void theClockOfThisMachineHasItsUptimeAndDoesNotRunAhead() {
    SystemClock clock = SystemClock.SHARED;
    assertTrue(clock.sleepUntil(clock.now() + TimeUnit.HOURS.toNanos(1)) <= 5000, "it counts");
    Thread.currentThread().interrupt(); // which closes what is not fit for it
    long began = System.nanoTime();
    long start = clock.now();
    long begun = System.nanoTime();
    while (System.nanoTime() - begun < 300 * MILLI) {
      long before = System.nanoTime();
      long passed = clock.now() - start;
      long after = System.nanoTime();
      assertTrue(passed >= before - begun && passed <= after - began, "it was awake");
    }
    assertTrue(Thread.interrupted());
  }

  @Test
  void anUptimeHasHundredths() throws IOException {
    assertEquals(48_310_100 * MILLI, parse("48310.10 29966.40\n"));
    assertEquals(50 * MILLI, parse("0.05 0.00\n"));
    for (String bad : new String[] {"", "12", "12 3", "12.3 4", ".12 4", "1e.12 4", "12.345 4"}) {
      assertThrows(Exception.class, () -> parse(bad), bad);
    }
  }

  private static long parse(String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
    return SystemClock.parse(bytes, bytes.length);
  }
}
