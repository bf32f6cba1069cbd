//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The steps of the guide: copy the directory, and start on the copy with a floor
// above the last token that the status told.
func TestBackupAndRestore(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	b := startBroker(t, "--data", dir)
	locked := func(args ...string) (l struct {
		ID    string
		Token int
	}) {
		t.Helper()
		got := b.run(append([]string{"lock", "--ttl", "1h", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(got.out), &l); err != nil || l.Token == 0 {
			t.Fatalf("lock %q: %+v, %v", args, got, err)
		}
		return l
	}
	kept := locked("kept")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	later := locked("later")
	b.run("status").want(t, 0, fmt.Sprintf("last token %d", later.Token), "")
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, b.cmd); code != 0 {
		t.Fatalf("SIGTERM: got code %d", code)
	}

	// Higher than any clock, so that the floor alone can be the reason.
	floor := later.Token + 1<<52
	b.args = []string{"--data", copied, "--token-floor", fmt.Sprint(floor)}
	b.start()
	b.run("lock", "--try", "kept").want(t, exitNotHeld, "", "kept is not free")
	b.run("unlock", "--id", kept.ID).want(t, 0, "unlocked kept", "")
	if got := locked("--try", "later"); got.Token <= floor {
		t.Errorf("the restored broker gave token %d, want more than %d", got.Token, floor)
	}
}
