package lmx_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// rwWorld is a broker, and what readers and writers do there. It checks that
// never is a writer inside beside somebody else, and that all come to their end.
type rwWorld struct {
	svc     lease.Service
	tcp     *tcpserve.Server
	lmx     *lmx.Server
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	ids     int
	inside  map[string][]*rwTask // by key
	steps   map[*rwTask]string   // what each task does
	entered map[bool]int         // how many, by whether they write
	beside  int                  // readers who entered where others were
	faults  []string
}

// newRWWorld starts a broker, with what is planted in it.
func newRWWorld(t *testing.T, plant rwPlant) *rwWorld {
	t.Helper()
	local, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	svc := lease.Service(local)
	if plant.service != nil {
		svc = plant.service(local)
	}
	w := &rwWorld{svc: svc, lmx: lmx.New(svc, nil), inside: map[string][]*rwTask{}, steps: map[*rwTask]string{},
		entered: map[bool]int{}}
	w.tcp = tcpserve.New(svc, tcpserve.Options{Dialect: func(p *tcpserve.Peer) tcpserve.Handler {
		h := w.lmx.Open(p)
		if plant.handler != nil {
			return plant.handler(p, h)
		}
		return h
	}})
	t.Cleanup(func() {
		svc.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := w.tcp.Shutdown(ctx); err != nil {
			t.Errorf("shut the server down: %v", err)
		}
		w.running.Wait()
	})
	return w
}

func (w *rwWorld) dial() net.Conn {
	client, server := net.Pipe()
	go w.tcp.ServeConn(server)
	return client
}

func (w *rwWorld) id() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return fmt.Sprintf("u%05d", w.ids)
}

func (w *rwWorld) note(t *rwTask, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.steps[t] = what
}

func (w *rwWorld) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// left takes out all who were inside over a connection: it has ended, and they know.
func (w *rwWorld) left(l *rwLink) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, in := range w.inside {
		w.inside[key] = slices.DeleteFunc(in, func(t *rwTask) bool { return t.rwLink == l })
	}
}

// enter says that a task has been let in. It is not, if its connection has ended.
func (t *rwTask) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return false
	}
	w := t.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.inside[t.key] {
		if t.write || o.write {
			w.faults = append(w.faults, fmt.Sprintf("%s enters %q beside %s", t, t.key, o))
		}
	}
	if len(w.inside[t.key]) > 0 {
		w.beside++
	}
	w.inside[t.key] = append(w.inside[t.key], t)
	w.entered[t.write]++
	w.steps[t] = "is inside " + t.key
	return true
}

// exit says that it goes, before the broker is told.
func (t *rwTask) exit() bool {
	w := t.world
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.inside[t.key], t)
	if i >= 0 {
		w.inside[t.key] = slices.Delete(w.inside[t.key], i, i+1)
	}
	return i >= 0
}

func (t *rwTask) String() string {
	role := "reader"
	if t.write {
		role = "writer"
	}
	return fmt.Sprintf("%s %s (%s)", role, t.name, t.client.kind.name)
}

// once enters, works for a while and leaves. An error of another kind than those
// that have to be borne is a fault.
func (t *rwTask) once(work time.Duration) (err error) {
	defer func() {
		t.step("rests")
		if err != nil && !errors.Is(err, errGone) && !errors.Is(err, errTimeout) {
			t.world.failf("%s: %v", t, err)
		}
	}()
	if err := t.client.kind.begin[t.write](t); err != nil {
		return err
	}
	if !t.enter() {
		return errGone
	}
	pass(work)
	if !t.exit() {
		return errGone
	}
	for {
		if err := t.client.kind.end[t.write](t); !errors.Is(err, errTimeout) {
			return err
		}
	}
}

// rwLimit is how long all tasks may take together. None of their locks helps them
// out by its end sooner, but in runs where that is wanted.
const rwLimit = time.Minute

// finish waits until all tasks have ended. Those that do not are a fault. Then
// nothing may be left of them.
func (w *rwWorld) finish(tasks *sync.WaitGroup, stop chan<- struct{}) {
	all := make(chan struct{})
	go func() {
		tasks.Wait()
		close(all)
	}()
	select {
	case <-all:
		close(stop)
	case <-time.After(rwLimit):
		close(stop)
		w.mu.Lock()
		for t, step := range w.steps {
			if step != "rests" {
				w.faults = append(w.faults, fmt.Sprintf("%s hangs: %s", t, step))
			}
		}
		w.mu.Unlock()
		return
	}
	pass(10 * time.Second) // ttls, and grants that are sent once more
	st, err := w.svc.Stats(context.Background())
	n := w.lmx.Counts().Readers
	if err != nil || n != 0 || st.Holds != 0 || st.Waiters != 0 || w.lmx.KeysKept() != 0 {
		w.failf("all have left, and there are %d readers, %d keys kept, %d holds, %d waiters, error %v",
			n, w.lmx.KeysKept(), st.Holds, st.Waiters, err)
	}
}

// pass lets time pass, in a synctest bubble.
func pass(d time.Duration) { time.Sleep(d) }
