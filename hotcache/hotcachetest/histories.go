package hotcachetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func histories() []test {
	return []test{
		{name: "NothingOlder", fn: nothingOlder},
		{name: "OneLoader", fn: oneLoader},
	}
}

// A database is a row that is written, and of which a replica lags behind.
type database struct {
	now, replica, finished atomic.Uint64 // finished is the last version whose invalidation has returned
}

// nothingOlder: readers who load from a replica unless they are told not to, writers who invalidate after the write,
// fillers that are slow; and no answer is older than the last invalidation that had returned when it was asked for.
func nothingOlder(e *env) {
	rows := make([]database, 3)
	var all sync.WaitGroup
	stop := make(chan struct{})
	var problems atomic.Int64
	report := func(format string, args ...any) {
		if problems.Add(1) <= 3 {
			e.Errorf(format, args...)
		}
	}
	for i := range rows {
		key := fmt.Sprint("row", i)
		all.Go(func() {
			for v := range uint64(60) {
				rows[i].now.Store(v + 1)
				if _, _, err := e.second.Invalidate(e.ctx, key, hotcache.Version(v+1), ""); err != nil {
					report("%v", err)
				}
				rows[i].finished.Store(v + 1)
				rows[i].replica.Store(max(v, 3) - 3)
				time.Sleep(time.Millisecond) // one write after another, with readers in between
			}
		})
	}
	var readers sync.WaitGroup
	for seed := range uint64(6) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 2))
			for step := 0; ; step++ {
				select {
				case <-stop:
					return
				default:
				}
				i := random.IntN(len(rows))
				token := hotcache.Token(1_000_000*(seed+1)) + hotcache.Token(step) + 1
				if err := readOnce(e.ctx, []hotcache.Node{e.first, e.second}[seed%2], &rows[i], fmt.Sprint("row", i), token, random); err != nil {
					report("%v", err)
				}
				time.Sleep(100 * time.Microsecond) // so that a bubble's clock goes on
			}
		})
	}
	all.Wait()
	close(stop)
	readers.Wait()
}

// readOnce reads a row as a process would.
func readOnce(ctx context.Context, n hotcache.Node, db *database, key string, token hotcache.Token, random *rand.Rand) error {
	finished := db.finished.Load()
	a, err := n.Ask(ctx, hotcache.Ask{Key: key, Token: token})
	if err != nil {
		return err
	}
	if a.Item != nil && uint64(a.Item.Version) < finished {
		return fmt.Errorf("%s: version %d after the invalidation of %d had returned: %+v", key, a.Item.Version, finished, a)
	}
	if a.Token == 0 {
		return nil
	}
	read := db.replica.Load()
	if a.Min > hotcache.Version(read) {
		read = db.now.Load()
	}
	time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // the load
	times := fine()
	if random.IntN(2) == 0 {
		times.Soft = -1
	}
	r, err := n.Fill(ctx, hotcache.Fill{Key: key, Token: token, Item: row(hotcache.Version(read), ""), Times: times})
	if err != nil {
		return err
	}
	if r.Refusal == core.Stored && hotcache.Version(read) < r.Floor {
		return fmt.Errorf("%s: version %d was stored below the floor of %d", key, read, r.Floor)
	}
	return nil
}

// oneLoader: of many who ask at once, one loads.
func oneLoader(e *env) {
	for round := range 20 {
		var granted, others atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				n := []hotcache.Node{e.first, e.second}[i%2]
				a, err := n.Ask(e.ctx, hotcache.Ask{Key: fmt.Sprint(round), Token: hotcache.Token(1 + i + 100*round)})
				switch {
				case err != nil:
					e.Error(err)
				case a.State == core.Lease:
					granted.Add(1)
				case a.State == core.Busy:
					others.Add(1)
				}
			})
		}
		all.Wait()
		if granted.Load() != 1 || others.Load() != 15 {
			e.Fatalf("%d of 16 are to load it, and %d to wait", granted.Load(), others.Load())
		}
	}
}
