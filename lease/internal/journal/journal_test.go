package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// replay opens the journal in path and returns its records.
func replay(t *testing.T, path string, o journal.Options) (*journal.Journal, journal.Recovered, []string) {
	t.Helper()
	var recs []string
	j, r, err := journal.Open(path, o, func(rec []byte) error {
		recs = append(recs, string(rec))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() }) // most tests close it themselves
	return j, r, recs
}

func commit(t *testing.T, j *journal.Journal, recs ...string) {
	t.Helper()
	for _, rec := range recs {
		j.Append([]byte(rec))
	}
	if err := j.Commit(false); err != nil {
		t.Fatal(err)
	}
}

func closeJournal(t *testing.T, j *journal.Journal) {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// snapshot writes recs as a snapshot and waits for it.
func snapshot(t *testing.T, j *journal.Journal, recs ...string) error {
	t.Helper()
	s, err := j.Snapshot()
	if err != nil {
		return err
	}
	for _, rec := range recs {
		for {
			err := s.Write([][]byte{[]byte(rec)})
			if !errors.Is(err, journal.ErrSnapshotBusy) {
				break // a failure is reported by Commit
			}
			<-s.Ready()
		}
	}
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	return <-done
}

// On the operating system's files: records, a snapshot, a clean end, rotation.
func TestOperatingSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b")
	o := journal.Options{SegmentSize: 4096}
	j, r, recs := replay(t, path, o)
	if !r.Fresh || !r.Clean || len(recs) != 0 {
		t.Errorf("a new directory gives %+v and %d records", r, len(recs))
	}
	var want []string
	for i := range 100 {
		rec := fmt.Sprintf("record %d %s", i, strings.Repeat("x", i))
		want = append(want, rec)
		commit(t, j, rec)
	}
	if err := snapshot(t, j, "s1", "s2"); err != nil {
		t.Fatal(err)
	}
	commit(t, j, "after")
	closeJournal(t, j)
	closeJournal(t, j)

	j, r, recs = replay(t, path, o)
	if got, want := strings.Join(recs, " "), "s1 s2 after"; got != want {
		t.Errorf("replay gives %q, want %q", got, want)
	}
	if r.Fresh || !r.Clean || !r.Snapshot || r.Records != 3 || r.Segments != 1 || r.TornBytes != 0 {
		t.Errorf("recovery says %+v", r)
	}
	for _, rec := range want {
		commit(t, j, rec)
	}
	closeJournal(t, j)
	_, r, recs = replay(t, path, o)
	if want := append([]string{"s1", "s2", "after"}, want...); !slices.Equal(recs, want) {
		t.Errorf("replay gives %d records, want %d", len(recs), len(want))
	}
	if !r.Clean || r.Segments < 3 {
		t.Errorf("recovery says %+v", r)
	}
}

func TestModesOfFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	path := filepath.Join(t.TempDir(), "data")
	j, _, _ := replay(t, path, journal.Options{})
	commit(t, j, "x")
	if err := snapshot(t, j, "x"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{
		"": 0o700, "LOCK": 0o600, "segment-0000000000000002.log": 0o600, "snapshot-0000000000000002.snap": 0o600,
	} {
		info, err := os.Stat(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", name, got, want)
		}
	}
	closeJournal(t, j)
}

func TestSecondOpenerIsRefused(t *testing.T) {
	for name, fs := range map[string]journal.FS{"os": nil, "crashfs": crashfs.New(nil)} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			o := journal.Options{FS: fs, SegmentSize: 4096}
			j, _, _ := replay(t, path, o)
			commit(t, j, "x")
			_, _, err := journal.Open(path, o, nil)
			if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want ErrLocked naming %s", err, path)
			}
			commit(t, j, "y") // the first is undisturbed
			closeJournal(t, j)
			j, _, recs := replay(t, path, o)
			if len(recs) != 2 {
				t.Errorf("%d records came back, want 2", len(recs))
			}
			closeJournal(t, j)
		})
	}
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	paths := map[string]string{"a file": file, "below a file": filepath.Join(file, "data")}
	if runtime.GOOS == "linux" {
		paths["read-only"] = "/proc/latchkey" // not even root may create it
	}
	for name, path := range paths {
		_, _, err := journal.Open(path, journal.Options{}, nil)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "a directory it may write to") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// A directory that turns out to be read-only at the first file.
	denied := crashfs.New(crashfs.FailOp(crashfs.OpLock, 1, os.ErrPermission))
	_, _, err := journal.Open(dir, journal.Options{FS: denied}, nil)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "a directory it may write to") {
		t.Errorf("got %v", err)
	}
	if _, _, err := journal.Open(dir, journal.Options{Policy: 9}, nil); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

// One commit is one frame, one write and at most one sync, but for the few that
// also write zeros ahead, as the first in a segment does.
func TestOneFrameAndOneSyncACommit(t *testing.T) {
	count := map[crashfs.Op]int{}
	disk := crashfs.New(func(c crashfs.Call) crashfs.Action { count[c.Op]++; return crashfs.Action{} })
	for _, tc := range []struct {
		policy journal.Policy
		must   bool
		syncs  int
	}{{journal.Always, false, 1}, {journal.Always, true, 1}, {journal.Interval, false, 0}, {journal.Interval, true, 1}, {journal.Never, false, 0}, {journal.Never, true, 1}} {
		j, _, _ := replay(t, dir, journal.Options{FS: disk, SegmentSize: 1 << 16, Policy: tc.policy})
		j.Append([]byte("first"))
		clear(count)
		if err := j.Commit(false); err != nil || count[crashfs.OpWrite] != 2 {
			t.Errorf("policy %d: the first commit made the calls %v, %v", tc.policy, count, err)
		}
		before := j.Stats()
		for i := range 64 {
			j.Append(fmt.Appendf(nil, "record %d", i))
		}
		clear(count)
		if err := j.Commit(tc.must); err != nil {
			t.Fatal(err)
		}
		if count[crashfs.OpWrite] != 1 || count[crashfs.OpSync] != tc.syncs || len(count) != 1+tc.syncs {
			t.Errorf("policy %d, must %v: the commit made the calls %v", tc.policy, tc.must, count)
		}
		clear(count)
		if err := errors.Join(j.Commit(false), j.Commit(tc.must)); err != nil || len(count) != 0 {
			t.Errorf("an empty commit made the calls %v, %v", count, err)
		}
		after := j.Stats()
		if after.Frames-before.Frames != 1 || after.Records-before.Records != 64 || after.Syncs-before.Syncs != uint64(tc.syncs) {
			t.Errorf("policy %d: the counters went from %+v to %+v", tc.policy, before, after)
		}
		closeJournal(t, j)
	}
}

// A sync that is due for frames of earlier commits is done by a later empty one.
func TestMustSyncCoversEarlierCommits(t *testing.T) {
	disk := crashfs.New(nil)
	j, _, _ := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096, Policy: journal.Never})
	commit(t, j, "a", "b")
	if err := j.Commit(true); err != nil {
		t.Fatal(err)
	}
	disk = disk.Reopen(crashfs.Lose, 0, nil)
	j, r, recs := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
	if len(recs) != 2 || r.Clean {
		t.Errorf("%v came back, clean %v", recs, r.Clean)
	}
	closeJournal(t, j)
}

// Large commits are split; records keep their order, and records of every size
// up to the limit fit a segment of any size.
func TestLargeRecordsAndCommits(t *testing.T) {
	disk := crashfs.New(nil)
	for _, size := range []int64{0, 1, 1 << 16} {
		path := fmt.Sprintf("/data%d", size)
		o := journal.Options{FS: disk, SegmentSize: size, Policy: journal.Never}
		j, _, _ := replay(t, path, o)
		var want []string
		for i, n := range []int{0, 1, journal.MaxRecord, 63, 4096, journal.MaxRecord - 1, 5} {
			rec := strings.Repeat(string(rune('a'+i)), n)
			want = append(want, rec)
			j.Append([]byte(rec))
		}
		for range 18 - 9*min(size, 2) { // with segments of the default size, more than a frame holds
			want = append(want, strings.Repeat("z", journal.MaxRecord))
			j.Append(bytes.Repeat([]byte("z"), journal.MaxRecord))
		}
		if err := j.Commit(false); err != nil {
			t.Fatal(err)
		}
		if n := j.Stats().Frames; n < 2 {
			t.Errorf("segment size %d: %d frames", size, n)
		}
		closeJournal(t, j)
		j, _, recs := replay(t, path, o)
		if !slices.Equal(recs, want) {
			t.Errorf("segment size %d: %d records came back, want %d", size, len(recs), len(want))
		}
		closeJournal(t, j)
	}
}

func TestLimitsFailTheJournal(t *testing.T) {
	for name, appendTo := range map[string]func(*journal.Journal){
		"record": func(j *journal.Journal) { j.Append(make([]byte, journal.MaxRecord+1)) },
		"pending": func(j *journal.Journal) {
			rec := make([]byte, journal.MaxRecord)
			for range journal.MaxPending/journal.MaxRecord + 1 {
				j.Append(rec)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(nil)
			j, _, _ := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
			commit(t, j, "before")
			appendTo(j)
			err := j.Commit(false)
			if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, journal.ErrTooLarge) {
				t.Errorf("commit says %v", err)
			}
			if err := j.Close(); !errors.Is(err, journal.ErrTooLarge) {
				t.Errorf("close says %v", err)
			}
			j, r, recs := replay(t, dir, journal.Options{FS: disk, SegmentSize: 4096})
			if len(recs) != 1 || r.Clean {
				t.Errorf("%d records came back, clean %v", len(recs), r.Clean)
			}
			closeJournal(t, j)
		})
	}
}

func TestUseAfterClose(t *testing.T) {
	j, _, _ := replay(t, dir, journal.Options{FS: crashfs.New(nil)})
	closeJournal(t, j)
	j.Append([]byte("x"))
	_, serr := j.Snapshot()
	for _, err := range []error{j.Commit(true), j.Sync(), serr} {
		if !errors.Is(err, journal.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	}
	if err := j.Err(); err != nil {
		t.Errorf("Err says %v", err)
	}
}

// An error of replay ends Open, is returned, and frees the directory.
func TestReplayErrorEndsOpen(t *testing.T) {
	disk := crashfs.New(nil)
	o := journal.Options{FS: disk, SegmentSize: 4096}
	j, _, _ := replay(t, dir, o)
	commit(t, j, "a", "b")
	closeJournal(t, j)
	refuse := errors.New("unknown record")
	if _, _, err := journal.Open(dir, o, func([]byte) error { return refuse }); !errors.Is(err, refuse) || errors.Is(err, journal.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
	j, _, err := journal.Open(dir, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
}

// What is cut off or left over is logged.
func TestLogger(t *testing.T) {
	disk := crashfs.New(nil)
	var log bytes.Buffer
	o := journal.Options{FS: disk, SegmentSize: 4096, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	j, _, _ := replay(t, dir, o)
	commit(t, j, "a")
	closeJournal(t, j)
	seg := filepath.Join(dir, "segment-0000000000000001.log")
	data, err := disk.ReadFile(seg)
	if err != nil {
		t.Fatal(err)
	}
	data[256] = 9 // behind the clean mark
	disk.WriteFile(seg, data)
	disk.WriteFile(filepath.Join(dir, "segment-0000000000000009.log.tmp"), nil)
	disk.WriteFile(filepath.Join(dir, "notes.txt"), nil)
	j, r, _ := replay(t, dir, o)
	if r.Clean || r.TornBytes == 0 {
		t.Errorf("recovery says %+v", r)
	}
	for _, part := range []string{"cut off", "offset=192", "removed a leftover", "0009.log.tmp"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("the log does not say %q:\n%s", part, log.String())
		}
	}
	if names := disk.Names(dir); slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, ".tmp") }) ||
		!slices.Contains(names, filepath.Join(dir, "notes.txt")) {
		t.Errorf("the directory holds %v", names)
	}
	closeJournal(t, j)
}
