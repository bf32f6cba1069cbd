package leaselocal

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/engine"
	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

// Fsync says when what was written is made durable.
type Fsync int

// The policies.
const (
	// Always syncs before anyone is told: what was acknowledged survives power
	// loss.
	Always Fsync = iota
	// Interval syncs every Options.SyncEvery: a power loss may forget what was
	// acknowledged since. After an unclean end nothing is granted until the
	// longest ttl that may have been forgotten has passed, at most a minute:
	// longer leases are always synced.
	Interval
	// Never leaves it to the operating system; otherwise like Interval. A crash
	// of the process alone loses nothing under any policy.
	Never
)

// ParseFsync reads the name of a policy: always, interval or never.
func ParseFsync(s string) (Fsync, error) {
	switch s {
	case "always":
		return Always, nil
	case "interval":
		return Interval, nil
	case "never":
		return Never, nil
	}
	return 0, fmt.Errorf("fsync policy %q: want always, interval or never", s)
}

// Options configure a Service. The zero value keeps everything in memory.
type Options struct {
	// Dir is the directory of the journal; it is made when it does not exist.
	// Empty: memory only.
	Dir string

	Fsync     Fsync
	SyncEvery time.Duration // Interval only; zero means 100 ms

	// TokenFloor makes every token greater than it. It is for a directory
	// restored from a backup: give it the highest token that the world may have
	// seen.
	TokenFloor lease.Token

	// Logger gets what a caller cannot be told: forced releases, recovery, a
	// failed journal. Nil discards it.
	Logger *slog.Logger

	fs          journal.FS // tests: a disk that fails and forgets
	segmentSize int64      // tests: small segments
}

// snapshotSize is how much journal gathers before it is replaced by a snapshot:
// at least this, and at least twice the last snapshot, so that the cost of
// snapshots stays a fraction of the cost of writing.
const snapshotSize = 32 << 20

// snapshotPiece is how many leases are written to a snapshot between two
// batches: about a millisecond of work.
const snapshotPiece = 2000

// commitPiece is how many bytes of records the journal gets between two commits
// within one batch.
const commitPiece = 8 << 20

// Open starts a service, rebuilding it from the directory if there is one.
func Open(o Options) (*Service, error) {
	if o.SyncEvery == 0 {
		o.SyncEvery = 100 * time.Millisecond
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Fsync < Always || o.Fsync > Never:
		return nil, fmt.Errorf("leaselocal: fsync policy %d is not one", o.Fsync)
	case o.SyncEvery < 0:
		return nil, fmt.Errorf("leaselocal: sync every %v: it must be positive", o.SyncEvery)
	case o.TokenFloor >= lease.MaxToken:
		return nil, fmt.Errorf("leaselocal: token floor %d must be below %d", o.TokenFloor, lease.MaxToken)
	}
	s := newService(o)
	if o.Dir == "" {
		s.engine = engine.New(engine.Config{Token: max(o.TokenFloor, clockToken())})
	} else if err := s.recover(); err != nil {
		return nil, err
	}
	s.started = time.Now()
	go s.loop()
	return s, nil
}

// clockToken is where tokens start when nothing is known of earlier ones: at the
// microseconds of the wall clock, which no service outruns. A durable service
// starts there too if that is higher than its journal, so that a directory
// restored from a backup, or one that follows a memory-only service, does not
// fall behind.
func clockToken() lease.Token {
	us := time.Now().UnixMicro()
	if us < 0 || us > maxClock {
		return 0 // a clock this wrong would use the numbers up
	}
	return lease.Token(us)
}

// maxClock is the year 2200.
const maxClock = 7_258_118_400_000_000
