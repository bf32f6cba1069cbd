//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/latchkey-go/latchkey/examples/internal/process"
	"github.com/latchkey-go/latchkey/hotcache"
)

const (
	products = 200
	readers  = 4  // in each process
	onPage   = 10 // products
	pause    = 3 * time.Millisecond
)

// A report is what a shop has counted.
type report struct{ Pages, Reads, Stale, Changes, Memory, Copies, Loads, Hot uint64 }

func (r report) plus(o report) report {
	return report{r.Pages + o.Pages, r.Reads + o.Reads, r.Stale + o.Stale, r.Changes + o.Changes, r.Memory + o.Memory,
		r.Copies + o.Copies, r.Loads + o.Loads, r.Hot + o.Hot}
}

func parseReport(line string) (r report, err error) {
	err = json.Unmarshal([]byte(line), &r)
	return r, err
}

// shop is one process: it shows pages and changes prices for a while, says what it has counted, and keeps its relay at
// work until it is not needed any more.
func shop(ctx context.Context) error {
	c, err := openCatalog(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	b, err := openBoard(os.Getenv(envBoard), products+1)
	if err != nil {
		return err
	}
	defer b.close()
	if _, err := c.cache.Get(ctx, theDead); err != nil { // its memory has the old price
		return err
	}
	fmt.Println("open")

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return c.relay(ctx) })
	all.Go(func() error {
		defer cancel()
		if err := c.awaitTheDead(ctx); err != nil {
			return err
		}
		fmt.Println("heard of the dead")
		r, err := c.trade(ctx, b)
		if err != nil {
			return err
		}
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
		return process.Needed()
	})
	return all.Wait()
}

// awaitTheDead looks until the price is there that a killed process has committed.
func (c *catalog) awaitTheDead(ctx context.Context) error {
	for {
		p, err := c.cache.Get(ctx, theDead)
		if err != nil || p.Price == priceOf(theDead, 2) {
			return err
		}
		time.Sleep(pause)
	}
}

// trade shows pages and changes prices.
func (c *catalog) trade(ctx context.Context, b *board) (report, error) {
	ctx, cancel := context.WithTimeout(ctx, opening)
	defer cancel()
	var mu sync.Mutex
	var sum report
	all, ctx := errgroup.WithContext(ctx)
	for i := range readers + 1 {
		all.Go(func() error {
			work := c.show
			if i == readers {
				work = c.change
			}
			r, err := work(ctx, b)
			mu.Lock()
			defer mu.Unlock()
			sum = sum.plus(r)
			if ctx.Err() != nil {
				return nil // the shop closes
			}
			return err
		})
	}
	err := all.Wait()
	s := c.cache.Stats()
	sum.Memory, sum.Copies, sum.Loads, sum.Hot = s.Reads["memory"], s.Reads["copy"], s.Loads, uint64(s.HotKeys)
	return sum, err
}

// someProduct picks one; a few are wanted much more than others.
func someProduct(z *rand.Zipf) int64 { return 1 + int64(z.Uint64()) }

func zipf() *rand.Zipf {
	return rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 1.2, 1, theDead-2)
}

// show shows pages, and checks each price against what had finished when it began to look.
func (c *catalog) show(ctx context.Context, b *board) (r report, err error) {
	for z := zipf(); ctx.Err() == nil; r.Pages++ {
		for range onPage {
			id := someProduct(z)
			finished := b.finished(id)
			p, v, err := c.cache.GetVersion(ctx, id)
			if err != nil {
				return r, err
			}
			r.Reads++
			if v < finished || p.Price != priceOf(id, v) {
				fmt.Fprintf(os.Stderr, "catalog: product %d at %d, version %d, after version %d had finished\n", id, p.Price, v, finished)
				r.Stale++
			}
		}
		time.Sleep(pause)
	}
	return r, nil
}

// change changes prices.
func (c *catalog) change(ctx context.Context, b *board) (r report, err error) {
	for z := zipf(); ctx.Err() == nil; r.Changes++ {
		id := someProduct(z)
		v, err := UpdatePrice(ctx, c.db, c.prices, id)
		var not *hotcache.NotInvalidatedError
		switch {
		case errors.As(err, &not): // it is committed, and not finished: a relay will tell
		case err != nil:
			return r, err
		default:
			b.finish(id, v)
		}
		time.Sleep(pause)
	}
	return r, nil
}
