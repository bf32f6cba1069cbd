package hotcacheredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// absent starts a server that is not there yet: Restart has it come.
func absent(t *testing.T, o redistest.Options) *redistest.Server {
	t.Helper()
	server := redistest.Start(t, o)
	server.Kill()
	return server
}

// rows are a database that notes how many read it at the same time.
type rows struct {
	versions  [40]atomic.Uint64
	now, most atomic.Int64
	loads     atomic.Int64
}

func newRows() *rows {
	r := &rows{}
	for i := range r.versions {
		r.versions[i].Store(1)
	}
	return r
}

func (r *rows) load(_ context.Context, key int, _ hotcache.Version) (uint64, hotcache.Version, error) {
	r.loads.Add(1)
	defer r.now.Add(-1)
	for at := r.now.Add(1); ; {
		if old := r.most.Load(); at <= old || r.most.CompareAndSwap(old, at) {
			break
		}
	}
	v := r.versions[key].Load()
	<-time.After(2 * time.Millisecond) // the query
	return v, hotcache.Version(v), nil
}

func (r *rows) cache(t *testing.T, o hotcache.Options[int, uint64]) *hotcache.Cache[int, uint64] {
	t.Helper()
	o.NodeTimeout, o.BreakFor = 300*time.Millisecond, 50*time.Millisecond
	c, err := hotcache.New(r.load, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readAll has many read every row at the same time, and demands the version that is in the database.
func (r *rows) readAll(t *testing.T, c *hotcache.Cache[int, uint64]) {
	t.Helper()
	var readers sync.WaitGroup
	for range 4 {
		for key := range r.versions {
			readers.Go(func() {
				if v, err := c.Get(t.Context(), key); err != nil || v != r.versions[key].Load() {
					t.Errorf("row %d reads %d, %v", key, v, err)
				}
			})
		}
	}
	readers.Wait()
}

// TestStartWithoutTheServer: a program starts while its cache is away, reads from the database with as many loads as are
// allowed, and has its cache when the server comes.
func TestStartWithoutTheServer(t *testing.T) {
	const limit = 4
	server := absent(t, redistest.Options{})
	began := time.Now()
	n := open(t, server.URL(), Options{})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	r := newRows()
	c := r.cache(t, hotcache.Options[int, uint64]{Nodes: []hotcache.NamedNode{{Name: "a", Node: n}}, MaxDirectLoads: limit})
	for range 3 {
		r.readAll(t, c)
	}
	if most := r.most.Load(); most > limit {
		t.Errorf("%d loads at a time, the limit is %d", most, limit)
	}
	lost := (*hotcache.NotInvalidatedError)(nil)
	if err := c.Invalidate(t.Context(), 1, 1); !errors.As(err, &lost) || !errors.Is(err, ErrUnavailable) && !isNetwork(err) {
		t.Errorf("a write that the cache cannot know of: %v", err)
	}
	if err := c.Sync(t.Context()); err == nil {
		t.Error("a sync with nobody")
	}
	server.Restart()
	soon(t, "memory is trusted", func() bool { return c.Lag()[0].Trusted })
	soon(t, "the node is in use, though nobody reads", func() bool { return !c.Lag()[0].Out })
	r.versions[1].Store(2)
	if err := c.Invalidate(t.Context(), 1, 2); err != nil {
		t.Error(err)
	}
	soon(t, "loads end, for all is cached", func() bool {
		was := r.loads.Load()
		r.readAll(t, c)
		return r.loads.Load() == was
	})
	if c.Stats().Reads["memory"] == 0 {
		t.Errorf("%+v", c.Stats())
	}
}

func isNetwork(err error) bool {
	e := net.Error(nil)
	return errors.As(err, &e)
}

// TestStartWithoutOneOfTwo: the keys of the node that is there are cached as ever, those of the other are loaded, and no
// read is older than the last write, before and after it comes.
func TestStartWithoutOneOfTwo(t *testing.T) {
	there, away := redistest.Start(t, redistest.Options{}), absent(t, redistest.Options{})
	nodes := []hotcache.NamedNode{
		{Name: "there", Node: open(t, there.URL(), Options{})}, {Name: "away", Node: open(t, away.URL(), Options{})},
	}
	r := newRows()
	c, other := r.cache(t, hotcache.Options[int, uint64]{Nodes: nodes}), r.cache(t, hotcache.Options[int, uint64]{Nodes: nodes})
	trusted := func(i int) func() bool { return func() bool { return c.Lag()[i].Trusted && other.Lag()[i].Trusted } }
	soon(t, "the memory of one node is trusted", trusted(0))
	write := func() (told int) {
		for key := range r.versions {
			v := r.versions[key].Add(1)
			if c.Invalidate(t.Context(), key, hotcache.Version(v)) == nil {
				told++
			}
			if got, err := other.Get(t.Context(), key); err != nil || got != v {
				t.Errorf("row %d reads %d after %d was written, %v", key, got, v, err)
			}
		}
		return told
	}
	r.readAll(t, c)
	r.readAll(t, other)
	told := write()
	if told == 0 || told == len(r.versions) {
		t.Errorf("%d of %d writes are known to the cache, though one of two nodes is there", told, len(r.versions))
	}
	was := r.loads.Load()
	r.readAll(t, other)
	if loads := r.loads.Load() - was; loads == 0 || loads > int64(4*(len(r.versions)-told)) {
		t.Errorf("%d loads for %d rows of the node that is away", loads, len(r.versions)-told)
	}
	away.Restart()
	soon(t, "the memory of both is trusted", func() bool { return trusted(0)() && trusted(1)() })
	soon(t, "both are in use", func() bool {
		r.readAll(t, c)
		r.readAll(t, other)
		for _, l := range append(c.Lag(), other.Lag()...) {
			if l.Out {
				return false
			}
		}
		return true
	})
	if told := write(); told != len(r.versions) {
		t.Errorf("%d of %d writes are known to the cache, and both nodes are there", told, len(r.versions))
	}
	r.readAll(t, c)
	r.readAll(t, other)
}

// A server that comes with what it had a while ago does not know what was invalidated since: to a node that began without
// it no less.
func TestStartBeforeOldData(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	first := open(t, server.URL(), Options{})
	put(t, first, "k", 1)
	server.Do("SAVE")
	stamp, _ := invalidate(t, first, "k", 2)
	server.Kill()
	n := open(t, server.URL(), Options{})
	l := &listener{news: make(chan struct{}, 1)}
	f, err := n.Follow("me", l)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	server.Restart()
	if server.Int("EXISTS", n.keys.item("k")) != 1 {
		t.Fatal("the old item did not come back, so nothing is tested")
	}
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := ask(t, n, "k", 3)
	if a.State != core.Lease || a.Min != hotcache.Fresh || a.Stamp.Generation == stamp.Generation {
		t.Errorf("what was invalidated came back: %+v with %v", a, a.Item)
	}
	l.until(t, "the feed is up", func() bool { return l.up })
	if p := beat(t, f, time.Second); p.Generation != a.Stamp.Generation {
		t.Errorf("the feed is at %+v, an answer at %+v", p, a.Stamp)
	}
}

func TestReady(t *testing.T) {
	server := absent(t, redistest.Options{Password: "right"})
	n := open(t, server.URL(), Options{})
	wrong := open(t, strings.Replace(server.URL(), "right", "wrong", 1), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Millisecond)
	defer cancel()
	if err := n.Ready(ctx); !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
		strings.Contains(err.Error(), "right") || !strings.Contains(err.Error(), server.Addr()) {
		t.Errorf("nobody there: %v", err)
	}
	for name, c := range map[string]struct {
		node *Node
		want error
	}{"right": {n, nil}, "wrong password": {wrong, ErrUnavailable}} {
		done := make(chan error, 1)
		go func() { done <- c.node.Ready(t.Context()) }()
		server.Restart()
		select {
		case err := <-done:
			if !errors.Is(err, c.want) || c.want != nil && !strings.Contains(err.Error(), "WRONGPASS") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: it waits for a server that is there", name)
		}
		server.Kill()
	}
	done := make(chan error, 1)
	closing := open(t, server.URL(), Options{})
	go func() { done <- closing.Ready(t.Context()) }()
	closing.Close()
	if err := <-done; !errors.Is(err, hotcache.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
	if err := closing.Ready(t.Context()); !errors.Is(err, hotcache.ErrClosed) {
		t.Errorf("closed before: %v", err)
	}
}

// What nobody mends by waiting is an error at once.
func TestMistakesAreNoOutage(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Users: []string{"reader on >secret ~* &* +@all -evalsha -eval -script"}})
	secure := redistest.Start(t, redistest.Options{TLS: true})
	cluster := redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	locked := redistest.Start(t, redistest.Options{Password: "right"})
	user := strings.Replace(server.URL(), "//", "//reader:secret@", 1)
	for _, c := range []struct {
		what, url string
		options   Options
		want      error
		says      string
	}{
		{"a user without permissions", user, Options{}, ErrUnavailable, "NOPERM"},
		{"a user that is none", strings.Replace(user, "reader", "nobody", 1), Options{}, ErrUnavailable, "WRONGPASS"},
		{"no password", "redis://" + locked.Addr(), Options{}, ErrUnavailable, "NOAUTH"},
		{"a certificate that nobody knows", secure.URL(), Options{}, ErrUnavailable, "certificate"},
		{"a configuration of TLS without TLS", server.URL(), Options{TLS: secure.TLSConfig()}, hotcache.ErrInvalid, "rediss"},
		{"a cluster", cluster.URL(), Options{}, hotcache.ErrInvalid, "Cluster"},
	} {
		c.options.Timeout = 10 * time.Second // where the machine is busy
		n, err := Open(t.Context(), c.url, c.options)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %v that says %s", c.what, err, c.want, c.says)
		}
		if err == nil {
			n.Close()
		}
	}
	// A server that has too much to do just now is one that is away.
	server.Do("CONFIG", "SET", "maxclients", "1")
	if n, err := Open(t.Context(), server.URL(), Options{}); err != nil {
		t.Errorf("a busy server: %v", err)
	} else {
		n.Close()
	}
}

// A cluster that comes later is refused by name, by whatever is asked of it.
func TestLateCluster(t *testing.T) {
	server := absent(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	n := open(t, server.URL(), Options{})
	server.Restart()
	if err := n.Ready(t.Context()); !errors.Is(err, hotcache.ErrInvalid) {
		t.Errorf("ready: %v", err)
	}
	if _, err := n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 1}); !errors.Is(err, hotcache.ErrInvalid) {
		t.Errorf("ask: %v", err)
	}
}

// TestTLS has a cache over a server with a certificate of its own authority, which comes later too.
func TestTLS(t *testing.T) {
	server := absent(t, redistest.Options{TLS: true, Password: "p@ss"})
	n := open(t, server.URL(), Options{TLS: server.TLSConfig()})
	server.Restart()
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, f := follow(t, n, "me")
	put(t, n, "k", 1)
	if a := ask(t, n, "k", 2); a.State != core.Hit {
		t.Errorf("%+v", a)
	}
	if p, inv := beat(t, f, time.Second), second(n.Ask(t.Context(), hotcache.Ask{Key: "k"})); p.Generation == 0 || inv != nil {
		t.Errorf("%+v, %v", p, inv)
	}
	strict := server.TLSConfig()
	strict.ServerName = "another.example"
	if _, err := Open(t.Context(), server.URL(), Options{TLS: strict}); !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(fmt.Sprint(err), "another.example") {
		t.Errorf("a certificate for another name: %v", err)
	}
}
