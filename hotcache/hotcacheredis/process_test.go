package hotcacheredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/proctest"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestMain(m *testing.M) {
	proctest.Play(map[string]proctest.Part{"server": appServer})
	goleak.VerifyTestMain(m)
}

// An app is a process that reads through a cache.
type app struct {
	stage   *proctest.Stage
	cache   *hotcache.Cache[string, string]
	version atomic.Uint64 // of every row in the database
	takes   atomic.Int64  // nanoseconds of a load; 0 is until it is told to go on
	failing atomic.Bool
	goOn    chan struct{}
	loads   atomic.Int64
}

// appServer is the part of one process. What it is told: "takes DURATION", "fail", "version N", "read N KEY" (answers
// with loads, errors, the time of the slowest and a value), "begin KEY" (answers when the load has begun, and reads in
// the background), "go on" (lets that load end, and answers with what it read and how many fills were refused),
// "invalidate KEY" (answers when done).
func appServer(stage *proctest.Stage, args []string) error {
	ctx := context.Background()
	node, err := Open(ctx, args[0], Options{Timeout: 5 * time.Second})
	if err != nil {
		return err
	}
	defer node.Close()
	a := &app{stage: stage, goOn: make(chan struct{})}
	a.version.Store(1)
	a.cache, err = hotcache.New(a.load, hotcache.Options[string, string]{
		Nodes: []hotcache.NamedNode{{Name: "a", Node: node}}, LoadTimeout: 40 * time.Second, NodeTimeout: 10 * time.Second,
		FirstPause: 20 * time.Second, LastPause: 20 * time.Second,
	})
	if err != nil {
		return err
	}
	defer a.cache.Close()
	for a.cache.Sync(ctx) != nil {
		<-time.After(time.Millisecond) // until the feed stands
	}
	stage.Say("ready")
	done := make(chan string, 1)
	for {
		line, err := stage.Hear()
		if err != nil {
			return nil
		}
		verb, rest, _ := strings.Cut(line, " ")
		switch verb {
		case "takes":
			d, err := time.ParseDuration(rest)
			if err != nil {
				return err
			}
			a.takes.Store(int64(d))
		case "fail":
			a.failing.Store(true)
		case "version":
			var v uint64
			fmt.Sscan(rest, &v)
			a.version.Store(v)
		case "read":
			var n int
			var key string
			fmt.Sscan(rest, &n, &key)
			a.stage.Say(a.read(n, key))
		case "begin":
			go func() { done <- a.read(1, rest) }()
		case "go":
			close(a.goOn)
			answer := <-done
			for a.cache.Stats().RefusedLease == 0 && a.cache.Stats().RefusedFloor == 0 {
				<-time.After(time.Millisecond) // until the fill was answered
			}
			a.stage.Say(answer)
		case "invalidate":
			if err := a.cache.Invalidate(ctx, rest, hotcache.Version(a.version.Load())); err != nil {
				return err
			}
			a.stage.Say("done")
		}
	}
}

func (a *app) load(ctx context.Context, key string, _ hotcache.Version) (string, hotcache.Version, error) {
	v := a.version.Load() // it is read before it takes its time
	a.loads.Add(1)
	wait := a.goOn
	var timer <-chan time.Time
	if d := a.takes.Load(); d > 0 {
		timer, wait = time.After(time.Duration(d)), nil
	} else {
		a.stage.Say("loading")
	}
	select {
	case <-timer:
	case <-wait:
	case <-ctx.Done():
		return "", 0, ctx.Err()
	}
	if a.failing.Load() {
		return "", 0, errors.New("the database is on fire")
	}
	return fmt.Sprint(key, " at ", v), hotcache.Version(v), nil
}

// read has many read a key at once.
func (a *app) read(n int, key string) string {
	var all sync.WaitGroup
	var failed atomic.Int64
	var value atomic.Value
	began := time.Now()
	for range n {
		all.Go(func() {
			v, err := a.cache.Get(context.Background(), key)
			if err != nil {
				failed.Add(1)
				return
			}
			value.Store(v)
		})
	}
	all.Wait()
	return fmt.Sprintf("%d %d %d %v", a.loads.Load(), failed.Load(), time.Since(began).Milliseconds(), value.Load())
}

// fork starts processes that read from a server.
func fork(t *testing.T, server *redistest.Server, n int, takes string) []*proctest.Forked {
	out := make([]*proctest.Forked, n)
	for i := range out {
		out[i] = proctest.Fork(t, "server", server.URL())
	}
	for _, p := range out {
		p.Wants("ready")
		p.Tell("takes " + takes)
	}
	return out
}

type result struct {
	loads, failed, ms int
	value             string
}

func parseResult(t *testing.T, line string) result {
	t.Helper()
	var r result
	if n, _ := fmt.Sscan(line, &r.loads, &r.failed, &r.ms); n != 3 {
		t.Fatalf("a process said %q", line)
	}
	r.value = strings.SplitN(line, " ", 4)[3]
	return r
}

// all has every process read at once, and sums up.
func all(t *testing.T, processes []*proctest.Forked, each int, key string) result {
	t.Helper()
	for _, p := range processes {
		p.Tell(fmt.Sprintf("read %d %s", each, key))
	}
	var sum result
	for _, p := range processes {
		r := parseResult(t, p.Hear())
		sum.loads += r.loads
		sum.failed += r.failed
		sum.ms = max(sum.ms, r.ms)
		if r.failed == 0 && r.value != key+" at 1" {
			t.Errorf("a process read %q", r.value)
		}
	}
	return sum
}

func TestStampede(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	r := all(t, fork(t, server, 4, "50ms"), 250, "hot")
	t.Logf("1 000 readers in 4 processes: %d loads, all answered within %d ms", r.loads, r.ms)
	if r.loads != 1 || r.failed != 0 {
		t.Errorf("%d loads and %d errors", r.loads, r.failed)
	}
}

func TestFailingLoader(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	processes := fork(t, server, 4, "50ms")
	for _, p := range processes {
		p.Tell("fail")
	}
	r := all(t, processes, 25, "broken")
	t.Logf("100 readers in 4 processes: %d loads, all answered within %d ms", r.loads, r.ms)
	if r.loads > 4 || r.failed != 100 {
		t.Errorf("%d loads and %d errors", r.loads, r.failed)
	}
}

// A filler that is killed is replaced when its lease has ended.
func TestKilledFiller(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	p := fork(t, server, 2, "0s")
	p[1].Tell("takes 10ms")
	p[0].Tell("begin k")
	p[0].Wants("loading")
	p[1].Tell("read 10 k")
	began := time.Now()
	p[0].Kill()
	r := parseResult(t, p[1].Hear())
	t.Logf("readers were answered %v after the filler was killed", time.Since(began))
	if r.loads != 1 || r.failed != 0 || r.value != "k at 1" || time.Since(began) > 5*time.Second {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}

// A filler that is frozen past its lease stores nothing when it goes on.
func TestFrozenFiller(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	p := fork(t, server, 2, "0s")
	p[1].Tell("takes 10ms")
	p[0].Tell("begin k")
	p[0].Wants("loading")
	p[0].Freeze()
	if r := parseResult(t, p[1].Ask("read 1 k")); r.value != "k at 1" {
		t.Errorf("%+v", r)
	}
	p[1].Tell("version 2")
	if answer := p[1].Ask("invalidate k"); answer != "done" {
		t.Fatal(answer)
	}
	if r := parseResult(t, p[1].Ask("read 1 k")); r.value != "k at 2" {
		t.Errorf("%+v", r)
	}
	p[0].Thaw()
	p[0].Tell("go on")
	p[0].Hear() // what its own reader, who began before the write, got; its fill was refused, or it would wait
	for i, process := range p {
		if r := parseResult(t, process.Ask("read 1 k")); r.value != "k at 2" {
			t.Errorf("process %d reads %q after the late fill", i, r.value)
		}
	}
}
