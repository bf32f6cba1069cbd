package journal_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

var errDisk = errors.New("input/output error")

// soak tells whether the full doses are asked for.
func soak() bool { return os.Getenv("LATCHKEY_SOAK") != "" }

// scenario is one path through several runs on one disk: a first run that is
// crashed at a given call, a second one that is crashed at a random one, and a
// third that must end well.
type scenario struct {
	policy journal.Policy
	mode   crashfs.Mode
	seed   uint64
	at     int // call of the first run at which it crashes
	// wrap puts a defect between the journal and the disk.
	wrap func(journal.FS) journal.FS
	// o changes the options.
	o func(journal.Options) journal.Options
}

const firstSteps = 30

func (s scenario) world() *world {
	w := newWorld(s.policy, s.seed)
	if s.o != nil {
		w.o = s.o(w.o)
	}
	return w
}

func (s scenario) fs(disk *crashfs.FS) journal.FS {
	if s.wrap == nil {
		return disk
	}
	return s.wrap(disk)
}

// calls runs the first run to its end and returns how many calls it made.
func (s scenario) calls() (int, error) {
	disk := crashfs.New(nil)
	w := s.world()
	if err := w.run1(s.fs(disk), 0, firstSteps); err != nil {
		return 0, err
	}
	return disk.Calls(), nil
}

// run1 opens, lives and closes.
func (w *world) run1(fs journal.FS, mustKeep, steps int) error {
	j, err := w.open(fs, mustKeep)
	if err != nil {
		return err
	}
	err = w.live(j, steps)
	cerr := j.Close()
	if err == nil && cerr == nil {
		// Close has committed what was appended last, and synced.
		w.acked, w.committed = len(w.records), len(w.records)
	}
	return errors.Join(err, cerr)
}

// keep is what must survive a crash of this mode.
func (w *world) keep(mode crashfs.Mode) int {
	if mode == crashfs.Kill {
		return w.committed
	}
	return w.acked
}

// play returns the promise that was broken, or nil.
func (s scenario) play() error {
	w := s.world()
	disk := crashfs.New(crashfs.CrashAt(s.at))
	if err := asViolation(w.run1(s.fs(disk), 0, firstSteps)); err != nil {
		return fmt.Errorf("first run: %w", err)
	}
	disk = disk.Reopen(s.mode, s.seed, crashfs.CrashAt(1+w.rnd.IntN(60)))
	if err := asViolation(w.run1(s.fs(disk), w.keep(s.mode), 8)); err != nil {
		return fmt.Errorf("second run: %w", err)
	}
	// However the process died before, now the power fails.
	mode := crashfs.Mode(w.rnd.IntN(2))
	disk = disk.Reopen(mode, s.seed+1, nil)
	if err := w.run1(s.fs(disk), w.keep(mode), 8); err != nil {
		return fmt.Errorf("third run: %w", err)
	}
	// Closed properly, then the power fails: everything is there, and it knows.
	disk = disk.Reopen(crashfs.Lose, s.seed+2, nil)
	if err := w.run1(s.fs(disk), len(w.records), 0); err != nil {
		return fmt.Errorf("fourth run: %w", err)
	}
	if !w.recovered.Clean {
		return broken("a clean end was not recognised")
	}
	return nil
}

func (s scenario) String() string {
	return fmt.Sprintf("policy %d, mode %d, seed %d, crash at call %d", s.policy, s.mode, s.seed, s.at)
}

// explore plays the scenario crashed at every call and returns the first violation.
func (s scenario) explore() (int, error) {
	n, err := s.calls()
	if err != nil {
		return 0, fmt.Errorf("%v without a crash: %w", s, err)
	}
	for s.at = 1; s.at <= n; s.at++ {
		if err := s.play(); err != nil {
			return s.at, fmt.Errorf("%v: %w", s, err)
		}
	}
	return n, nil
}

// seeds is how many workloads each combination gets.
func seeds() uint64 {
	if soak() {
		return 200
	}
	return 2
}

// Crashing at every call of a workload, in every way, never loses what was
// promised, brings back nothing else, and leaves a directory that opens again.
func TestCrashAtEveryCall(t *testing.T) {
	for _, policy := range []journal.Policy{journal.Always, journal.Interval, journal.Never} {
		for _, mode := range []crashfs.Mode{crashfs.Lose, crashfs.Tear, crashfs.Kill} {
			t.Run(fmt.Sprintf("policy=%d,mode=%d", policy, mode), func(t *testing.T) {
				t.Parallel()
				plays := 0
				for seed := range seeds() {
					n, err := scenario{policy: policy, mode: mode, seed: seed}.explore()
					if err != nil {
						t.Fatal(err)
					}
					plays += n
				}
				t.Logf("%d crashes", plays)
			})
		}
	}
}

// A crash while the directory is opened for the first time, by death of the
// process, and a power cut at every call of the recovery that follows: whatever
// part of both runs' names and sectors survives, the directory opens.
func TestPowerCutAtEveryCallOfRecovery(t *testing.T) {
	plays := 0
	for first := 1; ; first++ {
		for second := 1; ; second++ {
			ended := false
			for seed := range 4 * seeds() {
				w := newWorld(journal.Always, seed)
				disk := crashfs.New(crashfs.CrashAt(first))
				if err := w.run1(disk, 0, 1); err == nil {
					t.Logf("%d crashes", plays)
					return
				}
				disk = disk.Reopen(crashfs.Kill, seed, crashfs.CrashAt(second))
				j, err := w.open(disk, w.committed)
				if err = asViolation(err); err == nil {
					ended = !disk.Crashed()
					last := disk.Reopen(crashfs.Tear, seed, nil)
					if j != nil {
						_ = j.Close() // it fails; the machine is gone
					}
					err = w.run1(last, w.acked, 1)
				}
				if err != nil {
					t.Fatalf("first crash at call %d, second at %d, seed %d: %v", first, second, seed, err)
				}
				plays++
			}
			if ended {
				break
			}
		}
	}
}

// lying is a disk with a defect.
type lying struct {
	journal.FS
	file    func(name string, f journal.File) journal.File
	syncDir func(dir string) error
}

func (l lying) Create(path string) (journal.File, error) { return l.wrap(path)(l.FS.Create(path)) }

func (l lying) Open(path string) (journal.File, error) { return l.wrap(path)(l.FS.Open(path)) }

func (l lying) wrap(path string) func(journal.File, error) (journal.File, error) {
	return func(f journal.File, err error) (journal.File, error) {
		if err != nil || l.file == nil {
			return f, err
		}
		return l.file(filepath.Base(path), f), nil
	}
}

func (l lying) SyncDir(dir string) error {
	if l.syncDir != nil {
		return l.syncDir(dir)
	}
	return l.FS.SyncDir(dir)
}

// noSync acknowledges without syncing.
type noSync struct{ journal.File }

func (noSync) Sync() error { return nil }

// lateSync acknowledges a sync at once and does it before the next write, as a
// journal would that answers first and syncs afterwards.
type lateSync struct {
	journal.File
	due *bool
}

func (f lateSync) Sync() error { *f.due = true; return nil }

func (f lateSync) WriteAt(p []byte, off int64) (int, error) {
	if *f.due {
		*f.due = false
		if err := f.File.Sync(); err != nil {
			return 0, err
		}
	}
	return f.File.WriteAt(p, off)
}

func (f lateSync) Close() error {
	if *f.due {
		if err := f.File.Sync(); err != nil {
			return errors.Join(err, f.File.Close())
		}
	}
	return f.File.Close()
}

// lazyWrite leaves out writes that change nothing.
type lazyWrite struct{ journal.File }

func (f lazyWrite) WriteAt(p []byte, off int64) (int, error) {
	old := make([]byte, len(p))
	if n, _ := f.File.ReadAt(old, off); n == len(p) && string(old) == string(p) {
		return n, nil
	}
	return f.File.WriteAt(p, off)
}

// onFiles puts a defect into the files whose name contains match.
func onFiles(match string, make func(journal.File) journal.File) func(journal.FS) journal.FS {
	return func(fs journal.FS) journal.FS {
		return lying{FS: fs, file: func(name string, f journal.File) journal.File {
			if !strings.Contains(name, match) {
				return f
			}
			return make(f)
		}}
	}
}

// defects are planted journals and disks that break a promise.
func defects() map[string]scenario {
	late := func(f journal.File) journal.File { return lateSync{File: f, due: new(bool)} }
	none := func(f journal.File) journal.File { return noSync{f} }
	return map[string]scenario{
		"no sync of segments":          {mode: crashfs.Lose, wrap: onFiles("segment-", none)},
		"acknowledged before the sync": {mode: crashfs.Lose, wrap: onFiles("segment-", late)},
		"no sync of snapshots":         {mode: crashfs.Lose, wrap: onFiles("snapshot-", none)},
		"no sync of the directory": {mode: crashfs.Lose, wrap: func(fs journal.FS) journal.FS {
			return lying{FS: fs, syncDir: func(string) error { return nil }}
		}},
		"no checksum of frames": {policy: journal.Never, mode: crashfs.Tear, o: func(o journal.Options) journal.Options {
			return journal.WithChecksum(o, func(uint32, []byte) uint32 { return 7 })
		}},
	}
}

// The crash checker counts only because it rejects each of these.
func TestCrashCheckerRejectsDefects(t *testing.T) {
	for name, s := range defects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for s.seed = 0; s.seed < 20; s.seed++ {
				if _, err := s.explore(); err != nil {
					t.Logf("rejected: %v", err)
					return
				}
			}
			t.Fatal("the checker accepts it")
		})
	}
}

// Failing at every call: the error is reported, nothing more is acknowledged,
// the cause stays, and what was acknowledged is there, in this system's lifetime
// and after a power cut that follows another run.
func TestFailAtEveryCall(t *testing.T) {
	for _, policy := range []journal.Policy{journal.Always, journal.Interval, journal.Never} {
		t.Run(fmt.Sprintf("policy=%d", policy), func(t *testing.T) {
			t.Parallel()
			for seed := range seeds() {
				_, err := exploreFailures(policy, seed, nil)
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func exploreFailures(policy journal.Policy, seed uint64, wrap func(journal.FS) journal.FS) (int, error) {
	s := scenario{policy: policy, seed: seed, wrap: wrap}
	n, err := s.calls()
	if err != nil {
		return 0, err
	}
	for s.at = 1; s.at <= n; s.at++ {
		if err := s.fail(); err != nil {
			return s.at, fmt.Errorf("policy %d, seed %d, failure of call %d: %w", policy, seed, s.at, err)
		}
	}
	return n, nil
}

// fail plays a run whose call s.at fails, and two after it.
func (s scenario) fail() error {
	w := s.world()
	disk := crashfs.New(func(c crashfs.Call) crashfs.Action {
		if c.N == s.at {
			return crashfs.Action{Err: errDisk, Short: s.at%2 == 0}
		}
		return crashfs.Action{}
	})
	if err := w.failingRun(s.fs(disk)); err != nil {
		return err
	}
	// The process is restarted; it must not trust what only the page cache has.
	disk = disk.Reopen(crashfs.Kill, s.seed, nil)
	j, err := w.open(s.fs(disk), w.committed)
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	if err := w.commit(j); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	disk = disk.Reopen(crashfs.Lose, s.seed, nil)
	_ = j.Close() // it fails; the power is gone
	if err := w.run1(s.fs(disk), w.acked, 0); err != nil {
		return fmt.Errorf("after the power cut: %w", err)
	}
	return nil
}

// failingRun is a run in which one call fails.
func (w *world) failingRun(fs journal.FS) error {
	j, err := w.open(fs, 0)
	if err != nil {
		if !errors.Is(err, errDisk) {
			return fmt.Errorf("open hides the cause: %w", err)
		}
		return asViolation(err)
	}
	err = w.live(j, firstSteps)
	if err != nil {
		if !errors.Is(err, journal.ErrFailed) || !errors.Is(err, errDisk) {
			return broken("the failure is reported as %v", err)
		}
		if n := strings.Count(err.Error(), journal.ErrFailed.Error()); n != 1 {
			return broken("the failure is reported %d times over: %v", n, err)
		}
		j.Append([]byte("late"))
		for _, again := range []error{j.Commit(false), j.Commit(true), j.Sync(), j.Err()} {
			if !errors.Is(again, journal.ErrFailed) || !errors.Is(again, errDisk) {
				return broken("after the failure a call says %v", again)
			}
		}
		if _, again := j.Snapshot(); !errors.Is(again, journal.ErrFailed) {
			return broken("after the failure Snapshot says %v", again)
		}
	}
	cerr := j.Close()
	if err != nil && !errors.Is(cerr, journal.ErrFailed) {
		return broken("after the failure Close says %v", cerr)
	}
	if err == nil && cerr == nil {
		w.acked, w.committed = len(w.records), len(w.records)
	}
	return nil
}

// The failure checker rejects a journal that trusts what a failed sync left in
// the page cache, and one that does not sync at all.
func TestFailureCheckerRejectsDefects(t *testing.T) {
	for name, wrap := range map[string]func(journal.FS) journal.FS{
		"replayed and not written again": onFiles("segment-", func(f journal.File) journal.File { return lazyWrite{f} }),
		"no sync of segments":            onFiles("segment-", func(f journal.File) journal.File { return noSync{f} }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				if _, err := exploreFailures(journal.Always, seed, wrap); err != nil {
					t.Logf("rejected: %v", err)
					return
				}
			}
			t.Fatal("the checker accepts it")
		})
	}
}

var _ io.Closer = (*journal.Journal)(nil)
