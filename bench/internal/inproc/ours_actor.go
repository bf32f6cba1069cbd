package inproc

import (
	"context"

	"github.com/latchkey-go/latchkey/actor"
)

func oursActor() []Subject {
	return []Subject{
		{Labels: everywhere(objectAsk), New: func(int) (Thing, error) { return newObject(false) }},
		{Labels: label("", objTell, "", objTell), New: func(int) (Thing, error) { return newObject(true) }},
		{Labels: everywhere(actMapAsk), Map: true, New: func(int) (Thing, error) { return newActorMap(false) }},
		{Labels: label("", actorTell, "", actorTell), Map: true, New: func(int) (Thing, error) { return newActorMap(true) }},
	}
}

// owned is what the owner of an object owns.
type owned struct {
	r *Record
	n int64
}

func newObject(tell bool) (Thing, error) {
	t := new(trouble)
	ctx := context.Background()
	o, err := actor.New(ctx, func() (*owned, error) { return &owned{r: begin()}, nil }, actor.Options{Name: "bench", OnError: t.note})
	read := func(x *owned) (Record, error) { return *x.r, nil }
	write := func(x *owned) error { x.r = next(x.r); return nil }
	add := func(x *owned) error { x.n++; return nil }
	ask := func() Record {
		r, err := actor.Ask(ctx, o, read)
		t.note(err)
		return r
	}
	w := Worker{
		Read:  ask,
		Write: func() { t.note(o.Do(ctx, write)) },
		Add:   func() { t.note(o.Do(ctx, add)) },
	}
	if tell {
		w.Write = func() { t.note(o.Tell(ctx, write)) }
		w.Add = func() { t.note(o.Tell(ctx, add)) }
		w.Flush = func() { ask() }
	}
	return Thing{
		Worker: func(int) Worker { return w },
		State: func(int) (Record, int64) {
			n, err := actor.Ask(ctx, o, func(x *owned) (int64, error) { return x.n, nil })
			t.note(err)
			return ask(), n
		},
		Err:   t.err,
		Close: func() error { return o.Close(ctx) },
	}, err
}

// entry is a value and a number in a map that its owner changes in place.
type entry struct {
	r *Record
	n int64
}

func newActorMap(tell bool) (Thing, error) {
	t := new(trouble)
	ctx := context.Background()
	all := make(map[string]*entry)
	for k := range keys {
		all[name(k)] = &entry{r: begin()}
	}
	m, err := actor.NewMap(all, actor.Options{Name: "bench", OnError: t.note})
	worker := func(key int) Worker {
		k := name(key)
		write := func(s map[string]*entry) error { e := s[k]; e.r = next(e.r); return nil }
		add := func(s map[string]*entry) error { s[k].n++; return nil }
		ask := func() Record {
			r, err := actor.Ask(ctx, m, func(s map[string]*entry) (Record, error) { return *s[k].r, nil })
			t.note(err)
			return r
		}
		w := Worker{
			Read:  ask,
			Write: func() { t.note(m.Do(ctx, write)) },
			Add:   func() { t.note(m.Do(ctx, add)) },
		}
		if tell {
			w.Write = func() { t.note(m.Tell(ctx, write)) }
			w.Add = func() { t.note(m.Tell(ctx, add)) }
			w.Flush = func() { ask() }
		}
		return w
	}
	return Thing{
		Worker: worker,
		State: func(key int) (Record, int64) {
			n, err := actor.Ask(ctx, m, func(s map[string]*entry) (int64, error) { return s[name(key)].n, nil })
			t.note(err)
			return worker(key).Read(), n
		},
		Err:   t.err,
		Close: func() error { return m.Close(ctx) },
	}, err
}
