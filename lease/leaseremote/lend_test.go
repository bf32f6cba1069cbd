package leaseremote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// lone makes a pair as a blocking caller does, and lends itself.
func (w *waiter) lone(r lease.Request) error {
	w.s.Acquire(r, w)
	w.s.(*session).Lend()
	if err := <-w.got; err != nil {
		return err
	}
	w.s.Do(lease.Command{Verb: lease.Release, ID: w.l.ID}, w.done)
	w.s.(*session).Lend()
	return <-w.got
}

// A lone caller reads its own answers once it has shown to be alone; what comes
// between its calls is read by the keeper, at most 32 ms late.
func TestLoneCallerReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		b.lend = true
		u := open(t, b.connect(), lease.SessionOptions{})
		s := u.s.(*session)
		w := newWaiter(s)
		for i := range 100 {
			if err := w.lone(lease.Request{Keys: []string{"k"}}); err != nil {
				t.Fatal(err)
			}
			s.mu.Lock()
			rests := s.lent.rests
			s.mu.Unlock()
			if i > 0 && !rests {
				t.Fatalf("after %d pairs the keeper still reads", i+1)
			}
		}
		u.ask(one("k")).ok()
		if _, err := b.svc.Force(t.Context(), lease.ForceRequest{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*restMost + time.Microsecond)
		synctest.Wait()
		if n := u.notices(); len(n) != 1 || n[0].Code != lease.ErrForced {
			t.Fatalf("notices %+v, want the force", n)
		}
	})
}

// A caller that lent itself is not kept for long, whatever happens: its request
// waits, the broker is silent, the connection breaks, the session is closed.
func TestLentCallerComesBack(t *testing.T) {
	for name, happens := range map[string]func(b *broker, u *user){
		"queued":  func(b *broker, u *user) {},
		"frozen":  func(b *broker, u *user) { b.freeze() },
		"cut":     func(b *broker, u *user) { b.cut() },
		"gone":    func(b *broker, u *user) { b.refuse(errors.New("gone")); b.cut() },
		"closed":  func(b *broker, u *user) { u.s.Close(nil) },
		"suspend": func(b *broker, u *user) { u.s.Suspend() },
	} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			b.lend = true
			v := b.connect()
			u, other := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
			w := newWaiter(u.s)
			for range 3 {
				if err := w.lone(lease.Request{Keys: []string{"k"}}); err != nil {
					t.Fatal(err)
				}
			}
			l := other.ask(one("k")).ok()
			start := time.Now()
			w.s.Acquire(lease.Request{ID: "x", Keys: []string{"k"}}, w)
			happens(b, u)
			u.s.(*session).Lend()
			if d := time.Since(start); d > 2*lendFor {
				t.Fatalf("%s: the caller was kept for %v", name, d)
			}
			b.refuse(nil)
			time.Sleep(time.Second)
			other.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()
			switch name {
			case "closed":
				if err := <-w.got; !errors.Is(err, lease.ErrClosed) {
					t.Fatalf("%s: %v", name, err)
				}
			case "suspend":
			default:
				if err := <-w.got; err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		})
	}
}

// Lone callers, several callers and callers that do not lend themselves take
// turns while connections are cut: every call is answered, and none waits for a
// reader that nobody is.
func TestLendingUnderChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		b.lend = true
		u := open(t, b.connect(), lease.SessionOptions{})
		for round := range 40 {
			var all sync.WaitGroup
			for i := range 1 + round%4 {
				all.Add(1)
				go func() {
					defer all.Done()
					w := newWaiter(u.s)
					for n := range 30 {
						r := lease.Request{ID: fmt.Sprint(round, i, n), Keys: []string{fmt.Sprint(i)}}
						start := time.Now()
						var err error
						if n%10 == 9 {
							err = w.pair(r.Keys)
						} else {
							err = w.lone(r)
						}
						if err != nil {
							t.Error(err)
						}
						if d := time.Since(start); d > 100*time.Millisecond && round%5 != 4 {
							t.Errorf("a pair took %v", d)
						}
					}
				}()
			}
			if round%5 == 4 {
				b.cut()
			}
			all.Wait()
			time.Sleep(time.Second)
		}
	})
}

// BenchmarkLonePair is BenchmarkPair by a caller that reads its own answers.
func BenchmarkLonePair(b *testing.B) {
	v, err := Dial(context.Background(), serve(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	s, err := v.Open(context.Background(), lease.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	w, r := newWaiter(s), lease.Request{Keys: []string{"bench/key"}}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := w.lone(r); err != nil {
			b.Fatal(err)
		}
	}
}
