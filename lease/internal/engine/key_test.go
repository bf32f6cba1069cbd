package engine

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// A command with an id and a key reaches that key's hold only; with a key that
// the id does not hold it reaches nothing.
func TestCommandOnOneKey(t *testing.T) {
	w := newWorld(t, Config{})
	s, other := w.session("s"), w.session("other")
	w.granted(w.acquire(s, lease.Request{ID: "i", Keys: []string{"a", "b"}}), "grant")
	for _, v := range []lease.Verb{lease.Renew, lease.Release, lease.Detach} {
		if _, err := w.do(other, lease.Command{Verb: v, ID: "i", Key: "c"}); !errors.Is(err, lease.ErrNotHeld) {
			t.Errorf("%s of a key that is not held: %v, want not held", v, err)
		}
	}
	l, err := w.do(other, lease.Command{Verb: lease.Release, ID: "i", Key: "b"})
	if err != nil || len(l.Holds) != 1 || l.Holds[0].Key != "b" {
		t.Fatalf("release of b: %v, %v", l, err)
	}
	w.granted(w.acquire(other, lease.Request{ID: "j", Keys: []string{"b"}, Try: true}), "b is free")
	if a := w.acquire(other, lease.Request{ID: "k", Keys: []string{"a"}, Try: true}); !errors.Is(a.err, lease.ErrBusy) {
		t.Fatalf("a: %v, want busy", a.err)
	}
}
