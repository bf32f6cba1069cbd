package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

// Limit is a value of the examples. It is kept as JSON.
type Limit struct {
	PerSecond int
	Burst     int
}

func Example() {
	ctx := context.Background()
	store := rmaplocal.New(rmaplocal.Options{}) // with many processes: rmapredis.Open(ctx, "redis://localhost:6379", ...)
	defer store.Close()
	limits, err := rmap.Join(ctx, store, "limits", rmap.Options[string, Limit]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()

	if _, err := limits.SetAndWait(ctx, "search", Limit{PerSecond: 100, Burst: 20}); err != nil {
		fmt.Println(err)
		return
	}
	search, ok := limits.Get("search") // in nanoseconds, from this process's memory
	fmt.Println(search.PerSecond, ok)
	// Output: 100 true
}

// joinExample gives an example a map of its own, and what closes it.
func joinExample[V any](o rmap.Options[string, V]) (*rmap.Map[string, V], func()) {
	store := rmaplocal.New(rmaplocal.Options{})
	m, err := rmap.Join(context.Background(), store, "example", o)
	if err != nil {
		panic(err)
	}
	return m, func() { m.Close(); store.Close() }
}

func ExampleMap_Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, leave := joinExample(rmap.Options[string, string]{})
	defer leave()

	events := m.Watch(ctx, rmap.WatchOptions{})
	m.Set(ctx, "color", "blue")
	m.Set(ctx, "color", "green")
	m.Delete(ctx, "color")
	m.Reset(ctx) // there is nothing left: no change, and no event
	m.Set(ctx, "shape", "round")
	for e := range events {
		switch e.Cause {
		case rmap.CauseSet:
			fmt.Printf("%s: %q -> %q\n", e.Key, e.Old, e.New)
		case rmap.CauseDelete, rmap.CauseExpire:
			fmt.Printf("%s: %q is gone by %v\n", e.Key, e.Old, e.Cause)
		case rmap.CauseReset, rmap.CauseReload, rmap.CauseAgain:
			fmt.Println("read everything again:", m.Snapshot().Len())
		}
		if e.Key == "shape" {
			break
		}
	}
	// Output:
	// color: "" -> "blue"
	// color: "blue" -> "green"
	// color: "green" is gone by delete
	// shape: "" -> "round"
}

func ExampleMap_WaitFor() {
	ctx := context.Background()
	store := rmaplocal.New(rmaplocal.Options{})
	defer store.Close()
	here, err := rmap.Join(ctx, store, "orders", rmap.Options[string, string]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer here.Close()
	there, err := rmap.Join(ctx, store, "orders", rmap.Options[string, string]{}) // another process, say
	if err != nil {
		fmt.Println(err)
		return
	}
	defer there.Close()

	revision, err := here.Set(ctx, "ann", "tea")
	if err != nil {
		fmt.Println(err)
		return
	}
	header := revision.String() // goes along with the request

	carried, err := rmap.ParseRevision(header)
	if err == nil {
		err = there.WaitFor(ctx, carried)
	}
	order, _ := there.Get("ann")
	fmt.Println(order, err)
	// Output: tea <nil>
}

func ExampleMap_Sync() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, int]{})
	defer leave()
	m.Set(ctx, "answer", 42) // by any process, at any time before the call of Sync

	err := m.Sync(ctx)
	answer, ok := m.Get("answer")
	fmt.Println(answer, ok, err)
	// Output: 42 true <nil>
}

func ExampleMap_Lookup() {
	m, leave := joinExample(rmap.Options[string, int]{MaxStale: 10 * time.Second})
	defer leave()

	_, err := m.Lookup("unset")
	switch {
	case errors.Is(err, rmap.ErrAbsent):
		fmt.Println("there is no such key")
	case errors.Is(err, rmap.ErrStale):
		fmt.Println("the copy is older than ten seconds")
	}
	// Output: there is no such key
}

func ExampleMap_Update() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, Limit]{})
	defer leave()

	limit, _, err := m.Update(ctx, "search", func(old Limit, ok bool) (Limit, error) {
		if !ok {
			old = Limit{PerSecond: 10}
		}
		old.PerSecond *= 2
		return old, nil
	})
	fmt.Println(limit.PerSecond, err)
	// Output: 20 <nil>
}

func ExampleMap_SetIfAbsent() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, string]{})
	defer leave()

	for _, name := range []string{"ann", "ben"} {
		_, err := m.SetIfAbsent(ctx, "owner", name)
		if errors.Is(err, rmap.ErrConflict) {
			fmt.Println(name, "was too late:", rmap.OutcomeOf(err))
		}
	}
	// Output: ben was too late: not applied
}

func ExampleMap_SetAtRevision() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, string]{})
	defer leave()
	m.SetAndWait(ctx, "page", "first draft")

	s := m.Snapshot()
	text, _ := s.Get("page")
	at, _ := s.RevisionOf("page") // goes along to the editor
	m.Set(ctx, "page", "somebody else's draft")
	_, err := m.SetAtRevision(ctx, "page", at, text+", corrected")
	fmt.Println(errors.Is(err, rmap.ErrConflict))
	// Output: true
}

func ExampleMap_SetTTL() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, string]{})
	defer leave()

	events := m.Watch(ctx, rmap.WatchOptions{})
	if _, err := m.SetTTL(ctx, "session", "ann", 20*time.Millisecond); err != nil {
		fmt.Println(err)
		return
	}
	for e := range events {
		fmt.Println(e.Cause, e.Key)
		if e.Cause == rmap.CauseExpire {
			break
		}
	}
	_, ok := m.Get("session")
	fmt.Println(ok)
	// Output:
	// set session
	// expire session
	// false
}

func ExampleMap_Batch() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, string]{})
	defer leave()
	m.Set(ctx, "primary", "a")

	r, err := m.Batch().IfValue("primary", "a").Set("primary", "b").Set("former", "a").Write(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := m.WaitFor(ctx, r); err != nil {
		fmt.Println(err)
		return
	}
	all := maps.Collect(m.All()) // of one revision
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Println(key, all[key])
	}
	// Output:
	// former a
	// primary b
}

func ExampleInc() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, int]{})
	defer leave()

	rmap.Inc(ctx, m, "visits", 1)
	n, _, err := rmap.Inc(ctx, m, "visits", 2)
	fmt.Println(n, err)
	// Output: 3 <nil>
}

func ExampleAppendUnique() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, []string]{})
	defer leave()

	rmap.Append(ctx, m, "hosts", "a", "b")
	list, _, err := rmap.AppendUnique(ctx, m, "hosts", "b", "c")
	fmt.Println(list, err)
	list, _, err = rmap.Remove(ctx, m, "hosts", "a")
	fmt.Println(list, err)
	// Output:
	// [a b c] <nil>
	// [b c] <nil>
}

func ExampleOutcomeOf() {
	ctx := context.Background()
	m, leave := joinExample(rmap.Options[string, string]{})
	leave()

	_, err := m.Set(ctx, "key", "value")
	switch rmap.OutcomeOf(err) {
	case rmap.NotApplied:
		fmt.Println("nothing was written:", errors.Is(err, rmap.ErrClosed))
	case rmap.Unknown:
		fmt.Println("read again, and decide")
	}
	// Output: nothing was written: true
}
