//go:build linux

package crashtest

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// envTrace holds the seconds by which the wall clock of a traced program is off, and makes this binary trace it.
const envTrace = "LATCHKEY_CRASHTEST_TRACE"

// setWall steps the broker's wall clock to an offset, and waits until the broker is seen to live by it: the time of what
// it logs is off by that much.
func setWall(t *testing.T, b *broker, clock io.Writer, offset time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(clock, int64(offset/time.Second)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the broker lives by the other clock", func() bool { return (wall(t, b) - offset).Abs() < patience })
}

// wall is how far the broker's wall clock is from that of this process, to a minute or so.
func wall(t *testing.T, b *broker) time.Duration {
	t.Helper()
	svc := b.dial()
	defer svc.Close()
	// A force that ends something is logged, with the time.
	c, err := lease.Connect(t.Context(), svc, lease.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Acquire(t.Context(), lease.Request{Keys: []string{"to be forced"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Force(t.Context(), lease.ForceRequest{Key: "to be forced", By: "test"}); err != nil {
		t.Fatal(err)
	}
	times := regexp.MustCompile(`time=(\S+) level=WARN msg=force`).FindAllStringSubmatch(b.said(), -1)
	if len(times) == 0 {
		return 0
	}
	at, err := time.Parse(time.RFC3339Nano, times[len(times)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(at)
}

// succession has one lease after the other run out, and checks that each lasts its whole time and not much longer.
type succession struct {
	t     *testing.T
	c     *lease.Client
	ttl   time.Duration
	last  lease.Token
	since time.Time // the grant of the lease that is held, or an instant before it
}

// take waits for the next lease, while the one before runs out, and lets something happen meanwhile.
func (s *succession) take(meanwhile func()) {
	s.t.Helper()
	type answer struct {
		l   lease.Lease
		err error
	}
	got := make(chan answer, 1)
	ttl := s.ttl
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	go func() {
		l, err := s.c.Acquire(ctx, lease.Request{Keys: []string{"succession"}, TTL: ttl})
		got <- answer{l, err}
	}()
	meanwhile()
	a := <-got
	if a.err != nil {
		s.t.Fatalf("a lease of %v, %v after its grant: %v", ttl, time.Since(s.since), a.err)
	}
	// A clock that is an hour off would show as an hour, or as nothing.
	if lasted := time.Since(s.since); !s.since.IsZero() && (lasted < ttl || lasted > ttl+patience/2) {
		s.t.Errorf("a lease of %v lasted %v", ttl, lasted)
	}
	if a.l.Token() <= s.last {
		s.t.Errorf("token %d after %d", a.l.Token(), s.last)
	}
	s.last = a.l.Token()
	s.since = a.l.Deadline.Add(-ttl)
}

// The wall clock of the broker is set an hour ahead and an hour back, while it runs and between two of its lives. Leases
// last as long as they were promised, the same holder keeps what it renews, a bounded wait is as long as it was asked to
// be, and tokens rise.
func TestWallClockSteps(t *testing.T) {
	t.Parallel()
	if canTrace != "" {
		t.Skip(canTrace)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	probe := exec.Command(self, os.Getenv(envProgram), "--version")
	probe.Env = append(os.Environ(), envTrace+"=0")
	if out, err := probe.CombinedOutput(); err != nil {
		t.Skipf("this system does not let the test trace a program: %v\n%s", err, out)
	}
	b := newBroker(t, "--data", t.TempDir())
	b.args = append([]string{b.program}, b.args...)
	b.program = self
	b.env = []string{envTrace + "=0"}
	clock := b.start()

	s := &succession{t: t, c: connect(t, b), ttl: 500 * time.Millisecond}
	held, err := s.c.Hold(t.Context(), lease.Request{Keys: []string{"kept"}, TTL: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s.take(func() {})
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		s.take(func() { setWall(t, b, clock, offset) })
		begin := time.Now()
		_, err := s.c.Acquire(t.Context(), lease.Request{Keys: []string{"kept"}, Wait: 200 * time.Millisecond})
		if took := time.Since(begin); lease.CodeOf(err) != lease.ErrTimeout || took < 200*time.Millisecond || took > patience/2 {
			t.Errorf("a wait of 200ms ended after %v with %v", took, err)
		}
	}
	// The next life begins two hours before the end of the one before.
	setWall(t, b, clock, time.Hour)
	b.kill()
	b.env = []string{envTrace + "=-3600"}
	b.start()
	if off := wall(t, b); (off + time.Hour).Abs() > patience {
		t.Errorf("the wall clock of the broker is off by %v, want -1h", off)
	}
	s.since = time.Time{} // a restart gives the lease its whole time again
	s.take(func() {})
	s.take(func() {})
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("what was renewed all the time: %v", err)
	}
}

// Each life of the broker has another monotonic clock, as after a boot of the machine: first ahead by an hour, then back,
// then ahead again. Leases live on, for their time and not for an hour more or less.
func TestMonotonicClockOfAnotherBoot(t *testing.T) {
	t.Parallel()
	another := []string{"--fork", "--kill-child", "--time", "--monotonic", "3600", "--boottime", "3600", "--"}
	if os.Getuid() != 0 {
		another = append([]string{"--user", "--map-root-user"}, another...)
	}
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("unshare is missing: install the Debian package util-linux")
	}
	if out, err := exec.Command(unshare, slices.Concat(another, []string{"true"})...).CombinedOutput(); err != nil {
		t.Skipf("this system does not let the test make a namespace with another clock: %v %s", err, out)
	}
	b := newBroker(t, "--data", t.TempDir())
	plain := *b
	ahead := func() { b.program, b.args = unshare, slices.Concat(another, []string{plain.program}, plain.args) }
	normal := func() { b.program, b.args = plain.program, plain.args }
	ahead()
	b.start()
	s := &succession{t: t, c: connect(t, b), ttl: 500 * time.Millisecond}
	held, err := s.c.Hold(t.Context(), lease.Request{Keys: []string{"kept"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	s.take(func() {})
	for _, boot := range []func(){normal, ahead} {
		b.kill()
		boot()
		b.start()
		s.take(func() {})
		s.take(func() {})
	}
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("what was held all the time: %v", err)
	}
}
