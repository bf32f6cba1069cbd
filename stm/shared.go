package stm

import "sync/atomic"

// shared is what the transactions of a process share, each on a cache line of its
// own. Commits only look at bigs, which seldom changes.
var shared struct {
	_      [64]byte
	bigs   atomic.Int64 // how many big transactions are under way
	_      [56]byte
	clock  atomic.Uint64 // moved by every commit while there are any
	_      [56]byte
	reruns atomic.Uint64
	_      [56]byte
}

// gate lets one transaction at a time keep what it reads, so that it cannot lose.
// Those that wait come through in order.
var gate = make(chan struct{}, 1)

// tick returns the stamp of a commit, 0 when nobody would look at it. All that the
// commit writes must be locked before: a big transaction that this does not see waits
// for those locks.
func tick() uint64 {
	if shared.bigs.Load() == 0 {
		return 0
	}
	return shared.clock.Add(1)
}

// Reruns is how often a function was run again in this process, because another
// transaction had changed what it read. Many of them mean transactions that are too
// long, or variables that too many share.
func Reruns() uint64 { return shared.reruns.Load() }
