package crashfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

const path = "/d/f"

var errDisk = errors.New("input/output error")

func create(t *testing.T, disk *crashfs.FS, name string) journal.File {
	t.Helper()
	f, err := disk.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, f journal.File, off int64, p string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(p), off); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, disk *crashfs.FS) string {
	t.Helper()
	data, err := disk.ReadFile(path)
	if err != nil {
		return "none"
	}
	return string(data)
}

// What each mode keeps of contents and of names.
func TestWhatSurvives(t *testing.T) {
	for _, tc := range []struct {
		name                    string
		syncDir, sync           bool
		lose, kill, killAndLose string
	}{
		{"nothing synced", false, false, "none", "ab", "none"},
		{"name synced", true, false, "", "ab", ""},
		{"contents synced", false, true, "none", "ab", "none"},
		{"both synced", true, true, "a", "ab", "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			disk := crashfs.New(nil)
			f := create(t, disk, path)
			write(t, f, 0, "a")
			if tc.sync {
				ok(t, f.Sync())
			}
			if tc.syncDir {
				ok(t, disk.SyncDir("/d"))
			}
			write(t, f, 1, "b")
			killed := disk.Reopen(crashfs.Kill, 0, nil)
			for _, got := range []struct {
				mode string
				have string
				want string
			}{
				{"lose", contents(t, disk.Reopen(crashfs.Lose, 0, nil)), tc.lose},
				{"kill", contents(t, killed), tc.kill},
				{"kill, then lose", contents(t, killed.Reopen(crashfs.Lose, 0, nil)), tc.killAndLose},
			} {
				if got.have != got.want {
					t.Errorf("%s keeps %q, want %q", got.mode, got.have, got.want)
				}
			}
		})
	}
}

// Tear keeps each sector as of any moment, and depends on the seed alone.
func TestTear(t *testing.T) {
	disk := crashfs.New(nil)
	f := create(t, disk, path)
	ok(t, f.Preallocate(1024), f.Sync(), disk.SyncDir("/d"))
	write(t, f, 0, string(bytes.Repeat([]byte("1"), 1024)))
	write(t, f, 0, string(bytes.Repeat([]byte("2"), 1024)))
	seen := map[string]int{}
	for seed := range uint64(400) {
		got := contents(t, disk.Reopen(crashfs.Tear, seed, nil))
		if again := contents(t, disk.Reopen(crashfs.Tear, seed, nil)); again != got {
			t.Fatalf("seed %d gives two disks", seed)
		}
		for sector := range 2 {
			part := got[sector*512 : (sector+1)*512]
			if part != string(bytes.Repeat([]byte(part[:1]), 512)) {
				t.Fatalf("seed %d tears a sector", seed)
			}
		}
		seen[got[:1]+got[512:513]]++
	}
	if len(seen) != 9 {
		t.Errorf("two sectors and three moments give %d states, want 9", len(seen))
	}
}

// Names come and go one by one, a rename as a whole.
func TestTearOfNames(t *testing.T) {
	disk := crashfs.New(nil)
	ok(t, create(t, disk, "/d/old").Close(), disk.SyncDir("/d"), disk.Rename("/d/old", "/d/new"), create(t, disk, "/d/x").Close())
	seen := map[int]bool{}
	for seed := range uint64(100) {
		names := disk.Reopen(crashfs.Tear, seed, nil).Names("/d")
		state := 0
		for _, n := range names {
			state |= map[string]int{"/d/old": 1, "/d/new": 2, "/d/x": 4}[n]
		}
		if state&3 == 0 || state&3 == 3 {
			t.Fatalf("seed %d leaves %v", seed, names)
		}
		seen[state] = true
	}
	if len(seen) != 4 {
		t.Errorf("%d states, want 4", len(seen))
	}
}

// After a crash nothing works, and the locks are free.
func TestCrash(t *testing.T) {
	disk := crashfs.New(crashfs.CrashAt(3))
	_, err := disk.Lock("/d/LOCK")
	ok(t, err)
	if _, err := disk.Lock("/d/LOCK"); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("a second lock gives %v", err)
	}
	if disk.Crashed() {
		t.Error("crashed too early")
	}
	if _, err := disk.Create(path); !errors.Is(err, crashfs.ErrCrashed) || !disk.Crashed() {
		t.Errorf("the third call gives %v", err)
	}
	if _, err := disk.List("/d"); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("a later call gives %v", err)
	}
	if n := disk.Calls(); n != 3 {
		t.Errorf("%d calls were counted, want 3", n)
	}
	disk.Crash()
	next := disk.Reopen(crashfs.Kill, 0, nil)
	if _, err := next.Lock("/d/LOCK"); err != nil || next.Calls() != 1 {
		t.Errorf("the lock gives %v after %d calls", err, next.Calls())
	}
}

// A call that fails does nothing, a short write does half, and a failed sync
// forgets what it should have written.
func TestFailures(t *testing.T) {
	disk := crashfs.New(crashfs.FailAt(1, errDisk))
	if _, err := disk.Create(path); !errors.Is(err, errDisk) || len(disk.Names("/d")) != 0 {
		t.Errorf("create gives %v and %v", err, disk.Names("/d"))
	}
	f := create(t, disk, path)
	ok(t, disk.SyncDir("/d"))
	disk.SetPlan(func(c crashfs.Call) crashfs.Action {
		if c.Op == crashfs.OpWrite {
			return crashfs.Action{Err: errDisk, Short: true}
		}
		return crashfs.Action{}
	})
	if n, err := f.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, errDisk) {
		t.Errorf("a short write gives %d, %v", n, err)
	}
	disk.SetPlan(crashfs.FailOp(crashfs.OpSync, 1, errDisk))
	if err := f.Sync(); !errors.Is(err, errDisk) {
		t.Errorf("sync gives %v", err)
	}
	ok(t, f.Sync()) // the trap: it reports success
	if got := contents(t, disk); got != "ab" {
		t.Errorf("a program sees %q", got)
	}
	if got := contents(t, disk.Reopen(crashfs.Lose, 0, nil)); got != "" {
		t.Errorf("a power cut leaves %q", got)
	}
}

func TestSmallThings(t *testing.T) {
	disk := crashfs.New(nil)
	f := create(t, disk, path)
	write(t, f, 2, "xy")
	ok(t, f.Truncate(3), f.Truncate(5))
	if got := contents(t, disk); got != "\x00\x00x\x00\x00" {
		t.Errorf("the file holds %q", got)
	}
	if n, err := f.Size(); n != 5 || err != nil {
		t.Errorf("size %d, %v", n, err)
	}
	ok(t, f.Close())
	if _, err := f.Size(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed file gives %v", err)
	}
	_, open := disk.Open("/d/none")
	for _, err := range []error{open, disk.Remove("/d/none"), disk.Rename("/d/none", path)} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file gives %v", err)
		}
	}
	disk.Delete(path)
	if names := disk.Names("/d"); len(names) != 0 {
		t.Errorf("%v is left", names)
	}
}
