package locked

import (
	"sync"
	"testing"
)

// No update is lost, and no snapshot of a Map sees half of a section, however many goroutines
// use the same objects.
func TestManyGoroutines(t *testing.T) {
	const workers, rounds = 8, 2000
	v, keys, whole := new(Var[int]), NewKeyMap[string, int](nil), NewMap[string, int](nil)
	one := func(n int) (int, error) { return n + 1, nil }
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				v.Update(one)
				Add(v, 1)
				AddTo(keys, "added", 1)
				keys.Update("updated", func(n int, _ bool) (int, error) { return n + 1, nil })
				keys.Delete("gone")
				keys.Store("gone", 1)
				whole.Synchronize(func(s *Section[string, int]) error {
					n, _ := s.Load("up")
					s.Store("up", n+1)
					s.Store("down", -n-1)
					return nil
				})
				if c := whole.Copy(); c["up"] != -c["down"] {
					t.Errorf("half of a section is seen: %v", c)
				}
			}
		})
	}
	wg.Wait()
	const n = workers * rounds
	if got := v.Load(); got != 2*n {
		t.Errorf("Var has %d, want %d", got, 2*n)
	}
	if c := keys.Copy(); c["added"] != n || c["updated"] != n {
		t.Errorf("KeyMap has %v, want %d", c, n)
	}
	if c := whole.Copy(); c["up"] != n {
		t.Errorf("Map has %v, want %d", c, n)
	}
}

// notRun creates a value where there is one.
func notRun[V any]() (V, error) { panic("it runs, though there is a value") }
