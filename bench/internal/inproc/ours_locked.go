package inproc

import "github.com/latchkey-go/latchkey/locked"

func oursLocked() []Subject {
	return []Subject{
		{Labels: label(varLoad, varUpdate, "locked.Var Load, Update", varAdd), New: newVar((*locked.Var[Record]).Load)},
		{Labels: label(varPeek, "", "locked.Var Peek, Update", ""), New: newVar((*locked.Var[Record]).Peek)},
		{Labels: label(mapLoad, mapUpdate, "locked.Map Load, Synchronize", mapUpdate), Map: true, New: newMap},
		{Labels: label(keyLoad, keyUpdate, "locked.KeyMap Load, Update", keyAdd), Map: true, New: newKeyMap((*locked.KeyMap[string, Record]).Load)},
		{Labels: label(keyPeek, "", "locked.KeyMap Peek, Update", ""), Map: true, New: newKeyMap((*locked.KeyMap[string, Record]).Peek)},
	}
}

func newVar(read func(*locked.Var[Record]) Record) func(int) (Thing, error) {
	return func(int) (Thing, error) {
		x := &struct {
			_ apart
			r locked.Var[Record]
			_ apart
			n locked.Var[int64]
			_ apart
		}{}
		t := new(trouble)
		_, err := x.r.Update(func(Record) (Record, error) { return *begin(), nil })
		return Thing{
			Worker: func(int) Worker {
				return Worker{
					Read: func() Record { return read(&x.r) },
					Write: func() {
						_, err := x.r.Update(func(old Record) (Record, error) { return after(old), nil })
						t.note(err)
					},
					Add: func() { locked.Add(&x.n, 1) },
				}
			},
			State: func(int) (Record, int64) { return x.r.Load(), x.n.Load() },
			Err:   t.err,
		}, err
	}
}

// initial is what a map holds at first.
func initial() (map[string]Record, map[string]int64) {
	r, n := make(map[string]Record), make(map[string]int64)
	for k := range keys {
		r[name(k)], n[name(k)] = *begin(), 0
	}
	return r, n
}

func newMap(int) (Thing, error) {
	records, numbers := initial()
	r, n := locked.NewMap(records), locked.NewMap(numbers)
	t := new(trouble)
	return Thing{
		Worker: func(key int) Worker {
			k := name(key)
			return Worker{
				Read: func() Record {
					v, _ := r.Load(k)
					return v
				},
				Write: func() {
					t.note(r.Synchronize(func(s *locked.Section[string, Record]) error {
						old, _ := s.Load(k)
						s.Store(k, after(old))
						return nil
					}))
				},
				Add: func() {
					t.note(n.Synchronize(func(s *locked.Section[string, int64]) error {
						old, _ := s.Load(k)
						s.Store(k, old+1)
						return nil
					}))
				},
			}
		},
		State: func(key int) (Record, int64) {
			v, _ := r.Load(name(key))
			count, _ := n.Load(name(key))
			return v, count
		},
		Err: t.err,
	}, nil
}

func newKeyMap(read func(*locked.KeyMap[string, Record], string) (Record, bool)) func(int) (Thing, error) {
	return func(int) (Thing, error) {
		records, numbers := initial()
		r, n := locked.NewKeyMap(records), locked.NewKeyMap(numbers)
		t := new(trouble)
		return Thing{
			Worker: func(key int) Worker {
				k := name(key)
				return Worker{
					Read: func() Record {
						v, _ := read(r, k)
						return v
					},
					Write: func() {
						_, err := r.Update(k, func(old Record, _ bool) (Record, error) { return after(old), nil })
						t.note(err)
					},
					Add: func() { locked.AddTo(n, k, 1) },
				}
			},
			State: func(key int) (Record, int64) {
				v, _ := r.Load(name(key))
				count, _ := n.Load(name(key))
				return v, count
			},
			Err: t.err,
		}, nil
	}
}

const keyMapName = "locked.KeyMap"

func keyMapStore() store {
	m := locked.NewKeyMap[string, Record](nil)
	return store{
		name:   keyMapName,
		put:    m.Store,
		get:    m.Load,
		remove: func(k string) { m.Delete(k) },
	}
}
