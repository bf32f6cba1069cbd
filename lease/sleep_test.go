package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/lease"
)

// bed is a machine that sleeps when it is told to: time goes on for the service
// and not for its clients.
type bed struct{ slept atomic.Int64 }

func (b *bed) clock() *asleep.Clock {
	return asleep.Told(func() time.Duration { return time.Duration(b.slept.Load()) })
}

func (b *bed) sleep(d time.Duration) { b.slept.Add(int64(d)) }

// sleeper makes a rig the service of a client on a machine that sleeps: what is
// granted and renewed is counted from before it was asked for.
func sleeper(t *testing.T) (*rig, *bed) {
	b := &bed{}
	r := newRig(t)
	r.bed = b.clock()
	return r, b
}

// What the machine slept is missing from the lease, and the first look after it
// says so, before any timer has run.
func TestSleepCountsAtTheFirstLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := sleeper(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(30*time.Second, "k"))
		was := time.Until(h.Deadline())
		b.sleep(10 * time.Second)
		if left := time.Until(h.Deadline()); left != was-10*time.Second {
			t.Errorf("%v left after a sleep of 10s, %v before it", left, was)
		}
		if h.Err() != nil {
			t.Fatalf("lost after a third of its ttl: %v", h.Err())
		}
		b.sleep(20 * time.Second)
		if h.Context().Err() == nil {
			t.Error("the context of a hold that was slept through has not ended")
		}
		if !errors.Is(h.Err(), lease.ErrExpired) {
			t.Errorf("err %v, want expired", h.Err())
		}
	})
}

// A renewal is reckoned from when it was sent: what was slept before it does not
// count any more, and what was slept while it was under way does.
func TestSleepUnderARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := sleeper(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(30*time.Second, "k"))
		b.sleep(15 * time.Second)
		wait(10 * time.Second) // the renewal
		safe := 30*time.Second - lease.Margin(30*time.Second)
		if left := time.Until(h.Deadline()); left != safe {
			t.Errorf("%v left after a renewal, want %v", left, safe)
		}
		r.set(func() {
			r.command = func(c lease.Command) fault {
				b.sleep(25 * time.Second)
				return fault{}
			}
		})
		wait(10 * time.Second)
		if left := time.Until(h.Deadline()); left != safe-25*time.Second || h.Err() != nil {
			t.Errorf("%v left after a renewal that was slept through, want %v; %v", left, safe-25*time.Second, h.Err())
		}
		wait(safe - 25*time.Second)
		if h.Err() == nil {
			t.Error("the hold outlives its deadline")
		}
	})
}

// The timers that renew and tell of losses stood still too. The next look at the
// session sets them right: a hold that still can be kept is, another is told.
func TestTimersAfterSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := sleeper(t)
		c := r.connect(lease.ClientOptions{SessionOptions: lease.SessionOptions{Grace: 3 * time.Second}})
		long, short := request(60*time.Second, "long"), request(40*time.Second, "short")
		long.Detach, short.Detach = true, true
		kept, gone := r.hold(c, long), r.hold(c, short)
		wait(100 * time.Millisecond)
		start := time.Now()
		b.sleep(45 * time.Second)
		wait(time.Second)
		select {
		case <-gone.Context().Done():
			if cause := context.Cause(gone.Context()); !errors.Is(cause, lease.ErrExpired) {
				t.Errorf("told %v, want expired", cause)
			}
		default:
			t.Error("the loss was not told within a third of the grace")
		}
		at := r.times(lease.Renew)
		if len(at) != 1 || at[0].Sub(start) > time.Second {
			t.Errorf("renewed %v, want the one that is left at once", at)
		}
		wait(40 * time.Second)
		if kept.Err() != nil {
			t.Errorf("a hold that could be kept: %v", kept.Err())
		}
		if n := len(r.times(lease.Renew)); n != 3 {
			t.Errorf("%d renewals within 40s of a ttl of 60s, want 3", n)
		}
	})
}

// A grant for which one slept too long in the queue is none.
func TestGrantThatWasSleptThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := sleeper(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() {
			r.grant = func(deliver func()) {
				b.sleep(time.Minute)
				deliver()
			}
		})
		if _, err := c.Hold(t.Context(), request(30*time.Second, "k")); !errors.Is(err, lease.ErrExpired) {
			t.Errorf("hold: %v, want expired", err)
		}
		if _, err := c.Acquire(t.Context(), request(30*time.Second, "k2")); !errors.Is(err, lease.ErrExpired) {
			t.Errorf("acquire: %v, want expired", err)
		}
		synctest.Wait()
		if r.holders("k")+r.holders("k2") != 0 {
			t.Error("what came too late was not given back")
		}
	})
}

// A service in this process sleeps with its clients: nothing is lost by it.
func TestSleepInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(30*time.Second, "k"))
		if l := h.Lease(); !l.End().Equal(l.Deadline) {
			t.Errorf("the end is %v before the deadline", l.Deadline.Sub(l.End()))
		}
	})
}

func BenchmarkErr(b *testing.B) {
	for _, v := range []struct {
		name  string
		clock *asleep.Clock
	}{{"inProcess", nil}, {"sleepCounted", &asleep.Clock{}}} {
		b.Run(v.name, func(b *testing.B) {
			r := newRig(b)
			r.bed = v.clock
			c, err := lease.Connect(b.Context(), r, lease.ClientOptions{})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close(context.Background())
			h, err := c.Hold(b.Context(), request(time.Minute, "k"))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if h.Err() != nil {
					b.Fatal(h.Err())
				}
			}
		})
	}
}
