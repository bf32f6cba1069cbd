package locked

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A KeyMap does what a map does, whatever is done to it, failures of functions included.
func TestKeyMapModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.MapOf(rapid.IntRange(0, 50), rapid.Int()).Draw(t, "initial")
		m := NewKeyMap(model)
		model = maps.Clone(model)
		key := func(t *rapid.T) int { return rapid.IntRange(0, 200).Draw(t, "key") }
		value := func(t *rapid.T) int { return rapid.Int().Draw(t, "value") }
		check := func(t *rapid.T, what string, v int, ok bool, key int) {
			if want, there := model[key]; v != want || ok != there {
				t.Fatalf("%s gives %d, %v, want %d, %v", what, v, ok, want, there)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"Store": func(t *rapid.T) {
				k, v := key(t), value(t)
				m.Store(k, v)
				model[k] = v
			},
			"Load": func(t *rapid.T) {
				k := key(t)
				v, ok := m.Load(k)
				check(t, "Load", v, ok, k)
				v, ok = m.Peek(k)
				check(t, "Peek", v, ok, k)
				check(t, "Contains", v, m.Contains(k), k)
				if got := m.LoadOr(k, func() int { return -1 }); ok && got != v || !ok && got != -1 {
					t.Fatalf("LoadOr gives %d", got)
				}
			},
			"Update": func(t *rapid.T) {
				k, v := key(t), value(t)
				fail := rapid.SampledFrom([]string{"", "", "", "error", "panic", "goexit"}).Draw(t, "ending")
				ended(func() error {
					_, err := m.Update(k, func(old int, ok bool) (int, error) {
						check(t, "the function of Update", old, ok, k)
						if fail != "" {
							return v, endings[fail]()
						}
						return v, nil
					})
					return err
				})
				if fail == "" {
					model[k] = v
				}
			},
			"GetOrCreate": func(t *rapid.T) {
				k, v := key(t), value(t)
				got, err := m.GetOrCreate(k, func() (int, error) { return v, nil })
				if _, ok := model[k]; !ok {
					model[k] = v
				}
				check(t, "GetOrCreate", got, err == nil, k)
			},
			"AddTo": func(t *rapid.T) {
				k, v := key(t), value(t)
				got := AddTo(m, k, v)
				model[k] += v
				check(t, "AddTo", got, true, k)
			},
			"Delete": func(t *rapid.T) {
				k := key(t)
				v, ok := m.Delete(k)
				check(t, "Delete", v, ok, k)
				delete(model, k)
			},
			"DeleteIf": func(t *rapid.T) {
				k, want := key(t), rapid.SampledFrom([]string{"yes", "no", "panic", "goexit"}).Draw(t, "answer")
				var v int
				var gone, asked bool
				ended(func() error {
					v, gone = m.DeleteIf(k, func(v int) bool {
						asked = true
						check(t, "the function of DeleteIf", v, true, k)
						return want == "yes" || want != "no" && endings[want]() == nil
					})
					return nil
				})
				if _, there := model[k]; asked != there || gone != (there && want == "yes") {
					t.Fatalf("DeleteIf asked: %v, took out: %v; answer %s", asked, gone, want)
				}
				if gone {
					check(t, "DeleteIf", v, true, k)
					delete(model, k)
				} else if v != 0 {
					t.Fatalf("DeleteIf took nothing out and gives %d", v)
				}
			},
			"": func(t *rapid.T) {
				if got := m.Copy(); !maps.Equal(got, model) {
					t.Fatalf("Copy gives %v, want %v", got, model)
				}
				keys := m.Keys()
				slices.Sort(keys)
				if want := slices.Sorted(maps.Keys(model)); !slices.Equal(keys, want) {
					t.Fatalf("Keys gives %v, want %v", keys, want)
				}
				if got, want := m.String(), fmt.Sprint(model); got != want {
					t.Fatalf("String gives %s, want %s", got, want)
				}
				m.checkParts(t)
			},
		})
	})
}

// checkParts looks at what is kept: only keys with values, nothing locked, and a table that
// is not much larger than it must be.
func (m *KeyMap[K, V]) checkParts(t interface{ Errorf(string, ...any) }) {
	for i := range m.parts {
		x := &m.parts[i].index
		n := 0
		for e := range x.all {
			n++
			if !e.cell.full() || e.extra.word.Load()&flags != 0 || e.extra.dead {
				t.Errorf("key %v: value %v, flags %b, dead %v", e.key, e.cell.full(), e.extra.word.Load()&flags, e.extra.dead)
			}
		}
		if n != x.live {
			t.Errorf("%d entries are counted, there are %d", x.live, n)
		}
		if tab := x.table.Load(); tab != nil && len(tab.slots) > max(smallest, 8*n) {
			t.Errorf("%d slots for %d keys", len(tab.slots), n)
		}
	}
}

// An update of one key that takes for ever holds nobody else up: ten thousand other keys are
// created, updated and deleted meanwhile, and the map is read in every way. It is the test
// for maps that lock a bucket or a stripe where users expect a key.
func TestKeyMapLocksOneKeyOnly(t *testing.T) {
	const n = 10_000
	m := NewKeyMap(map[int]int{-1: 1})
	entered, leave := make(chan struct{}), make(chan struct{})
	var open sync.WaitGroup
	for _, k := range []int{-1, -2} { // one that is there, and one that is being created
		open.Go(func() {
			m.Update(k, func(int, bool) (int, error) {
				entered <- struct{}{}
				<-leave
				return 2, nil
			})
		})
		<-entered
	}
	for i := range n {
		m.Update(i, func(int, bool) (int, error) { return i, nil })
		AddTo(m, i, 1)
		if v, ok := m.Load(i); v != i+1 || !ok {
			t.Fatalf("key %d has %d, %v", i, v, ok)
		}
	}
	if v, ok := m.Peek(-1); v != 1 || !ok || m.Contains(-2) || len(m.Keys()) != n+1 || len(m.Copy()) != n+1 {
		t.Errorf("a change in flight is seen, or something is missing: %d, %v, %d keys", v, ok, len(m.Keys()))
	}
	_ = m.String()
	for i := range n {
		if v, ok := m.Delete(i); v != i+1 || !ok {
			t.Fatalf("key %d had %d, %v", i, v, ok)
		}
	}
	close(leave)
	open.Wait()
	if got := m.Copy(); !maps.Equal(got, map[int]int{-1: 2, -2: 2}) {
		t.Errorf("in the end there is %v", got)
	}
	m.checkParts(t)
}

// Who comes second to a part finds the entry of who came first between its look and its turn.
func TestClaimLooksAgain(t *testing.T) {
	m := NewKeyMap[int, int](nil)
	hash, p := m.at(1)
	first, fresh := p.claim(hash, 1)
	second, again := p.claim(hash, 1)
	if !fresh || again || first != second {
		t.Errorf("two entries of one key: %v, %v", fresh, again)
	}
}

// However many ask for a key, one function runs, and all get its value.
func TestGetOrCreateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap[string, string](nil)
		var runs atomic.Int32
		leave := make(chan struct{})
		var wg sync.WaitGroup
		for range 400 {
			wg.Go(func() {
				v, err := m.GetOrCreate("page", func() (string, error) {
					runs.Add(1)
					<-leave
					return "text", nil
				})
				if v != "text" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		synctest.Wait()
		close(leave)
		wg.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("%d functions ran, want one", n)
		}
	})
}

// When the function of GetOrCreate fails, its caller gets that, and the next who waits runs its
// own: a panic, an error and Goexit of a leader block nobody, and reach nobody else.
func TestGetOrCreateLeaderFails(t *testing.T) {
	for name, fail := range endings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewKeyMap[string, int](nil)
				leave := make(chan struct{})
				led := make(chan error)
				go func() {
					led <- ended(func() error {
						_, err := m.GetOrCreate("k", func() (int, error) { <-leave; return 1, fail() })
						return err
					})
				}()
				synctest.Wait()
				var runs atomic.Int32
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						if v, err := m.GetOrCreate("k", func() (int, error) { runs.Add(1); return 2, nil }); v != 2 || err != nil {
							t.Errorf("who waited gets %d, %v", v, err)
						}
					})
				}
				loaded := make(chan bool)
				go func() { _, ok := m.Load("k"); loaded <- ok }()
				synctest.Wait()
				close(leave)
				if err := <-led; name != "goexit" && err != errNo {
					t.Errorf("the leader gets %v, want %v", err, errNo)
				}
				<-loaded
				wg.Wait()
				if n := runs.Load(); n != 1 {
					t.Errorf("%d others ran, want one", n)
				}
				m.checkParts(t)
			})
		})
	}
}

// A caller that gives up takes nobody with it: neither the leader's function nor the others
// who wait.
func TestGetOrCreateCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap[string, int](nil)
		leave := make(chan struct{})
		go m.GetOrCreate("k", func() (int, error) { <-leave; return 1, nil })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := m.GetOrCreateContext(ctx, "k", func() (int, error) { t.Error("a second function runs"); return 0, nil })
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("who gave up gets %v", err)
			}
			if _, _, err := m.LoadContext(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("LoadContext: %v", err)
			}
			if _, err := m.UpdateContext(ctx, "other", func(int, bool) (int, error) { t.Error("it runs"); return 0, nil }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("UpdateContext of a key that is free: %v", err)
			}
			close(leave)
		})
		wg.Go(func() {
			if v, err := m.GetOrCreate("k", notRun[int]); v != 1 || err != nil {
				t.Errorf("who stayed gets %d, %v", v, err)
			}
		})
		wg.Wait()
		if v, err := m.GetOrCreateContext(ctx, "k", notRun[int]); v != 1 || err != nil {
			t.Errorf("what is there needs no waiting, yet: %d, %v", v, err)
		}
		m.checkParts(t)
	})
}

// Whoever waits for a key that is deleted meanwhile goes on with what is there then.
func TestKeyMapDeleteWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap(map[string]int{"k": 1})
		leave := make(chan struct{})
		go m.Update("k", func(int, bool) (int, error) { <-leave; return 2, nil })
		synctest.Wait()
		go func() {
			if v, ok := m.Delete("k"); v != 2 || !ok {
				t.Errorf("Delete gives %d, %v, want what the update stored", v, ok)
			}
		}()
		synctest.Wait()
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				m.Update("k", func(old int, ok bool) (int, error) {
					if ok != (old > 2) {
						t.Errorf("an update after the deletion is told %d, %v", old, ok)
					}
					return old + 10, nil
				})
			})
		}
		synctest.Wait()
		close(leave)
		wg.Wait()
		if v, _ := m.Load("k"); v != 50 {
			t.Errorf("value %d, want 50", v)
		}
		m.checkParts(t)
	})
}

// Keys that came and went, a million in full doses, leave nothing behind, neither when they go at once nor
// when each goes before the next comes.
func TestKeyMapMemory(t *testing.T) {
	n := 50_000
	if os.Getenv("LATCHKEY_SOAK") != "" {
		n = 1_000_000
	}
	m := NewKeyMap[int, [4]int](nil)
	before := heap()
	for i := range n / 2 {
		m.Store(i, [4]int{})
		m.Update(-i, func(v [4]int, _ bool) ([4]int, error) { return v, errNo })
		m.Delete(i)
	}
	for i := range n / 2 {
		m.Store(i, [4]int{})
	}
	full := heap() - before
	for i := range n / 2 {
		m.Delete(i)
	}
	if left := heap() - before; left > 64<<10 {
		t.Errorf("%d bytes are left of %d, want next to none", left, full)
	}
	m.checkParts(t)
	runtime.KeepAlive(m)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// All yields each key once at most, those that stay certainly, however the map changes
// meanwhile; its loop may change it too.
func TestKeyMapAll(t *testing.T) {
	m := NewKeyMap[int, int](nil)
	for i := range 1000 {
		m.Store(i, i)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				k := 1000 + w*1000 + i%1000
				m.Store(k, k)
				if i%3 == 0 {
					m.Delete(1000 + w*1000 + (i*7)%1000)
				}
			}
		})
	}
	for range 20 {
		seen := make(map[int]bool)
		for k, v := range m.All() {
			if seen[k] || k != v {
				t.Errorf("key %d with %d, seen before: %v", k, v, seen[k])
			}
			seen[k] = true
			if k < 1000 {
				AddTo(m, k, 0)
			}
		}
		for i := range 1000 {
			if !seen[i] {
				t.Errorf("key %d was there and did not come", i)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	for range m.All() {
		break
	}
	m.checkParts(t)
}

// Keys that cannot be compared panic and leave nothing locked.
func TestUnhashableKeys(t *testing.T) {
	m, whole := NewKeyMap[any, int](nil), NewMap[any, int](nil)
	bad := any([]int{1})
	for name, call := range map[string]func(){
		"Store":       func() { m.Store(bad, 1) },
		"Update":      func() { m.Update(bad, sameKey) },
		"Load":        func() { m.Load(bad) },
		"GetOrCreate": func() { m.GetOrCreate(bad, notRun[int]) },
		"Delete":      func() { m.Delete(bad) },
		"AddTo":       func() { AddTo(m, bad, 1) },
		"Map.Load":    func() { whole.Load(bad) },
		"Synchronize": func() {
			whole.Synchronize(func(s *Section[any, int]) error { s.Store(1, 1); s.Store(bad, 1); return nil })
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s takes a slice for a key", name)
				}
			}()
			call()
		}()
	}
	for i := range 200 {
		AddTo(m, any(i), 1)
	}
	m.checkParts(t)
	if whole.Contains(1) {
		t.Error("half of a section was kept")
	}
}

// NaN is never equal to itself: as in Go's maps each is another key that cannot be found.
func TestNaN(t *testing.T) {
	m := NewKeyMap[float64, int](nil)
	m.Store(math.NaN(), 1)
	m.Store(math.NaN(), 2)
	if _, ok := m.Load(math.NaN()); ok || len(m.Keys()) != 2 {
		t.Errorf("NaN is found: %v, or lost: %v", ok, m.Keys())
	}
}

// Reads and numbers allocate nothing, a stored value is one allocation.
func TestKeyMapAllocations(t *testing.T) {
	m, n := NewKeyMap(map[string]record{"k": {}}), NewKeyMap(map[string]int{"k": 1})
	for name, c := range map[string]struct {
		want float64
		call func()
	}{
		"Peek":           {0, func() { m.Peek("k") }},
		"Load":           {0, func() { m.Load("k") }},
		"Contains":       {0, func() { m.Contains("k") }},
		"a miss":         {0, func() { m.Load("none") }},
		"GetOrCreate":    {0, func() { m.GetOrCreate("k", notRun[record]) }},
		"AddTo":          {0, func() { AddTo(n, "k", 1) }},
		"Store":          {1, func() { m.Store("k", record{}) }},
		"Update":         {1, func() { m.Update("k", nextOf) }},
		"a key kept":     {0, func() { m.DeleteIf("k", func(record) bool { return false }) }},
		"a failed one":   {0, func() { m.Update("k", func(r record, _ bool) (record, error) { return r, errNo }) }},
		"a new key":      {2, func() { m.Store("new", record{}); m.Delete("new") }},
		"a claim undone": {1, func() { m.Update("new", func(r record, _ bool) (record, error) { return r, errNo }) }},
	} {
		// A key that comes and goes has the table made anew once in a while; that rounds down.
		if got := testing.AllocsPerRun(100, c.call); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}

func TestNotMade(t *testing.T) {
	var k KeyMap[int, int]
	var m Map[int, int]
	for want, call := range map[string]func(){"NewKeyMap": func() { k.Store(1, 1) }, "NewMap": func() { m.Load(1) }} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); text != "locked: this "+want[3:]+" was not made by "+want {
					t.Errorf("a map that was not made says %q", text)
				}
			}()
			call()
		}()
	}
}
