package rmaptest

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/rmap"
)

// feeds checks subscriptions: order, the place of a head in it, and their end.
func feeds() []test {
	return []test{
		{"EveryFollowerIsTold", everyFollower},
		{"FromUpOn", fromUpOn},
		{"HeadIsInOrder", headInOrder},
		{"CloseIsTheEnd", closeIsTheEnd},
		{"CloseOfOneLeavesOthers", closeOfOne},
		{"ComingAndGoing", comingAndGoing},
	}
}

func everyFollower(e *env) {
	more := []*witness{e.follow(e.first, e.name), e.follow(e.second, e.name), e.follow(e.second, e.name)}
	e.change(write(set("k", "v")))
	e.change(write(add("n", 1), del("k")))
	e.change(write(reset()))
	for _, w := range more {
		h := e.headOf(w)
		if told := w.told(); len(told) != 3 || told[2].Revision != h.Revision {
			e.Errorf("a follower was told %d of 3 changes, the last of them %v", len(told), w.last().Revision)
		}
	}
}

func fromUpOn(e *env) {
	e.change(write(set("before", "v")))
	late := e.follow(e.second, e.name)
	c := e.change(write(set("after", "v")))
	if h := e.headOf(late); h.Revision != c.Revision {
		e.Fatalf("the head is %v, want %v", h.Revision, c.Revision)
	}
	if told := late.told(); len(told) != 1 || told[0].Revision != c.Revision || told[0].Prev != c.Prev {
		e.Fatalf("a late follower was told %+v", told)
	}
}

// writers writes flat out at both stores until the returned function is called. highest is the highest number of a
// write that has returned.
func (e *env) writers(n int) (highest *atomic.Uint64, stop func()) {
	highest = new(atomic.Uint64)
	var end atomic.Bool
	var busy sync.WaitGroup
	var start, once sync.Once
	begun := make(chan struct{})
	for i := range n {
		store := []rmap.Store{e.first, e.second}[i%2]
		busy.Go(func() {
			defer start.Do(func() { close(begun) })
			for j := 0; !end.Load(); j++ {
				if j == 10 {
					start.Do(func() { close(begun) })
				}
				r, err := store.Write(e.ctx, e.name, write(set(fmt.Sprint("writer ", i, " ", j%10), fmt.Sprint(j)), add("n", 1)))
				if err != nil {
					e.Errorf("write: %v", err)
					return
				}
				for old := highest.Load(); old < r.Revision.Number && !highest.CompareAndSwap(old, r.Revision.Number); {
					old = highest.Load()
				}
			}
		})
	}
	<-begun // and not by looking at the clock, which in a bubble stands still while they write
	return highest, func() { once.Do(func() { end.Store(true); busy.Wait() }) }
}

// However much is written: when Head returns, the follower has been told everything up to it, and everything that had
// returned before Head was called is below it.
func headInOrder(e *env) {
	highest, stop := e.writers(4)
	defer stop()
	for i, begin := 0, highest.Load(); (i < 300 || highest.Load() < begin+300) && !e.Failed(); i++ {
		w := []*witness{e.w, e.other}[i%2]
		written := highest.Load()
		h := e.headOf(w)
		last := w.last().Revision
		if h.Revision.Number < written {
			e.Fatalf("number %d had been written, and the head after that is %d", written, h.Revision.Number)
		}
		if last.Number < h.Revision.Number {
			e.Fatalf("the head is %d, and the follower has been told up to %d", h.Revision.Number, last.Number)
		}
		if got := w.number(h.Revision.Number); got != h.Revision {
			e.Fatalf("the head is %v, and the follower was told %v", h.Revision, got)
		}
	}
	stop()
	e.compare(e.w)
	e.compare(e.other)
}

func closeIsTheEnd(e *env) {
	highest, stop := e.writers(2)
	defer stop()
	for range 20 {
		w := e.follow(e.second, e.name)
		w.close() // and any call from here on is noticed
		w.feed.Close()
		if _, err := w.feed.Head(e.ctx); err == nil {
			e.Fatal("a closed feed has a head")
		}
		for from := highest.Load(); highest.Load() < from+2 && !e.Failed(); {
			runtime.Gosched() // until there was something that it was not to be told
		}
	}
}

func closeOfOne(e *env) {
	w := e.follow(e.first, e.name)
	c := e.change(write(set("k", "v")))
	w.close()
	next := e.change(write(set("k", "w")))
	if w.last().Revision != c.Revision || e.headOf(e.other).Revision != next.Revision || e.other.last().Revision != next.Revision {
		e.Fatalf("after the end of one follower, which saw %v, the other is at %v, want %v", w.last().Revision,
			e.other.last().Revision, next.Revision)
	}
	e.compare(e.follow(e.first, e.name))
}

// Followers come and go from many goroutines while others write; the witnesses that stay miss nothing.
func comingAndGoing(e *env) {
	_, stop := e.writers(2)
	defer stop()
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for range 25 {
				w := &witness{name: e.name, nonces: make(map[uint64]bool), entries: make(map[string]rmap.Entry)}
				feed, err := e.second.Follow(e.name, w)
				if err != nil {
					e.Errorf("follow: %v", err)
					return
				}
				w.feed = feed
				w.close()
				for _, p := range w.problems() {
					e.Errorf("a follower that came and went: %s", p)
				}
			}
		})
	}
	busy.Wait()
	stop()
	e.compare(e.w)
	e.compare(e.other)
}
