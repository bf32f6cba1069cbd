package journal_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// files counts the directory's files by kind.
func files(disk *crashfs.FS) (segments, snapshots, temps int) {
	for _, name := range disk.Names(dir) {
		switch {
		case strings.HasSuffix(name, ".tmp"):
			temps++
		case strings.Contains(name, "segment-"):
			segments++
		case strings.Contains(name, "snapshot-"):
			snapshots++
		}
	}
	return segments, snapshots, temps
}

func TestSnapshotReplacesSegments(t *testing.T) {
	disk := crashfs.New(nil)
	o := journal.Options{FS: disk, SegmentSize: 4096}
	j, _, _ := replay(t, dir, o)
	for range 3 {
		for range 100 {
			commit(t, j, strings.Repeat("x", 100))
		}
		if size := j.Size(); size < 100*192 {
			t.Errorf("size is %d before the snapshot", size)
		}
		if err := snapshot(t, j, "state"); err != nil {
			t.Fatal(err)
		}
		if size := j.Size(); size != 4096 {
			t.Errorf("size is %d after the snapshot, want 4096", size)
		}
		if segments, snapshots, temps := files(disk); segments != 1 || snapshots != 1 || temps != 0 {
			t.Errorf("%d segments, %d snapshots, %d temporary files are left", segments, snapshots, temps)
		}
	}
	st := j.Stats()
	if st.Snapshots != 3 || st.SnapshotFailures != 0 || st.SnapshotBytes != 64+64+64 {
		t.Errorf("the counters are %+v", st)
	}
	closeJournal(t, j)
	j, _, recs := replay(t, dir, o)
	if strings.Join(recs, " ") != "state" {
		t.Errorf("%v came back", recs)
	}
	closeJournal(t, j)
}

// A disk that has no room for a segment stops the start, which says how much is
// needed, and leaves nothing behind.
func TestOpenOnFullDisk(t *testing.T) {
	disk := crashfs.New(func(c crashfs.Call) crashfs.Action {
		if c.Op == crashfs.OpPreallocate {
			return crashfs.Action{Err: syscall.ENOSPC}
		}
		return crashfs.Action{}
	})
	_, _, err := journal.Open(dir, journal.Options{FS: disk}, func([]byte) error { return nil })
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "make room: it takes 16 MiB") {
		t.Errorf("got %v", err)
	}
	if segments, _, temps := files(disk); segments != 0 || temps != 0 {
		t.Errorf("%d segments, %d temporary files are left", segments, temps)
	}
}

// A disk that is full fails the snapshot and nothing else: the old files stay,
// the temporary one goes, appending goes on, and a later snapshot succeeds.
func TestSnapshotOnFullDisk(t *testing.T) {
	full := errors.New("no space left on device")
	for _, op := range []crashfs.Op{crashfs.OpCreate, crashfs.OpPreallocate, crashfs.OpWrite, crashfs.OpSync, crashfs.OpClose} {
		for _, kind := range []string{"segment-", "snapshot-"} {
			if kind == "snapshot-" && op == crashfs.OpPreallocate {
				continue // a snapshot's file just grows
			}
			t.Run(string(op)+" "+kind, func(t *testing.T) {
				var on atomic.Bool
				disk := crashfs.New(func(c crashfs.Call) crashfs.Action {
					if on.Load() && c.Op == op && strings.Contains(c.Name, kind) && strings.HasSuffix(c.Name, ".tmp") {
						return crashfs.Action{Err: full, Short: true}
					}
					return crashfs.Action{}
				})
				o := journal.Options{FS: disk, SegmentSize: 4096}
				j, _, _ := replay(t, dir, o)
				commit(t, j, "a")
				on.Store(true)
				if err := snapshot(t, j, "a"); !errors.Is(err, full) {
					t.Errorf("the snapshot says %v", err)
				}
				if err := j.Err(); err != nil {
					t.Errorf("the journal says %v", err)
				}
				if _, snapshots, temps := files(disk); snapshots != 0 || temps != 0 {
					t.Errorf("%d snapshots, %d temporary files are left", snapshots, temps)
				}
				if st := j.Stats(); st.SnapshotFailures != 1 || st.Snapshots != 0 {
					t.Errorf("the counters are %+v", st)
				}
				commit(t, j, "b")
				on.Store(false)
				if err := snapshot(t, j, "a", "b"); err != nil {
					t.Fatal(err)
				}
				commit(t, j, "c")
				closeJournal(t, j)
				j, _, recs := replay(t, dir, o)
				if got := strings.Join(recs, " "); got != "a b c" {
					t.Errorf("%q came back", got)
				}
				closeJournal(t, j)
			})
		}
	}
}

func TestSnapshotAbortAndMisuse(t *testing.T) {
	disk := crashfs.New(nil)
	j, _, _ := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
	commit(t, j, "a")
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Snapshot(); !errors.Is(err, journal.ErrSnapshotRunning) {
		t.Errorf("a second snapshot says %v", err)
	}
	if err := s.Write([][]byte{make([]byte, journal.MaxRecord+1)}); !errors.Is(err, journal.ErrTooLarge) {
		t.Errorf("a large record says %v", err)
	}
	s.Abort()
	s.Abort()
	if err := s.Write(nil); !errors.Is(err, journal.ErrSnapshotEnded) {
		t.Errorf("write after the end says %v", err)
	}
	var late error
	s.Commit(func(err error) { late = err })
	if !errors.Is(late, journal.ErrSnapshotEnded) {
		t.Errorf("commit after the end says %v", late)
	}
	if segments, snapshots, temps := files(disk); segments != 2 || snapshots != 0 || temps != 0 {
		t.Errorf("%d segments, %d snapshots, %d temporary files are left", segments, snapshots, temps)
	}
	if st := j.Stats(); st.SnapshotFailures != 0 {
		t.Errorf("the counters are %+v", st)
	}
	// One that is still running is aborted by Close.
	if _, err = j.Snapshot(); err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
	if _, snapshots, temps := files(disk); snapshots != 0 || temps != 0 {
		t.Errorf("%d snapshots, %d temporary files are left", snapshots, temps)
	}
}

// The owner is told that the writer is behind, and never waits for it.
func TestSnapshotWriteNeverWaits(t *testing.T) {
	gate := make(chan struct{})
	disk := crashfs.New(nil)
	slow := onFiles("snapshot-", func(f journal.File) journal.File { return gated{f, gate} })(disk)
	j, _, _ := replay(t, dir, journal.Options{FS: slow, SegmentSize: 4096})
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for err == nil {
		if err = s.Write([][]byte{[]byte("piece")}); err == nil {
			taken++
		}
	}
	if !errors.Is(err, journal.ErrSnapshotBusy) || taken == 0 || taken > 8 {
		t.Errorf("after %d pieces: %v", taken, err)
	}
	commit(t, j, "meanwhile")
	close(gate)
	<-s.Ready()
	if err := s.Write([][]byte{[]byte("last")}); err != nil {
		t.Error(err)
	}
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
	j, r, recs := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
	if r.Records != taken+2 || recs[taken+1] != "meanwhile" {
		t.Errorf("%v came back", recs)
	}
	closeJournal(t, j)
}

// gated writes when the gate is open.
type gated struct {
	journal.File
	gate chan struct{}
}

func (f gated) WriteAt(p []byte, off int64) (int, error) {
	<-f.gate
	return f.File.WriteAt(p, off)
}

// A snapshot may show a record that was appended and not yet synced when it was
// handed over. Ending it makes that record durable first, or a power cut could
// leave a state that never was.
func TestSnapshotSyncsWhatItShows(t *testing.T) {
	disk := crashfs.New(nil)
	o := journal.Options{FS: disk, SegmentSize: 4096, Policy: journal.Never}
	j, _, _ := replay(t, dir, o)
	commit(t, j, "a")
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, "b")
	j.Append([]byte("c"))
	if err := s.Write([][]byte{[]byte("a"), []byte("c")}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	disk = disk.Reopen(crashfs.Lose, 0, nil)
	closed := make(chan error, 1)
	go func() { closed <- j.Close() }()
	if err := <-closed; !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("close says %v", err)
	}
	j, _, recs := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
	if got := strings.Join(recs, " "); got != "a c b c" {
		t.Errorf("%q came back", got)
	}
	closeJournal(t, j)
}

// A failure of the journal itself is reported through the snapshot as well.
func TestSnapshotOfFailedJournal(t *testing.T) {
	broken := errors.New("disk is gone")
	var on atomic.Bool
	disk := crashfs.New(func(c crashfs.Call) crashfs.Action {
		if on.Load() && c.Op == crashfs.OpSync && !strings.HasSuffix(c.Name, ".tmp") {
			return crashfs.Action{Err: broken}
		}
		return crashfs.Action{}
	})
	j, _, _ := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	on.Store(true)
	j.Append([]byte("x"))
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	if err := <-done; !errors.Is(err, journal.ErrFailed) || !errors.Is(err, broken) {
		t.Errorf("the snapshot says %v", err)
	}
	if err := j.Close(); !errors.Is(err, journal.ErrFailed) {
		t.Errorf("close says %v", err)
	}
	if _, snapshots, temps := files(disk); snapshots != 0 || temps != 0 {
		t.Errorf("%d snapshots, %d temporary files are left", snapshots, temps)
	}
}
