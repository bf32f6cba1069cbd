package leaseremote

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// A cut shorter than the grace loses nothing: the session goes on under its id,
// the hold is there, and the waiter keeps its place and gets its grant.
func TestCutAndResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		a, c := open(t, v, lease.SessionOptions{Name: "a"}), open(t, v, lease.SessionOptions{Name: "c"})
		l := a.ask(one("k")).ok()
		next := c.ask(one("k"))
		next.pending()
		id := a.s.ID()
		for range 5 {
			b.cut()
			time.Sleep(time.Second)
		}
		next.pending()
		if a.s.ID() != id {
			t.Fatalf("session %s became %s", id, a.s.ID())
		}
		if got := b.holders("k"); len(got) != 1 || got[0] != l.Token() {
			t.Fatalf("holders %v, want %v", got, l.Token())
		}
		a.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()
		next.ok()
		if len(next.queued) != 1 {
			t.Fatalf("told %d times that it waits, want once", len(next.queued))
		}
		if n := append(a.notices(), c.notices()...); len(n) != 0 {
			t.Fatalf("notices %+v, want none", n)
		}
	})
}

// An answer that is lost with its connection is found again: the same grant, and
// no second one.
func TestLostGrant(t *testing.T) {
	for _, r := range []lease.Request{
		one("k"),
		{ID: "many", Keys: []string{"k", "a", "z"}},
		{ID: "try", Keys: []string{"k"}, Try: true},
		{ID: "kept", Keys: []string{"k"}, Detach: true, TTL: lease.Forever},
	} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			u := open(t, b.connect(), lease.SessionOptions{})
			b.once(cutThere, true, `"token`)
			l := u.ask(r).ok()
			if got := b.holders("k"); len(got) != 1 {
				t.Fatalf("%s: holders %v, want one", r.ID, got)
			} else if token, _ := l.TokenOf("k"); token != got[0] {
				t.Fatalf("%s: lease %+v, held by %v", r.ID, l, got)
			}
			u.do(lease.Command{Verb: lease.Release, ID: r.ID}).ok()
			if got := b.holders("k"); len(got) != 0 {
				t.Fatalf("%s: holders %v after the release", r.ID, got)
			}
		})
	}
}

// A grant that was not heard, and of which a key was taken away meanwhile, is no
// grant: whoever holds acts on all of the keys. What is left is given back.
func TestLostGrantThatLostAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		c, err := lease.Connect(t.Context(), b.connect(), lease.ClientOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		var met sync.Once
		b.decide(func(fromBroker bool, line string) verdict {
			got := pass
			if fromBroker && strings.Contains(line, `"tokens"`) {
				met.Do(func() {
					if _, err := b.svc.Force(t.Context(), lease.ForceRequest{Key: "b"}); err != nil {
						t.Error(err)
					}
					got = cutThere
				})
			}
			return got
		})
		ran := false
		err = c.Do(t.Context(), lease.Request{Keys: []string{"a", "b"}}, func(context.Context, *lease.Held) error {
			ran = true
			return nil
		})
		if !errors.Is(err, lease.ErrForced) || ran {
			t.Errorf("got %v, ran %v; want that a key was forced", err, ran)
		}
		synctest.Wait()
		if got := b.holders("a"); len(got) != 0 {
			t.Errorf("a is held by %v", got)
		}
	})
}

// A release whose answer was lost was carried out: that is a success, by id and
// by token, and the waiter has the key.
func TestLostRelease(t *testing.T) {
	for _, byToken := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			v := b.connect()
			u, other := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
			l := u.ask(one("k")).ok()
			next := other.ask(lease.Request{Keys: []string{"k"}})
			next.pending()
			// Only the answer to u: the waiter's grant has another id.
			b.once(cutThere, true, `"id":"id-k"`)
			c := lease.Command{Verb: lease.Release, ID: l.ID}
			if byToken {
				c = lease.Command{Verb: lease.Release, Token: l.Token()}
			}
			u.do(c).ok()
			next.ok()
			synctest.Wait()
			if n := u.notices(); len(n) != 0 {
				t.Fatalf("notices %+v about what was released", n)
			}
			u.do(c).fails(lease.ErrNotHeld)
		})
	}
}

// A release that was made when the loss had been told is none, also when its first
// answer was lost: nobody hears both that a hold was lost and that it was released.
func TestLostReleaseAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{})
		l := u.ask(one("k")).ok()
		if _, err := b.svc.Force(t.Context(), lease.ForceRequest{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := u.notices(); len(n) != 1 {
			t.Fatalf("notices %+v, want one of the loss", n)
		}
		b.once(cutThere, true, `"not_held"`)
		u.do(lease.Command{Verb: lease.Release, ID: l.ID}).fails(lease.ErrNotHeld)
	})
}

// A command may name one key of a hold: what its lost answer is taken for is that
// key alone.
func TestLostReleaseOfOneKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{})
		l := u.ask(lease.Request{ID: "x", Keys: []string{"a", "b", "c"}}).ok()
		for i, c := range []lease.Command{
			{Verb: lease.Release, ID: "x", Key: "a"}, {Verb: lease.Release, Token: l.Holds[1].Token},
		} {
			b.once(cutThere, true, `"id":"x"`)
			got := u.do(c).ok()
			if len(got.Holds) != 1 || got.Holds[0] != l.Holds[i] {
				t.Fatalf("released %+v, want %+v", got.Holds, l.Holds[i])
			}
			u.do(c).fails(lease.ErrNotHeld)
		}
		b.cut()
		time.Sleep(time.Second)
		if got := u.do(lease.Command{Verb: lease.Renew, ID: "x"}).ok(); len(got.Holds) != 1 || got.Holds[0].Key != "c" {
			t.Fatalf("left %+v, want c", got.Holds)
		}
		if n := u.notices(); len(n) != 0 {
			t.Fatalf("notices %+v", n)
		}
		u.do(lease.Command{Verb: lease.Release, ID: "x", Key: "\xff"}).fails(lease.ErrRefused)
	})
}

// Renewals, detaches, cancels and pings are sent again and succeed.
func TestLostCommands(t *testing.T) {
	for _, verb := range []lease.Verb{lease.Ping, lease.Renew, lease.Detach, lease.Cancel} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			u := open(t, b.connect(), lease.SessionOptions{})
			u.ask(one("k")).ok()
			b.once(cutThere, true, `"ok":true`)
			u.do(lease.Command{Verb: verb, ID: "id-k"}).ok()
			left := len(b.holders("k"))
			if want := map[bool]int{true: 0, false: 1}[verb == lease.Cancel]; left != want {
				t.Fatalf("%v: %d holders, want %d", verb, left, want)
			}
		})
	}
}

// A cancel during a cut leaves nothing behind, whether the broker knows the
// request or not, or knows it and not a repeat of it.
func TestCancelDuringCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		a, c := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
		a.ask(one("k")).ok()
		known := c.ask(lease.Request{ID: "known", Keys: []string{"k"}})
		known.pending()
		b.refuse(errors.New("cut off"))
		b.cut()
		synctest.Wait()
		unknown := c.ask(lease.Request{ID: "unknown", Keys: []string{"k"}})
		unknown.pending()
		repeat := c.ask(lease.Request{ID: "unknown", Keys: []string{"k"}})
		c.do(lease.Command{Verb: lease.Cancel, ID: "unknown"}).ok()
		unknown.fails(lease.ErrCancelled)
		repeat.fails(lease.ErrCancelled)
		repeat = c.ask(lease.Request{ID: "known", Keys: []string{"k"}})
		cancel := c.do(lease.Command{Verb: lease.Cancel, ID: "known"})
		cancel.pending()
		b.refuse(nil)
		cancel.ok()
		known.fails(lease.ErrCancelled)
		repeat.fails(lease.ErrCancelled)
		if n := b.waiters("k"); n != 0 {
			t.Fatalf("%d wait, want none", n)
		}
	})
}

// While the broker is away, what may wait waits within its bound, and the rest
// is answered when the session cannot have survived.
func TestAwayForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{})
		u.ask(one("mine")).ok()
		other := open(t, v, lease.SessionOptions{Grace: lease.MaxGrace})
		other.ask(lease.Request{ID: "theirs", Keys: []string{"k"}, TTL: lease.Forever}).ok()
		sent := u.ask(lease.Request{ID: "sent", Keys: []string{"k"}, Wait: 5 * time.Second})
		sent.pending()
		b.refuse(errors.New("cut off"))
		b.cut()
		synctest.Wait()
		cut := time.Now()
		unsent := u.ask(lease.Request{ID: "unsent", Keys: []string{"k"}, Wait: 5 * time.Second})
		patient := u.ask(lease.Request{ID: "patient", Keys: []string{"k"}})
		renew := u.do(lease.Command{Verb: lease.Renew, ID: "id-mine"})
		try := u.ask(lease.Request{Keys: []string{"k"}, Try: true})
		renew.pending()
		renew.fails(lease.ErrUnavailable)
		try.fails(lease.ErrUnavailable)
		if d := time.Since(cut); d > lease.DefaultGrace {
			t.Fatalf("given up after %v, later than the grace", d)
		}
		sent.fails(lease.ErrUnknown)
		unsent.fails(lease.ErrTimeout)
		if d := time.Since(cut); d != 5*time.Second {
			t.Fatalf("waited %v, want 5s", d)
		}
		u.do(lease.Command{Verb: lease.Ping}).fails(lease.ErrUnavailable)
		patient.pending()
		time.Sleep(time.Hour / 2)
		b.refuse(nil)
		time.Sleep(2 * time.Second)
		patient.pending()
		if n := u.notices(); len(n) != 1 || n[0].Code != lease.ErrSessionLost || n[0].ID != "id-mine" {
			t.Fatalf("notices %+v, want the loss of id-mine", n)
		}
		if n := b.waiters("k"); n != 1 {
			t.Fatalf("%d wait, want the patient one", n)
		}
		other.do(lease.Command{Verb: lease.Release, ID: "theirs"}).ok()
		patient.ok()
	})
}

// A grant whose request was given up while the broker was away is given back on
// return.
func TestAbandonedGrantIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{Grace: time.Minute})
		b.once(cutThere, true, `"token"`)
		gone := errors.New("cut off")
		r := u.ask(lease.Request{ID: "x", Keys: []string{"k"}, Wait: time.Second})
		b.refuse(gone)
		r.fails(lease.ErrUnknown)
		if n := len(b.holders("k")); n != 1 {
			t.Fatalf("%d holders, want the grant that nobody was told of", n)
		}
		b.refuse(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(b.holders("k")); n != 0 {
			t.Fatalf("%d holders, want none", n)
		}
	})
}

// A link on which nothing moves any more is noticed by its pings and replaced
// before the session ends.
func TestFrozenLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{})
		l := u.ask(lease.Request{ID: "x", Keys: []string{"k"}, TTL: lease.Forever}).ok()
		id := u.s.ID()
		for range 3 {
			b.freeze()
			time.Sleep(10 * time.Second)
			if got := b.holders("k"); len(got) != 1 || got[0] != l.Token() || u.s.ID() != id {
				t.Fatalf("holders %v, want %v", got, l.Token())
			}
			if left := time.Until(u.s.Deadline()); left < time.Second {
				t.Fatalf("the deadline is %v ahead", left)
			}
		}
		if n := u.notices(); len(n) != 0 {
			t.Fatalf("notices %+v, want none", n)
		}
	})
}

// The deadline of a session is never later than the broker's end of it: it is
// watched through cuts and freezes until the broker grants the key to another.
func TestSessionDeadlineComesFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		other := open(t, v, lease.SessionOptions{Grace: lease.MaxGrace})
		for _, off := range []time.Duration{0, 300 * time.Millisecond, 999 * time.Millisecond} {
			u := open(t, v, lease.SessionOptions{})
			u.ask(lease.Request{ID: "x", Keys: []string{"k"}, TTL: lease.Forever}).ok()
			next := other.ask(lease.Request{Keys: []string{"k"}})
			time.Sleep(5*time.Second + off)
			u.s.Suspend() // it goes away for good
			deadline := u.s.Deadline()
			l := next.ok()
			if now := time.Now(); now.Before(deadline.Add(lease.Margin(lease.DefaultGrace))) {
				t.Fatalf("granted on at %v, the old holder was safe until %v", now, deadline)
			}
			other.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()
		}
	})
}

// A session without a grace ends with its connection, and what waits goes on in
// the next one.
func TestNoGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		a := open(t, v, lease.SessionOptions{Grace: lease.NoGrace})
		if d := a.s.Deadline(); !d.IsZero() {
			t.Fatalf("deadline %v, want none", d)
		}
		a.ask(one("k")).ok()
		a.ask(lease.Request{ID: "kept", Keys: []string{"kept"}, Detach: true}).ok()
		wait := a.ask(lease.Request{ID: "w", Keys: []string{"k"}})
		wait.pending()
		b.cut()
		wait.ok()
		if n := a.notices(); len(n) != 1 || n[0].ID != "id-k" || n[0].Code != lease.ErrSessionLost {
			t.Fatalf("notices %+v, want the loss of id-k alone", n)
		}
		if n := len(b.holders("kept")); n != 1 {
			t.Fatalf("%d hold the detached lease, want 1", n)
		}
		a.do(lease.Command{Verb: lease.Renew, ID: "kept"}).ok()
	})
}

// What ended while the connection was broken is told after the resume, as what
// it was as far as that can be known.
func TestLossesDuringCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{Grace: time.Minute})
		u.ask(lease.Request{ID: "short", Keys: []string{"short"}, TTL: time.Second}).ok()
		u.ask(lease.Request{ID: "taken", Keys: []string{"taken", "left"}, TTL: time.Hour}).ok()
		b.refuse(errors.New("cut off"))
		b.cut()
		if _, err := b.svc.Force(context.Background(), lease.ForceRequest{Key: "taken"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		b.refuse(nil)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		got := map[string]lease.Code{}
		for _, n := range u.notices() {
			got[n.ID+" "+n.Key] = n.Code
		}
		want := map[string]lease.Code{"short short": lease.ErrExpired, "taken taken": lease.ErrForced}
		if len(got) != len(want) || got["short short"] != want["short short"] || got["taken taken"] != want["taken taken"] {
			t.Fatalf("notices %v, want %v", got, want)
		}
		if l := u.do(lease.Command{Verb: lease.Renew, ID: "taken"}).ok(); len(l.Holds) != 1 || l.Holds[0].Key != "left" {
			t.Fatalf("left %+v", l)
		}
	})
}
