package locked

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
)

// DeleteIf asks once, under the key's lock, and only where there is a value.
func TestDeleteIf(t *testing.T) {
	m := NewKeyMap(map[string]int{"a": 1, "b": 2})
	asked := 0
	idle := func(v int) bool { asked++; return v == 1 }
	for _, c := range []struct {
		key  string
		v    int
		gone bool
		asks int
	}{{"a", 1, true, 1}, {"a", 0, false, 1}, {"b", 0, false, 2}, {"never", 0, false, 2}} {
		if v, gone := m.DeleteIf(c.key, idle); v != c.v || gone != c.gone || asked != c.asks {
			t.Errorf("DeleteIf(%q) is %d, %v and has asked %d times; want %d, %v, %d", c.key, v, gone, asked, c.v, c.gone, c.asks)
		}
	}
	if got := m.Copy(); len(got) != 1 || got["b"] != 2 {
		t.Errorf("left are %v, want b alone", got)
	}
	m.checkParts(t)
}

// DeleteIf decides on what an update in flight leaves, and updates wait for its function.
func TestDeleteIfWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap(map[string]int{"a": 1})
		leave := make(chan struct{})
		go m.Update("a", func(int, bool) (int, error) { <-leave; return 2, nil })
		synctest.Wait()
		var saw int
		decide := make(chan bool)
		go m.DeleteIf("a", func(v int) bool { saw = v; return <-decide })
		synctest.Wait()
		if saw != 0 {
			t.Fatal("the function ran while an update was in flight")
		}
		close(leave)
		synctest.Wait()
		if saw != 2 {
			t.Fatalf("the function was given %d, want 2", saw)
		}
		var found bool
		go m.Update("a", func(_ int, ok bool) (int, error) { found = ok; return 3, nil })
		go m.DeleteIf("b", func(int) bool { return true }) // another key does not wait
		synctest.Wait()
		if got, ok := m.Peek("a"); got != 2 || !ok {
			t.Errorf("during DeleteIf Peek sees %d, %v", got, ok)
		}
		decide <- true
		synctest.Wait()
		if got, _ := m.Load("a"); got != 3 || found {
			t.Errorf("the update after it made %d, and found a value: %v; want 3, false", got, found)
		}
	})
}

// A key whose creation fails meanwhile is not asked about.
func TestDeleteIfCreationFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewKeyMap[string, int](nil)
		leave := make(chan struct{})
		go m.GetOrCreate("a", func() (int, error) { <-leave; return 0, errNo })
		synctest.Wait()
		gone := true
		go func() {
			_, gone = m.DeleteIf("a", func(int) bool { t.Error("asked about nothing"); return true })
		}()
		synctest.Wait()
		close(leave)
		synctest.Wait()
		if gone {
			t.Error("what was never there is deleted")
		}
	})
}

// A function that panics or exits deletes nothing and leaves nothing locked.
func TestDeleteIfFails(t *testing.T) {
	for name, fail := range endings {
		t.Run(name, func(t *testing.T) {
			m := NewKeyMap(map[string]int{"a": 1})
			ended(func() error {
				m.DeleteIf("a", func(int) bool { return fail() == nil })
				return nil
			})
			if v, ok := m.Load("a"); v != 1 || !ok {
				t.Errorf("left is %d, %v; want 1", v, ok)
			}
			if v, ok := m.DeleteIf("a", func(int) bool { return true }); v != 1 || !ok {
				t.Errorf("afterwards DeleteIf gives %d, %v", v, ok)
			}
			m.checkParts(t)
		})
	}
}

// The function of DeleteIf is inside of its key.
func TestDeleteIfRefuses(t *testing.T) {
	m := NewKeyMap(map[string]int{"a": 1, "b": 1})
	m.DeleteIf("a", func(int) bool {
		err := caught(func() error { m.DeleteIf("b", func(int) bool { return true }); return nil })
		var nested *NestedError
		if !errors.As(err, &nested) || !strings.Contains(nested.Wanted, "DeleteIf") {
			t.Errorf("DeleteIf inside of DeleteIf: %v", err)
		}
		if _, err := m.Update("a", sameKey); !errors.Is(err, ErrNested) {
			t.Errorf("Update inside of DeleteIf: %v", err)
		}
		return false
	})
	if got := m.Copy(); len(got) != 2 {
		t.Errorf("left are %v", got)
	}
}
