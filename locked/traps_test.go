package locked

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

// The traps of other libraries, each of which hangs or loses something there.

// xsync and concurrent-map: after a panic in a function that somebody recovered from, the key
// is locked for ever.
func TestTrapPanicThenUse(t *testing.T) {
	m := NewKeyMap(map[int]int{1: 1})
	for _, key := range []int{1, 2} {
		for _, call := range []func(){
			func() { m.Update(key, func(int, bool) (int, error) { panic(errNo) }) },
			func() { m.GetOrCreate(2, func() (int, error) { panic(errNo) }) },
		} {
			caught(func() error { call(); return nil })
			m.Update(1, sameKey)
			m.Store(3, 3)
			if m.Contains(2) {
				t.Error("a function that panicked has stored something")
			}
		}
	}
	m.checkParts(t)
}

// xsync: Compute of the same key inside of Compute hangs; of another key it hangs when both
// fall into one bucket, 57 of 2000 times.
func TestTrapUpdateInsideUpdate(t *testing.T) {
	for other := range 2000 {
		m := NewKeyMap[int, int](nil)
		refused := 0
		if _, err := m.Update(1, func(int, bool) (int, error) {
			if _, err := m.Update(other, sameKey); errors.Is(err, ErrNested) {
				refused++
			}
			return 5, nil
		}); err != nil || refused != 1 {
			t.Fatalf("key %d inside of key 1: refused %d times; the outer update: %v", other, refused, err)
		}
	}
}

// concurrent-map: Get of the same key inside of Upsert hangs.
func TestTrapLoadInsideUpdate(t *testing.T) {
	m := NewKeyMap(map[int]int{1: 7})
	m.Update(1, func(int, bool) (int, error) {
		if err := caught(func() error { m.Load(1); return nil }); !errors.Is(err, ErrNested) {
			t.Errorf("Load inside gives %v", err)
		}
		if v, ok := m.Peek(1); v != 7 || !ok {
			t.Errorf("Peek inside gives %d, %v, want the old value", v, ok)
		}
		return 8, nil
	})
}

// singleflight: Do of a key inside of Do of that key hangs.
func TestTrapCreateInsideCreate(t *testing.T) {
	m := NewKeyMap[string, int](nil)
	v, err := m.GetOrCreate("k", func() (int, error) {
		return m.GetOrCreate("k", func() (int, error) { return 1, nil })
	})
	if v != 0 || !errors.Is(err, ErrNested) || m.Contains("k") {
		t.Errorf("it gives %d, %v", v, err)
	}
}

// dashmap and every hand-made pair of locks: two goroutines that each hold one and want the
// other's wait for ever. Here both are told, and nobody waits.
func TestTrapCrossedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap(map[int]int{1: 0, 2: 0})
		var inside, wg sync.WaitGroup
		inside.Add(2)
		for k := range 2 {
			wg.Go(func() {
				_, err := m.Update(1+k, func(int, bool) (int, error) {
					inside.Done()
					inside.Wait()
					return m.Update(2-k, sameKey)
				})
				if !errors.Is(err, ErrNested) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
	})
}
