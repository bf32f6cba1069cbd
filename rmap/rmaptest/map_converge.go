package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapConverges checks that after quiet all copies are the store, and that what subscribers were told comes to the same.
func mapConverges() []test {
	return []test{
		{"Steady", func(e *env) { converge(e, false) }},
		{"WithCuts", func(e *env) { converge(e, true) }},
	}
}

// A crowd is many copies of one map, of several types, with writers that do whatever a map can do.
type crowd struct {
	e     *env
	seed  uint64
	links []*link
	texts []*rmap.Map[string, string]
	ints  []*rmap.Map[string, int]
	lists []*rmap.Map[string, []string]
	raws  []*rmap.Map[string, rmap.Value]
	ends  []func() // each waits for a replay and compares it
}

func converge(e *env, cuts bool) {
	c := &crowd{e: e, seed: rand.Uint64()}
	if s := os.Getenv("LATCHKEY_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			e.Fatalf("LATCHKEY_SEED: %v", err)
		}
		c.seed = n
	}
	defer func() {
		if e.Failed() {
			e.Logf("to run it again: LATCHKEY_SEED=%d", c.seed)
		}
	}()
	for i := range 4 {
		l := newLink([]rmap.Store{e.first, e.second}[i%2])
		c.links = append(c.links, l)
		c.texts = append(c.texts, follow(c, l, texts{Heartbeat: 50 * time.Millisecond}, i))
		c.ints = append(c.ints, follow(c, l, numbers{ReloadJitter: -1}, i))
		c.lists = append(c.lists, follow(c, l, listings{}, i))
		c.raws = append(c.raws, follow(c, l, raws{ReloadJitter: time.Millisecond}, i))
	}
	c.traffic(cuts)
	c.settle()
	for _, end := range c.ends {
		end()
	}
}

// follow joins a map over a link, with a subscriber that replays what it is told.
func follow[V any](c *crowd, l *link, o rmap.Options[string, V], i int) *rmap.Map[string, V] {
	m := joined(c.e, l, o)
	r := &replay[V]{e: c.e, m: m, entries: make(map[string]V), done: make(chan struct{})}
	seq := m.Watch(c.e.ctx, rmap.WatchOptions{Events: []int{0, 8, 10000, 1}[i]})
	go r.run(seq)
	c.ends = append(c.ends, r.compare)
	return m
}

// traffic has writers at every copy, for a while.
func (c *crowd) traffic(cuts bool) {
	var writers, cutter sync.WaitGroup
	ctx, cancel := context.WithCancel(c.e.ctx)
	for i := range c.texts {
		rng := rand.New(rand.NewPCG(c.seed, uint64(i)))
		writers.Go(func() {
			for range 250 {
				if err := c.act(rng, i); err != nil {
					c.e.Errorf("writer %d: %v", i, err)
				}
				if rng.IntN(4) == 0 {
					c.e.pass(time.Duration(rng.IntN(2000)) * time.Microsecond)
				}
			}
		})
	}
	if cuts {
		rng := rand.New(rand.NewPCG(c.seed, 1000))
		cutter.Go(func() {
			for ctx.Err() == nil {
				l := c.links[rng.IntN(len(c.links))]
				l.cut()
				c.e.pass(time.Duration(rng.IntN(20)) * time.Millisecond)
				l.mend()
				c.e.pass(time.Duration(rng.IntN(5)) * time.Millisecond)
			}
		})
	}
	writers.Wait()
	cancel()
	cutter.Wait()
}

// act does one thing at random. Errors that such a mixture must bring are none.
func (c *crowd) act(rng *rand.Rand, i int) error {
	ctx, key := c.e.ctx, fmt.Sprint("key ", rng.IntN(12))
	text, number := c.texts[i], c.ints[i]
	word := fmt.Sprint("v", rng.IntN(5))
	ttl := time.Duration(1+rng.IntN(30)) * time.Millisecond
	var err error
	switch rng.IntN(22) {
	case 0, 1:
		_, err = text.Set(ctx, key, word)
	case 2:
		_, err = text.SetTTL(ctx, key, word, ttl)
	case 3:
		_, _, _, err = text.Swap(ctx, key, word)
	case 4:
		_, err = text.SetIfAbsent(ctx, key, word)
	case 5:
		_, err = text.CompareAndSet(ctx, key, word, word+"x")
	case 6:
		r, _ := text.Snapshot().RevisionOf(key)
		_, err = text.SetAtRevision(ctx, key, r, word)
	case 7:
		_, err = text.Delete(ctx, key)
	case 8:
		_, _, _, err = text.Take(ctx, key)
	case 9:
		_, err = text.CompareAndDelete(ctx, key, word)
	case 10:
		_, _, err = text.Update(ctx, key, func(old string, _ bool) (string, error) { return old[:min(4, len(old))] + "u", nil })
	case 11, 12:
		_, _, err = rmap.Inc(ctx, number, key, rng.IntN(9)-4)
	case 13:
		_, err = number.SetTTL(ctx, key, rng.IntN(100), ttl)
	default:
		err = c.actMore(rng, i, key, word)
	}
	for _, usual := range []error{rmap.ErrConflict, rmap.ErrKind, rmap.ErrDecode} {
		if errors.Is(err, usual) {
			return nil
		}
	}
	return err
}

func (c *crowd) actMore(rng *rand.Rand, i int, key, word string) (err error) {
	ctx, text, lists, raw := c.e.ctx, c.texts[i], c.lists[i], c.raws[i]
	switch rng.IntN(8) {
	case 0:
		_, _, err = rmap.Append(ctx, lists, key, word)
	case 1:
		_, _, err = rmap.AppendUnique(ctx, lists, key, word, "one more")
	case 2:
		_, _, err = rmap.Remove(ctx, lists, key, word)
	case 3:
		_, err = raw.Batch().Delete(key).Set("a"+key, list(word)).Set("b"+key, integer("1")).Set("c"+key, plain(word)).Write(ctx)
	case 4:
		_, err = text.Batch().IfPresent(key).SetKeepTTL(key, word).Delete("a"+key).SetTTL("b"+key, word, 20*time.Millisecond).Write(ctx)
	case 5:
		_, err = raw.Batch().Set(key, plain(word)).Reset().Set(key, list(word)).Write(ctx)
	case 6:
		_, err = text.TestAndReset(ctx, map[string]string{key: word})
	case 7:
		if rng.IntN(10) == 0 {
			_, err = text.Destroy(ctx)
		}
	}
	return err
}

// settle waits until nothing is about to end, makes all copies current, and compares each with the store.
func (c *crowd) settle() {
	e := c.e
	for _, l := range c.links {
		l.mend()
	}
	e.until("nothing is about to end", func() bool {
		for _, x := range e.scan(e.first, e.name) {
			if x.Deadline != 0 {
				return false
			}
		}
		return true
	})
	stored := e.scan(e.second, e.name)
	for i := range c.links {
		compareCopy(e, c.raws[i], stored, func(v rmap.Value) (rmap.Value, bool) { return v, true })
		compareCopy(e, c.texts[i], stored, func(v rmap.Value) (string, bool) { return v.Data, v.Kind == rmap.Plain })
		compareCopy(e, c.ints[i], stored, func(v rmap.Value) (int, bool) {
			n, err := strconv.Atoi(v.Data)
			return n, err == nil && v.Kind == rmap.Integer
		})
		compareCopy(e, c.lists[i], stored, func(v rmap.Value) ([]string, bool) {
			items, err := rmap.DecodeList(v.Data)
			return items, err == nil && v.Kind == rmap.List
		})
	}
	e.did(c.raws[0].Set(e.ctx, "the end", plain("v")))
}

// compareCopy syncs a copy and holds it against what the store has, as its type sees it.
func compareCopy[V any](e *env, m *rmap.Map[string, V], stored map[string]rmap.Entry, see func(rmap.Value) (V, bool)) {
	e.Helper()
	e.synced(m)
	want := make(map[string]V)
	for key, x := range stored {
		if v, ok := see(x.Value); ok {
			want[key] = v
		}
	}
	s := m.Snapshot()
	got := maps.Collect(s.All())
	if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		e.Errorf("at %v a copy is\n%s\nand the store\n%s", s.Revision(), text(got), text(want))
	}
	if broken := len(maps.Collect(s.Broken())); broken != len(stored)-len(want) {
		e.Errorf("%d are broken in a copy, want %d", broken, len(stored)-len(want))
	}
	for key, x := range stored {
		if r, _ := s.RevisionOf(key); r.Number != x.Number || r.Nonce != x.Nonce {
			e.Errorf("%q was written by %v here, and by number %d there", key, r, x.Number)
		}
	}
}

// A replay makes a map of what a subscriber is told, as one must who keeps something beside the copy.
type replay[V any] struct {
	e       *env
	m       *rmap.Map[string, V]
	entries map[string]V
	base    rmap.Revision // of the last whole reading: events up to it are in the entries
	last    rmap.Revision
	rereads int
	ended   bool          // the last entry was in the last whole reading
	done    chan struct{} // closed when the last event has been seen
}

func (r *replay[V]) run(events func(func(rmap.Event[string, V]) bool)) {
	r.reread()
	for ev := range events {
		r.take(ev)
		if r.ended || ev.Key == "the end" {
			close(r.done)
			return
		}
	}
}

func (r *replay[V]) reread() {
	s := r.m.Snapshot()
	r.entries, r.base = maps.Collect(s.All()), s.Revision()
	_, r.ended = s.RevisionOf("the end") // broken or not
	r.rereads++
}

// take does with an event what its documentation says.
func (r *replay[V]) take(ev rmap.Event[string, V]) {
	if at := r.m.Snapshot().Revision(); at.Generation == ev.Revision.Generation && at.Number < ev.Revision.Number {
		r.e.Errorf("the event %v was told while readers still saw %v", ev, at)
	}
	if ev.Revision.Generation == r.last.Generation && ev.Revision.Number < r.last.Number {
		r.e.Errorf("the event %v came after one of %v", ev, r.last)
	}
	r.last = ev.Revision
	// What was read has all of a change. The rest of that change's events, or all of them, may come again, which alters
	// nothing once the last has come; and what ends later at that revision is told under it as well.
	same := ev.Revision.Generation == r.base.Generation
	if same && ev.Revision.Number < r.base.Number && ev.Key != "" {
		return
	}
	exact := !same || ev.Revision.Number > r.base.Number
	switch ev.Cause {
	case rmap.CauseReset, rmap.CauseReload, rmap.CauseAgain:
		r.reread()
	case rmap.CauseSet:
		if r.check(ev, exact); !ev.HasNew {
			r.e.Errorf("the event %v has no new value", ev)
		}
		r.entries[ev.Key] = ev.New
	case rmap.CauseExpire, rmap.CauseDelete:
		r.check(ev, exact)
		delete(r.entries, ev.Key)
	case rmap.CauseBroken:
		delete(r.entries, ev.Key)
	default:
		r.e.Errorf("an event has the cause %v", ev.Cause)
	}
}

// check compares the old value of an event with what the replay has, unless the event may be repeated.
func (r *replay[V]) check(ev rmap.Event[string, V], exact bool) {
	old, has := r.entries[ev.Key]
	if exact && (has != ev.HasOld || has && !reflect.DeepEqual(old, ev.Old)) {
		r.e.Errorf("the event %v says that there was %v (%t), the events before it come to %v (%t)", ev, ev.Old, ev.HasOld, old, has)
	}
}

// compare waits for the last event, and holds the replay against the copy.
func (r *replay[V]) compare() {
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		r.e.Errorf("a subscriber was not told of the end: at %v of %v, %+v", r.last, r.m.Snapshot().Revision(), r.m.Stats())
		return
	}
	got := maps.Collect(r.m.All())
	if len(got) != len(r.entries) || len(got) > 0 && !reflect.DeepEqual(got, r.entries) {
		r.e.Errorf("after %d readings the events come to\n%s\nand the copy is\n%s", r.rereads, text(r.entries), text(got))
	}
}
