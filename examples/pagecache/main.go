// Command pagecache shows a cache that does no work twice. Four readers fetch ten pages a hundred times each, all at
// once and without anything in the cache; each page is rendered once. Who asks for a page that is being rendered waits
// for it, and who asks for another page does not.
//
//	go run ./examples/pagecache
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/locked"
)

const (
	readers = 4
	fetches = 100 // of each reader
	pages   = 10
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "pagecache:", err)
		os.Exit(1)
	}
}

func run() error {
	cache := locked.NewKeyMap[int, string](nil)
	var renders, wrong atomic.Int64
	fetch := func(page int) (string, error) {
		return cache.GetOrCreate(page, func() (string, error) { // the one kind of function that may take long
			renders.Add(1)
			runtime.Gosched() // the others come, and want the same page
			return fmt.Sprintf("<p>page %d</p>", page), nil
		})
	}

	start := make(chan struct{})
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			<-start
			for i := range fetches {
				page := i % pages
				if html, err := fetch(page); err != nil || html != fmt.Sprintf("<p>page %d</p>", page) {
					wrong.Add(1)
				}
			}
		})
	}
	close(start)
	reading.Wait()

	if renders.Load() != pages || wrong.Load() != 0 {
		return fmt.Errorf("%d renders of %d pages, %d wrong answers", renders.Load(), pages, wrong.Load())
	}
	fmt.Println("400 fetches, 10 renders")
	return nil
}
