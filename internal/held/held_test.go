package held

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

// The id that is found is the one that the runtime prints, in every goroutine.
func TestID(t *testing.T) {
	if !Detecting() {
		t.Fatal("goroutine ids were not found on this system")
	}
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if got, want := id(), printed(); got != want {
				t.Errorf("id %d, want %d", got, want)
			}
		})
	}
	wg.Wait()
}

// Only the one word that is the id in every goroutine will do.
func TestSearchRefuses(t *testing.T) {
	if got := elsewhere([]uintptr{16, 24}); len(got) != 0 {
		t.Errorf("words %v are taken for the id of a goroutine", got)
	}
}

// What a goroutine is inside of is its own, in order, and gone when it has left.
func TestNesting(t *testing.T) {
	var things [5]int
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for depth := range len(things) {
				var all []Me
				for i := range depth + 1 {
					me := Who()
					if got := me.Depth(); got != i {
						t.Errorf("depth %d, want %d", got, i)
					}
					all = append(all, me.Enter(Frame{Kind(i + 1), unsafe.Pointer(&things[i])}))
					if top := Who().Top(); top.Kind != Kind(i+1) || top.Of != unsafe.Pointer(&things[i]) {
						t.Errorf("inside of %v, want kind %d", top, i+1)
					}
				}
				for i := range depth + 1 {
					if f := Who().Frame(i); f.Kind != Kind(i+1) {
						t.Errorf("frame %d is %v", i, f)
					}
				}
				for i := depth; i >= 0; i-- {
					all[i].Leave()
					if got := Who().Depth(); got != i {
						t.Errorf("depth %d after leaving, want %d", got, i)
					}
				}
				if top := Who().Top(); top.Kind != 0 {
					t.Errorf("inside of %v after all, want nothing", top)
				}
			}
		})
	}
	wg.Wait()
}

// More goroutines than the table has room for are all known, and forgotten.
func TestCrowd(t *testing.T) {
	const n = 2 * slots
	var inside, done sync.WaitGroup
	leave := make(chan struct{})
	inside.Add(n)
	for range n {
		done.Go(func() {
			var mine int
			me := Who().Enter(Frame{Map, unsafe.Pointer(&mine)})
			inside.Done()
			<-leave
			if top := Who().Top(); top.Of != unsafe.Pointer(&mine) {
				t.Error("a goroutine is taken for another one")
			}
			me.Leave()
		})
	}
	inside.Wait()
	if crowded.Load() == 0 {
		t.Error("nobody is in the overflow: the test tests nothing")
	}
	close(leave)
	done.Wait()
	if n := crowded.Load(); n != 0 {
		t.Errorf("%d are left in the overflow", n)
	}
	overflow.Range(func(id, _ any) bool {
		t.Errorf("goroutine %v is left in the overflow", id)
		return true
	})
	for i := range table {
		if s := &table[i]; s.id.Load() != 0 || s.depth != 0 || s.more != nil || s.frames != [inline]Frame{} {
			t.Fatalf("slot %d is left taken", i)
		}
	}
}

// A slot is a cache line, so that neighbours do not share one.
func TestSlotSize(t *testing.T) {
	if n := unsafe.Sizeof(slot{}); n != 64 {
		t.Errorf("a slot has %d bytes, want 64", n)
	}
}

func TestCosts(t *testing.T) {
	var thing int
	if n := testing.AllocsPerRun(100, func() {
		Who().Enter(Frame{Var, unsafe.Pointer(&thing)}).Leave()
	}); n != 0 {
		t.Errorf("%v allocations to enter and leave, want none", n)
	}
}

func TestNestedError(t *testing.T) {
	var err error = &NestedError{Wanted: "Update of a locked.Var", Inside: KeyMap, Advice: "use stm"}
	if !errors.Is(err, ErrNested) || !strings.Contains(err.Error(), "locked.KeyMap") || !strings.Contains(err.Error(), "use stm") {
		t.Errorf("%v", err)
	}
}

func BenchmarkCheck(b *testing.B) {
	for range b.N {
		if Who().Top().Kind != 0 {
			b.Fatal("inside of something")
		}
	}
}

func BenchmarkEnter(b *testing.B) {
	var thing int
	for range b.N {
		Who().Enter(Frame{Var, unsafe.Pointer(&thing)}).Leave()
	}
}
