package leasetest

import (
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// watches checks that watchers see what happens, in order.
func watches() []test {
	return []test{
		{"EveryKind", everyKind},
		{"ByKeyAndPrefix", watchSelection},
		{"InOrder", watchInOrder},
		{"Stop", watchStop},
		{"Parties", watchParties},
		{"Limit", watchLimit},
		{"MayCallBack", watchMayCallBack},
	}
}

// watcher collects events.
type watcher struct {
	stop func()

	mu  sync.Mutex // guards seen
	got []lease.Event
}

func (e *env) watch(q lease.Query) *watcher {
	e.Helper()
	w := &watcher{}
	stop, err := e.svc.Watch(e.ctx, q, w.put)
	if err != nil {
		e.Fatalf("watch %+v: %v", q, err)
	}
	w.stop = stop
	e.Cleanup(stop)
	return w
}

func (w *watcher) put(ev lease.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, ev)
}

// events returns what was seen since the last call.
func (w *watcher) events() []lease.Event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

// saw fails unless exactly these events, "kind key" each, came since the last look.
func (e *env) saw(w *watcher, want ...string) {
	e.Helper()
	var got []string
	for _, ev := range w.events() {
		got = append(got, fmt.Sprintf("%s %s", ev.Kind, ev.Key))
	}
	if !slices.Equal(got, want) {
		e.Fatalf("events %q, want %q", got, want)
	}
}

// Everything that can happen to a key is an event.
func everyKind(e *env) {
	a, b := e.join("a"), e.joinAs(lease.SessionOptions{Name: "b", Grace: time.Second})
	w := e.watch(lease.Query{})
	l := a.hold("k")
	e.saw(w, "granted k")
	c := b.ask(named("c", lasting(time.Second, exclusive("k"))))
	c.waits()
	e.saw(w, "queued k")
	a.release(l)
	e.saw(w, "released k", "granted k")
	b.alive(900*time.Millisecond, 300*time.Millisecond)
	e.saw(w)
	b.alive(100*time.Millisecond+slack, 300*time.Millisecond)
	e.saw(w, "expired k")
	b.hold("k")
	e.force(lease.ForceRequest{Key: "k"})
	e.saw(w, "granted k", "forced k")
	l = b.hold("k")
	b.mustDo(lease.Command{Verb: lease.Detach, ID: l.ID})
	e.saw(w, "granted k", "detached k")
	b.ask(named("d", exclusive("k")))
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "d"})
	e.saw(w, "queued k", "dequeued k")
	b.release(l)
	b.hold("k")
	e.saw(w, "released k", "granted k")
	b.suspend()
	e.pass(time.Second + slack)
	e.saw(w, "ended k")
}

// A watch sees the keys it selects and no others.
func watchSelection(e *env) {
	a := e.join("a")
	one, pre, all := e.watch(lease.Query{Key: "b"}), e.watch(lease.Query{Prefix: "b"}), e.watch(lease.Query{})
	a.hold("a", "b", "b/1", "c")
	e.saw(one, "granted b")
	e.saw(pre, "granted b", "granted b/1")
	e.saw(all, "granted a", "granted b", "granted b/1", "granted c")
}

// A key's events come in the order in which they happened: a holder's end before
// the next grant, tokens rising.
func watchInOrder(e *env) {
	a, b := e.join("a"), e.join("b")
	w := e.watch(lease.Query{Key: "k"})
	l := a.hold("k")
	var calls []*call
	for range 50 {
		calls = append(calls, b.want("k"))
	}
	a.release(l)
	for _, c := range calls {
		b.release(c.granted())
	}
	var last lease.Token
	held := false
	for i, ev := range w.events() {
		switch ev.Kind {
		case lease.EventGranted:
			if held || ev.Token <= last {
				e.Fatalf("event %d: %+v after token %d, held %v", i, ev, last, held)
			}
			held, last = true, ev.Token
		case lease.EventReleased:
			if !held || ev.Token != last {
				e.Fatalf("event %d: %+v, want the end of token %d", i, ev, last)
			}
			held = false
		}
	}
	if last == 0 {
		e.Fatal("no event")
	}
}

// After stop nothing comes any more; a second stop is harmless.
func watchStop(e *env) {
	a := e.join("a")
	w := e.watch(lease.Query{})
	l := a.hold("k")
	e.saw(w, "granted k")
	w.stop()
	synctest.Wait()
	a.release(l)
	e.saw(w)
	w.stop()
	a.hold("k")
	e.saw(w)
}

// An event carries who, mode, token, how long it took, and why a waiter left.
func watchParties(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Host: "h", PID: 3})
	w := e.watch(lease.Query{})
	r := counted(2, "k")
	r.Label = "job"
	l := a.get(r)
	ev := w.events()[0]
	want := lease.Event{Kind: lease.EventGranted, Party: lease.Party{Session: "a", Host: "h", PID: 3, Label: "job"},
		Key: "k", Mode: lease.Counted, Limit: 2, Token: l.Token()}
	if ev != want {
		e.Fatalf("event %+v, want %+v", ev, want)
	}
	bounded := exclusive("k")
	bounded.Wait = time.Second
	a.ask(bounded)
	e.pass(2 * time.Second)
	evs := w.events()
	if len(evs) != 2 || evs[1].Code != lease.ErrTimeout || evs[1].Token != 0 {
		e.Fatalf("events %+v, want queued and dequeued with timeout", evs)
	}
	e.about("waited", evs[1].After, time.Second)
	a.release(l)
	e.about("held", w.events()[0].After, 2*time.Second)
}

// The number of watches is bounded, and a stopped one makes room.
func watchLimit(e *env) {
	var stops []func()
	nothing := func(lease.Event) {}
	for i := range lease.MaxWatches {
		stop, err := e.svc.Watch(e.ctx, lease.Query{Key: "k"}, nothing)
		if err != nil {
			e.Fatalf("watch %d: %v", i, err)
		}
		stops = append(stops, stop)
	}
	if _, err := e.svc.Watch(e.ctx, lease.Query{}, nothing); lease.CodeOf(err) != lease.ErrRefused {
		e.Fatalf("one watch too many: %v, want refused", err)
	}
	stops[0]()
	synctest.Wait()
	stop, err := e.svc.Watch(e.ctx, lease.Query{}, nothing)
	if err != nil {
		e.Fatalf("after one was stopped: %v", err)
	}
	stop()
	for _, s := range stops {
		s()
	}
}

// A watcher may call the service from its callback.
func watchMayCallBack(e *env) {
	a := e.join("a")
	var once sync.Once
	done := make(chan error, 1)
	stop, err := e.svc.Watch(e.ctx, lease.Query{Key: "k"}, func(lease.Event) {
		once.Do(func() {
			a.s.Do(lease.Command{Verb: lease.Ping}, func(_ lease.Lease, err error) { done <- err })
		})
	})
	if err != nil {
		e.Fatal(err)
	}
	defer stop()
	a.hold("k")
	if err := <-done; err != nil {
		e.Fatal(err)
	}
}
