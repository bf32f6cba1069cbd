package leaselocal

import (
	"context"
	"strconv"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// asker waits for one outcome after the other.
type asker struct{ done chan lease.Lease }

func (a asker) Queued(lease.Queued) {}

func (a asker) Done(l lease.Lease, err error) {
	if err != nil {
		panic(err)
	}
	a.done <- l
}

// BenchmarkPair is a lock and unlock by one caller of a service in memory: what
// a broker pays beyond its sockets.
func BenchmarkPair(b *testing.B) { benchmarkPair(b, Options{}) }

// BenchmarkPairDurable is the same with two syncs.
func BenchmarkPairDurable(b *testing.B) { benchmarkPair(b, Options{Dir: b.TempDir()}) }

func benchmarkPair(b *testing.B, o Options) {
	s, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sess, err := s.Open(context.Background(), lease.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	a, keys, i := asker{make(chan lease.Lease, 1)}, []string{"key"}, 0
	b.ReportAllocs()
	for b.Loop() {
		// An id that was used is over for good.
		id := strconv.Itoa(i)
		i++
		sess.Acquire(lease.Request{ID: id, Keys: keys}, a)
		<-a.done
		sess.Do(lease.Command{Verb: lease.Release, ID: id}, nil)
	}
}
