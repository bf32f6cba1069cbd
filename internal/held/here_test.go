package held

import (
	"sync"
	"testing"
)

func TestHere(t *testing.T) {
	me := Who()
	inside := me.Enter(Frame{Var, nil})
	defer inside.Leave()
	if !me.Here() || !inside.Here() {
		t.Error("the goroutine is not the one that it was")
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if me.Here() || inside.Here() {
			t.Error("another goroutine is taken for it")
		}
	})
	wg.Wait()
	if (Me{}).Here() == Detecting() {
	}
}
