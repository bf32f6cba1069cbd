package leaselocal

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/engine"
	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

// disk is the durable side of a Service; with no journal it does nothing. Only
// the owner of the engine touches it.
type disk struct {
	journal  *journal.Journal
	policy   Fsync
	every    time.Duration
	unsynced time.Time // when the oldest record since the last sync was written, under Interval
	timer    *time.Timer
	polling  bool // timer is set to look after a snapshot instead of for the next sync
	sync     lease.Histogram
	failed   bool // the engine was told of the journal's failure

	walk       *engine.Snapshot  // a snapshot under way
	snap       *journal.Snapshot // where it goes
	piece      [][]byte          // taken from walk, not yet taken by snap
	more       bool              // walk has more than piece
	publishing atomic.Bool       // its writer has not finished yet; the writer clears it
	least      int64             // journal size below which no snapshot begins
}

// recover rebuilds the engine from the directory.
func (s *Service) recover() error {
	o := s.o
	policy := [...]journal.Policy{journal.Always, journal.Interval, journal.Never}[o.Fsync]
	s.engine = engine.New(engine.Config{Durable: true, Lazy: o.Fsync != Always})
	restore := s.engine.Restore()
	j, found, err := journal.Open(o.Dir, journal.Options{FS: o.fs, Policy: policy, SegmentSize: o.segmentSize, Logger: o.Logger}, restore.Apply)
	if err != nil {
		return fmt.Errorf("leaselocal: %w", err)
	}
	restore.Start(found.Clean, max(o.TokenFloor, clockToken()))
	d := &s.disk
	d.journal, d.policy, d.every, d.least = j, o.Fsync, o.SyncEvery, snapshotSize
	if o.segmentSize > 0 {
		d.least = 2 * o.segmentSize
	}
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
	if err := s.commit(); err != nil { // what starting wrote
		return fmt.Errorf("leaselocal: %w", errors.Join(err, j.Close()))
	}
	s.engine.Out().Reset()
	st := s.engine.Stats()
	s.log.Info("opened", "dir", o.Dir, "clean", found.Clean, "records", found.Records, "leases", st.Holds,
		"torn_bytes", found.TornBytes, "quiet", st.Recovering)
	return nil
}

// commit makes the records of the batch as durable as the policy says. Its error
// is the journal's failure, and it comes once: from then on nothing is written.
func (s *Service) commit() error {
	d, out := &s.disk, s.engine.Out()
	if d.journal == nil || d.failed {
		return nil
	}
	if out.HasRecords() {
		begin := time.Now()
		d.append(out)
		if err := d.journal.Commit(out.MustSync); err == nil {
			s.engine.Committed()
			d.committed(begin, d.policy == Always || out.MustSync)
		}
	}
	return s.checkDisk()
}

// append hands the records over, in pieces: a million leases that end at once are
// more than the journal takes before a commit. A crash between two pieces leaves
// what nobody was told of.
func (d *disk) append(out *engine.Output) {
	size := 0
	out.Records(func(rec []byte) {
		if size += len(rec); size > commitPiece {
			size = len(rec)
			if d.journal.Commit(false) != nil {
				return // the commit that follows says so
			}
		}
		d.journal.Append(rec)
	})
}

// checkDisk stops all granting when the journal has failed, wherever that was:
// in a commit, in the sync of the interval policy, or at the start of a snapshot.
func (s *Service) checkDisk() error {
	d := &s.disk
	err := d.journal.Err()
	if err == nil || d.failed {
		return nil
	}
	d.failed = true
	s.log.Error("the journal failed; nothing more is granted until a restart", "dir", s.o.Dir, "err", err)
	s.engine.Fail(fmt.Sprintf("the journal failed, restart the service: %v", err))
	return err
}

func (d *disk) committed(begin time.Time, synced bool) {
	switch {
	case synced:
		d.sync.Observe(time.Since(begin))
		d.unsynced = time.Time{}
	case d.policy == Interval && d.unsynced.IsZero():
		d.unsynced = begin
		d.timer.Reset(d.every)
	}
}

// wake is signalled when housekeep has something to do.
func (d *disk) wake() <-chan time.Time {
	if d.timer == nil {
		return nil
	}
	return d.timer.C
}

// busy reports that the owner should go on without waiting.
func (d *disk) busy() bool {
	if d.snap == nil {
		return false
	}
	if d.piece == nil {
		return true
	}
	select {
	case <-d.snap.Ready():
		return true
	default: // the writer is behind: look again soon
		d.timer.Reset(time.Millisecond)
		d.polling = true
		return false
	}
}

// housekeep does what is due between two batches: the sync of the interval
// policy, and a piece of a snapshot.
func (d *disk) housekeep(s *Service) {
	if d.journal == nil || d.failed {
		return
	}
	if !d.unsynced.IsZero() && time.Since(d.unsynced) >= d.every {
		begin := time.Now()
		if d.journal.Sync() == nil {
			d.committed(begin, true)
		}
	}
	switch {
	case d.snap != nil:
		d.snapshotOn(s)
	case !s.closing && !d.publishing.Load() && d.journal.Size() > d.threshold():
		d.snapshotBegin(s)
	}
	if d.polling && d.snap == nil {
		d.polling = false
		if !d.unsynced.IsZero() {
			d.timer.Reset(max(d.every-time.Since(d.unsynced), 0))
		}
	}
	if err := s.checkDisk(); err != nil {
		s.deliver(err)
	}
}

// threshold is the journal size at which a snapshot pays.
func (d *disk) threshold() int64 {
	return max(d.least, 2*int64(d.journal.Stats().SnapshotBytes))
}

func (d *disk) snapshotBegin(s *Service) {
	snap, err := d.journal.Snapshot()
	if err != nil {
		d.putOff(s, err)
		return
	}
	d.snap, d.walk, d.more = snap, s.engine.Snapshot(), true
}

// putOff lets half as much again gather before the next try.
func (d *disk) putOff(s *Service, err error) {
	d.least = d.journal.Size() + d.journal.Size()/2
	s.log.Warn("snapshot put off; the journal goes on without it", "dir", s.o.Dir, "err", err)
}

// snapshotOn hands one piece over. The walk and the journal's records overlap:
// what changes meanwhile is in both, or only in the records, which are replayed
// later.
func (d *disk) snapshotOn(s *Service) {
	if d.piece == nil {
		d.more = d.walk.Next(snapshotPiece, func(rec []byte) { d.piece = append(d.piece, rec) })
	}
	if err := d.snap.Write(d.piece); errors.Is(err, journal.ErrSnapshotBusy) {
		return
	} else if err != nil {
		d.more = false // Commit reports why
	}
	d.piece = nil
	if d.more {
		return
	}
	d.publishing.Store(true)
	d.snap.Commit(func(err error) {
		s.submit(op{do: func() func(error) {
			if err != nil {
				d.putOff(s, err)
			}
			return nil
		}})
		d.publishing.Store(false)
	})
	d.walk.Stop()
	d.snap, d.walk = nil, nil
}

func (d *disk) close() error {
	if d.journal == nil {
		return nil
	}
	d.timer.Stop()
	d.snap, d.walk = nil, nil // the journal gives it up
	return d.journal.Close()
}

func (d *disk) stats(o Options, st *lease.Stats) {
	st.Durability, st.Fencing = "memory", "clock"
	if d.journal == nil {
		return
	}
	st.Fencing = "journal"
	st.Durability = [...]string{"always", "interval " + o.SyncEvery.String(), "never"}[o.Fsync]
	js := d.journal.Stats()
	st.JournalRecords, st.JournalFrames, st.JournalSyncs, st.JournalBytes = js.Records, js.Frames, js.Syncs, js.Bytes
	st.Snapshots = js.Snapshots
	st.Sync = d.sync
}
