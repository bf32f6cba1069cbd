package leaseremote

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// bed puts the clients' machine to sleep: the broker's time passes and theirs
// does not.
type bed struct{ slept atomic.Int64 }

func newSleeper(t *testing.T) (*broker, *bed) {
	var d bed
	b := newBroker(t, leaselocal.Options{})
	b.sleep = asleep.Told(func() time.Duration { return time.Duration(d.slept.Load()) })
	return b, &d
}

func (d *bed) sleep(t time.Duration) { d.slept.Add(int64(t)) }

// Deadlines of session and lease come nearer by what is slept after the request,
// and an answer to a ping that was sent later takes it back for the session.
func TestDeadlinesCountSleep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, bed := newSleeper(t)
		u := open(t, b.connect(), lease.SessionOptions{Grace: 30 * time.Second})
		l := u.ask(one("k")).ok()
		session, end := u.s.Deadline(), l.End()
		bed.sleep(2 * time.Second)
		if d := session.Sub(u.s.Deadline()); d != 2*time.Second {
			t.Errorf("the session's deadline came nearer by %v, want 2s", d)
		}
		if d := end.Sub(l.End()); d != 2*time.Second {
			t.Errorf("the lease's end came nearer by %v, want 2s", d)
		}
		time.Sleep(10 * time.Second) // a ping
		synctest.Wait()
		safe := 30*time.Second - lease.Margin(30*time.Second)
		if left := time.Until(u.s.Deadline()); left != safe {
			t.Errorf("the session is safe for %v after a ping, want %v", left, safe)
		}
		if again := u.do(lease.Command{Verb: lease.Renew, ID: l.ID}).ok(); !again.End().Equal(again.Deadline) {
			t.Errorf("a renewal after the sleep ends %v before its deadline", again.Deadline.Sub(again.End()))
		}
	})
}

// A request that is sent again after a sleep is reckoned from then; one that was
// slept through is not.
func TestSleepInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, bed := newSleeper(t)
		v := b.connect()
		first, u := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
		held := first.ask(lease.Request{Keys: []string{"k"}}).ok()
		through := u.ask(lease.Request{Keys: []string{"k"}})
		synctest.Wait()
		bed.sleep(time.Hour)
		first.do(lease.Command{Verb: lease.Release, ID: held.ID}).ok()
		l := through.ok()
		if d := l.Deadline.Sub(l.End()); d != time.Hour {
			t.Errorf("a grant that was slept through ends %v before its deadline, want 1h", d)
		}
		u.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()

		held = first.ask(lease.Request{Keys: []string{"k"}}).ok()
		anew := u.ask(lease.Request{Keys: []string{"k"}})
		synctest.Wait()
		bed.sleep(time.Hour)
		time.Sleep(markFor)
		b.cut()
		time.Sleep(time.Second)
		first.do(lease.Command{Verb: lease.Release, ID: held.ID}).ok()
		if l := anew.ok(); !l.End().Equal(l.Deadline) {
			t.Errorf("a grant of what was sent again ends %v before its deadline", l.Deadline.Sub(l.End()))
		}
	})
}

// The deadlines of what a resume lists are reckoned from the resume.
func TestSleepBeforeAResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, bed := newSleeper(t)
		v := b.connect()
		u := open(t, v, lease.SessionOptions{Grace: time.Minute})
		u.ask(one("k")).ok()
		bed.sleep(time.Hour)
		id := u.s.ID()
		u.s.Suspend()
		next := open(t, v, lease.SessionOptions{Resume: id})
		got := next.s.Leases()
		if len(got) != 1 || !got[0].End().Equal(got[0].Deadline) {
			t.Fatalf("resumed with %v, want one lease that ends at its deadline", got)
		}
		bed.sleep(time.Second)
		if d := got[0].Deadline.Sub(got[0].End()); d != time.Second {
			t.Errorf("its end came nearer by %v, want 1s", d)
		}
	})
}

// A client that sleeps longer than its grace finds its hold lost at once, when
// the broker still says nothing.
func TestSleptThroughTheGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, bed := newSleeper(t)
		c, err := lease.Connect(t.Context(), b.connect(), lease.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(t.Context())
		h, err := c.Hold(t.Context(), one("k"))
		if err != nil {
			t.Fatal(err)
		}
		b.decide(func(fromBroker bool, line string) verdict {
			if fromBroker && !strings.Contains(line, `"hello"`) {
				return drop
			}
			return pass
		})
		bed.sleep(lease.DefaultGrace)
		if err := h.Context().Err(); err == nil || !errors.Is(h.Err(), lease.ErrServiceGone) {
			t.Errorf("context %v, err %v; want service gone", err, h.Err())
		}
	})
}
