package journal

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// Snapshot replaces everything that was in the journal when it was begun. The
// owner hands the state over piece by piece and goes on appending meanwhile; the
// pieces may be of different ages, because records that came after the beginning
// are replayed on top. Its methods belong to the journal's owner.
type Snapshot struct {
	j       *Journal
	header  fileHeader
	covered int64 // bytes of Size that it replaces

	queue   chan batch
	ready   chan struct{}
	done    chan struct{} // closed when the writer has returned
	idle    atomic.Bool   // set before the outcome is reported
	failure atomic.Pointer[error]

	// The owner sets these before it closes queue; the writer reads them after.
	ended  bool
	abort  bool
	cause  error
	report func(error)
}

// Snapshot syncs the current segment and begins a new one; what came before is
// replaced when the snapshot is committed. An error that leaves the journal
// usable (Err returns nil: the disk is full, another snapshot runs) means that
// nothing has changed.
func (j *Journal) Snapshot() (*Snapshot, error) {
	if err := j.usable(); err != nil {
		return nil, err
	}
	if j.snap != nil && !j.snap.idle.Load() {
		return nil, fmt.Errorf("journal: %s: %w", j.dir, ErrSnapshotRunning)
	}
	if err := j.sync(); err != nil {
		return nil, err
	}
	h, err := j.prepareSegment(j.o.SegmentSize)
	if err != nil {
		j.count.snapshotFailures.Add(1)
		return nil, fmt.Errorf("journal: begin a snapshot: %w", err)
	}
	covered := j.live.Load()
	if err := j.publishSegment(h, j.o.SegmentSize); err != nil {
		return nil, j.fail(err)
	}
	s := &Snapshot{
		j:       j,
		header:  fileHeader{kind: kindSnapshot, number: h.number, first: h.first, salt: newSalt()},
		covered: covered,
		queue:   make(chan batch, snapshotQueue),
		ready:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
	j.snap = s
	go s.run()
	return s, nil
}

// Write hands over a piece of the state, copying it. It never waits: it returns
// ErrSnapshotBusy, having taken nothing, while the writer is behind. Any other
// error means that the snapshot cannot succeed; call Commit or Abort to end it.
func (s *Snapshot) Write(recs [][]byte) error {
	if s.ended {
		return fmt.Errorf("journal: %w", ErrSnapshotEnded)
	}
	if p := s.failure.Load(); p != nil {
		return *p
	}
	if len(s.queue) == cap(s.queue) {
		return ErrSnapshotBusy
	}
	var b batch
	for _, rec := range recs {
		if len(rec) > MaxRecord {
			return fmt.Errorf("journal: a snapshot record of %d bytes (limit %d): %w", len(rec), MaxRecord, ErrTooLarge)
		}
		b.add(rec, MaxFrame)
	}
	b.seal()
	s.queue <- b
	return nil
}

// Ready signals after each piece that the writer has dealt with.
func (s *Snapshot) Ready() <-chan struct{} { return s.ready }

// Commit ends the snapshot. Everything appended so far is committed and synced
// first, because the state handed over may already show it; the rest happens in
// the writer, which calls done with the outcome when the files it replaces are
// gone. done must not wait for the owner. After a failure the old files stand,
// and unless Journal.Err says otherwise the owner may begin another snapshot.
func (s *Snapshot) Commit(done func(error)) {
	if s.ended {
		done(fmt.Errorf("journal: %w", ErrSnapshotEnded))
		return
	}
	s.cause = s.j.Commit(true)
	s.report = done
	s.end()
}

// Abort ends the snapshot without effect and waits until its file is gone. After
// Commit it only waits.
func (s *Snapshot) Abort() {
	if !s.ended {
		s.abort = true
		s.end()
	}
	<-s.done
}

func (s *Snapshot) end() {
	s.ended = true
	close(s.queue)
}

// run is the writer's goroutine. It ends soon after the queue is closed.
func (s *Snapshot) run() {
	defer close(s.done)
	temp := s.j.snapshotPath(s.header.number) + tempSuffix
	size, err := s.fill(temp)
	switch {
	case s.abort:
	case s.cause != nil:
		err = s.cause
	case err == nil:
		err = s.publish(temp, size)
	}
	if s.abort || err != nil {
		// Best effort: Open removes it as well.
		_ = s.j.o.FS.Remove(temp)
	}
	if err != nil && !s.abort {
		s.j.count.snapshotFailures.Add(1)
	}
	s.idle.Store(true)
	if s.report != nil {
		s.report(err)
	}
}

// fill writes the pieces into temp as they come, until the owner ends the
// snapshot. After an error it still takes pieces, so that the owner never waits.
func (s *Snapshot) fill(temp string) (int64, error) {
	f, err := s.j.o.FS.Create(temp)
	w := snapshotWriter{f: f, salt: s.header.salt, sum: s.j.o.sum, seq: 1}
	if err == nil {
		err = w.write(s.header.encode())
	}
	for b := range s.queue {
		if err == nil {
			err = w.frames(b)
		}
		if err != nil {
			cause := fmt.Errorf("journal: write %s: %w", temp, err)
			s.failure.CompareAndSwap(nil, &cause)
		}
		select {
		case s.ready <- struct{}{}:
		default:
			// A signal is already waiting for the owner.
		}
	}
	if err == nil && !s.abort && s.cause == nil {
		err = w.end()
	}
	if f != nil {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err != nil {
		err = fmt.Errorf("journal: write %s: %w", temp, err)
	}
	return w.off, err
}

// publish puts the finished file in the place of what it replaces.
func (s *Snapshot) publish(temp string, size int64) error {
	j := s.j
	path := j.snapshotPath(s.header.number)
	if err := j.o.FS.Rename(temp, path); err != nil {
		return fmt.Errorf("journal: rename to %s: %w", path, err)
	}
	// Until this returns nil the old files must stay: after a crash either they
	// or the snapshot will be there, and both give the same state.
	if err := j.o.FS.SyncDir(j.dir); err != nil {
		return fmt.Errorf("journal: sync %s: %w", j.dir, err)
	}
	j.live.Add(-s.covered)
	j.count.snapshots.Add(1)
	j.count.snapshotBytes.Store(uint64(size))
	s.removeReplaced()
	return nil
}

// removeReplaced deletes what replay will no longer read. What cannot be deleted
// costs space only, and the next Open tries again.
func (s *Snapshot) removeReplaced() {
	j := s.j
	names, err := j.o.FS.List(j.dir)
	if err != nil {
		j.o.Logger.Warn("journal: cannot list replaced files", "dir", j.dir, "error", err)
		return
	}
	for _, name := range names {
		n, ok := parseName(name, segmentPrefix, segmentSuffix)
		if !ok {
			n, ok = parseName(name, snapshotPrefix, snapshotSuffix)
		}
		if !ok || n >= s.header.number {
			continue
		}
		if err := j.o.FS.Remove(filepath.Join(j.dir, name)); err != nil {
			j.o.Logger.Warn("journal: cannot remove a replaced file", "file", name, "error", err)
		}
	}
}

// snapshotWriter appends frames to a snapshot's file.
type snapshotWriter struct {
	f    File
	off  int64
	salt uint32
	sum  checksum
	seq  uint64
}

func (w *snapshotWriter) write(p []byte) error {
	_, err := w.f.WriteAt(p, w.off)
	w.off += int64(len(p))
	return err
}

func (w *snapshotWriter) frames(b batch) error {
	for _, s := range b.frames {
		b.stamp(s, kindData, w.seq, 0, w.salt, w.sum)
		w.seq++
	}
	return w.write(b.buf)
}

// end writes the frame that makes the snapshot whole, and syncs.
func (w *snapshotWriter) end() error {
	if err := w.write(markFrame(kindEnd, w.seq, 0, w.salt, w.sum)); err != nil {
		return err
	}
	return w.f.Sync()
}
