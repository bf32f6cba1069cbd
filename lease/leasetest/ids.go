package leasetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// ids checks request ids: repeats, and who may use a hold (lockd gap 17).
func ids() []test {
	return []test{
		{"RandomWhenAbsent", randomID},
		{"RepeatJoinsTheWaiter", repeatJoins},
		{"RepeatGetsTheSameGrant", repeatSameGrant},
		{"RepeatAfterTheEnd", repeatAfterEnd},
		{"OtherContentIsRefused", otherContent},
		{"ScopedToTheSession", scopedID},
		{"ByIDFromAnywhere", byIDFromAnywhere},
		{"AmbiguousIDIsRefused", ambiguousID},
		{"TokenOnlyFromItsSession", tokenOwnSession},
		{"NeverShown", neverShown},
		{"LongestID", longestID},
	}
}

// A request without an id gets one that cannot be guessed from others.
func randomID(e *env) {
	a := e.join("a")
	seen := map[string]bool{}
	for i := range 50 {
		l := a.hold(fmt.Sprint("k", i))
		if len(l.ID) < 16 || seen[l.ID] {
			e.Fatalf("id %q is short or not new", l.ID)
		}
		seen[l.ID] = true
	}
	l := a.get(named("mine", exclusive("k")))
	if l.ID != "mine" {
		e.Fatalf("id %q, want the request's", l.ID)
	}
}

// A repeat of a waiting request takes no second place in the queue; both are
// answered with the one grant.
func repeatJoins(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	r := named("r", lasting(lease.Forever, exclusive("k")))
	first, again := b.ask(r), b.ask(r)
	first.waits()
	again.waits()
	if k := e.show("k"); len(k.Waiters) != 1 {
		e.Fatalf("%d waiters, want one for both", len(k.Waiters))
	}
	a.release(l)
	one, two := first.granted(), again.granted()
	if one.Token() != two.Token() || one.ID != two.ID || len(e.show("k").Holders) != 1 {
		e.Fatalf("grants %+v and %+v, want the same", one, two)
	}
}

// A repeat of a granted request returns that grant, not a second one, with the
// time that it really has left.
func repeatSameGrant(e *env) {
	a := e.join("a")
	r := named("r", lasting(time.Minute, exclusive("k")))
	l := a.get(r)
	e.pass(20 * time.Second)
	again := a.get(r)
	if again.Token() != l.Token() || len(e.show("k").Holders) != 1 {
		e.Fatalf("repeat: %+v, want %+v", again, l)
	}
	if left := time.Until(again.Deadline); left > 40*time.Second || left < 40*time.Second-slack {
		e.Fatalf("the repeat has %v left, want 40s: it is no renewal", left)
	}
	r.Try = true
	a.get(r)
}

// After the end of a request a repeat says so instead of being granted anew.
func repeatAfterEnd(e *env) {
	a := e.join("a")
	r := named("released", exclusive("k"))
	a.release(a.get(r))
	a.ask(r).failed(lease.ErrOver)

	r = named("expired", lasting(time.Second, exclusive("k")))
	a.get(r)
	e.pass(time.Second + slack)
	a.ask(r).failed(lease.ErrOver)

	r = named("forced", exclusive("k"))
	a.get(r)
	e.force(lease.ForceRequest{Key: "k"})
	a.ask(r).failed(lease.ErrOver)

	l := a.hold("k")
	r = named("timeout", exclusive("k"))
	r.Wait = time.Second
	c := a.ask(r)
	e.pass(time.Second + slack)
	c.failed(lease.ErrTimeout)
	a.ask(r).failed(lease.ErrOver)
	a.release(l)
	e.empty()
}

// The same id with other content is refused, and the first is not disturbed.
func otherContent(e *env) {
	a := e.join("a")
	r := named("r", lasting(time.Minute, counted(2, "k")))
	r.Label = "one"
	a.get(r)
	for what, change := range map[string]func(*lease.Request){
		"keys":  func(r *lease.Request) { r.Keys = []string{"other"} },
		"more":  func(r *lease.Request) { r.Keys = []string{"k", "other"} },
		"mode":  func(r *lease.Request) { r.Mode, r.Limit = lease.Exclusive, 0 },
		"limit": func(r *lease.Request) { r.Limit = 3 },
		"ttl":   func(r *lease.Request) { r.TTL = time.Hour },
		"label": func(r *lease.Request) { r.Label = "two" },
	} {
		other := r
		change(&other)
		if err := a.ask(other).failed(lease.ErrRefused); err.Reason == "" {
			e.Errorf("%s: refused without a reason", what)
		}
	}
	if k := e.show("k"); len(k.Holders) != 1 || len(e.show("other").Holders) != 0 {
		e.Fatalf("key: %+v, want the first request's hold only", k)
	}
	a.get(r)
}

// An id is the session's own: another session's request under it is another.
func scopedID(e *env) {
	a, b := e.join("a"), e.join("b")
	la := a.get(named("same", exclusive("x")))
	lb := b.get(named("same", exclusive("y")))
	if la.Token() == lb.Token() {
		e.Fatal("two sessions share one grant")
	}
	// The session's own comes first.
	b.mustDo(lease.Command{Verb: lease.Release, ID: "same"})
	if len(e.show("x").Holders) != 1 || len(e.show("y").Holders) != 0 {
		e.Fatal("release by id ended the other session's hold")
	}
}

// Whoever knows the id can renew, detach and release, from any session; cancel
// is the session's own.
func byIDFromAnywhere(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(named("secret", lasting(10*time.Second, exclusive("k"))))
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "secret"})
	if len(e.show("k").Holders) != 1 {
		e.Fatal("a cancel from another session ended the hold")
	}
	e.pass(6 * time.Second)
	got := b.mustDo(lease.Command{Verb: lease.Renew, ID: "secret"})
	if got.Token() != l.Token() {
		e.Fatalf("renewed token %d, want %d", got.Token(), l.Token())
	}
	e.pass(6 * time.Second)
	b.mustDo(lease.Command{Verb: lease.Detach, ID: "secret"})
	if k := e.show("k"); len(k.Holders) != 1 || !k.Holders[0].Detached {
		e.Fatalf("key: %+v, want it held and detached", k)
	}
	b.mustDo(lease.Command{Verb: lease.Release, ID: "secret"})
	e.empty()
	e.pass(0)
	if n := a.lost("secret"); len(n) != 1 || n[0].Code != lease.ErrNotHeld || n[0].Token != l.Token() || n[0].By == "" {
		e.Fatalf("the holder was told %+v, want that it was released", n)
	}
	if n := b.notices(); len(n) != 0 {
		e.Fatalf("who released it was told %+v, want nothing", n)
	}
}

// From a third session an id that two others use names nothing.
func ambiguousID(e *env) {
	a, b, c := e.join("a"), e.join("b"), e.join("c")
	a.get(named("same", exclusive("x")))
	b.get(named("same", exclusive("y")))
	c.fails(lease.Command{Verb: lease.Release, ID: "same"}, lease.ErrRefused)
	if len(e.show("x").Holders) != 1 || len(e.show("y").Holders) != 1 {
		e.Fatal("an ambiguous id ended a hold")
	}
}

// A token is shown to everybody, so it opens nothing outside its session.
func tokenOwnSession(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	for _, v := range []lease.Verb{lease.Renew, lease.Release, lease.Detach} {
		b.fails(lease.Command{Verb: v, Token: l.Token()}, lease.ErrNotHeld)
	}
	a.mustDo(lease.Command{Verb: lease.Renew, Token: l.Token()})
	a.mustDo(lease.Command{Verb: lease.Release, Token: l.Token()})
}

// Ids are capabilities: no list, event, or other caller's error shows them.
func neverShown(e *env) {
	a, b := e.join("a"), e.join("b")
	w := e.watch(lease.Query{})
	var seen []string
	a.get(named("hold-secret", exclusive("k")))
	second := a.ask(named("wait-secret", exclusive("k")))
	q := b.ask(named("own", exclusive("k")))
	seen = append(seen, fmt.Sprintf("%+v", q.waits()))
	seen = append(seen, fmt.Sprintf("%+v", b.ask(try(exclusive("k"))).failed(lease.ErrBusy)))
	seen = append(seen, fmt.Sprintf("%+v", e.list(lease.Query{})))
	seen = append(seen, fmt.Sprintf("%+v", e.force(lease.ForceRequest{Key: "k"})))
	a.mustDo(lease.Command{Verb: lease.Release, ID: second.granted().ID})
	for _, ev := range w.events() {
		seen = append(seen, fmt.Sprintf("%+v", ev))
	}
	for _, text := range seen {
		for _, secret := range []string{"hold-secret", "wait-secret", a.s.ID()} {
			if strings.Contains(text, secret) {
				e.Errorf("%q is shown in %s", secret, text)
			}
		}
	}
}

// The longest id works, and is the same to the last byte.
func longestID(e *env) {
	a := e.join("a")
	id := strings.Repeat("i", lease.MaxIDLength)
	a.get(named(id, exclusive("k")))
	a.fails(lease.Command{Verb: lease.Release, ID: id[1:]}, lease.ErrNotHeld)
	a.mustDo(lease.Command{Verb: lease.Release, ID: id})
}
