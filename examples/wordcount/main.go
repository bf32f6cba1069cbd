// Command wordcount shows counters that are spread over keys. Four workers count the words of eight hundred lines in
// one map; two that count different words do not wait for each other.
//
//	go run ./examples/wordcount
package main

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/latchkey-go/latchkey/locked"
)

var verses = []string{
	"the key turns in the lock",
	"the lock keeps the door",
	"the door keeps the house",
	"whoever has the key has the house",
}

const (
	workers = 4
	lines   = 200 // of each worker
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func run() error {
	counts := locked.NewKeyMap[string, int](nil)
	var counting sync.WaitGroup
	for worker := range workers {
		counting.Go(func() {
			for n := range lines {
				for word := range strings.FieldsSeq(verses[(worker+n)%len(verses)]) {
					locked.AddTo(counts, word, 1) // a missing key counts as zero
				}
			}
		})
	}
	counting.Wait()

	want := make(map[string]int)
	for _, verse := range verses {
		for word := range strings.FieldsSeq(verse) {
			want[word] += workers * lines / len(verses)
		}
	}
	got := counts.Copy() // nobody counts any more, so it is exact
	if !maps.Equal(got, want) {
		return fmt.Errorf("counted %v, want %v", got, want)
	}
	fmt.Printf("%d different words in 800 lines, \"the\" %d times\n", len(got), got["the"])
	return nil
}
