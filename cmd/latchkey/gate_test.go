//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A command that turns on run in its first instant is guarded already. Without the
// gate a part of these went on.
func TestRunEndsInItsFirstInstant(t *testing.T) {
	if testing.Short() {
		t.Skip("starts eighty processes")
	}
	b := startBroker(t)
	const times = 20
	for _, c := range []struct{ name, script string }{
		// The child is in the group, and nothing but the guard reaches it.
		{"killed", `sh -c 'echo $$ >$DIR/pid; ` + loop + `' & kill -KILL $PPID; ` + loop},
		{"frozen", `echo $$ >$DIR/pid; kill -STOP $PPID; ` + loop},
	} {
		var runs []*started
		for i := range times {
			runs = append(runs, b.begin([]string{"--ttl", "500ms"}, fmt.Sprint(c.name, i), c.script))
		}
		for _, s := range runs {
			// A child that was killed before it wrote down its id is dead as well.
			eventually(t, "run is "+c.name, func() bool { return !active(s.Process.Pid) })
			eventually(t, "the command of a run that was "+c.name+" has ended", func() bool {
				text, err := os.ReadFile(s.file("pid"))
				return err != nil || len(text) == 0 || !processRuns(number(t, string(text)))
			})
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	}
}

// active reports whether a process is neither stopped nor dead.
func active(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && len(out) > 0 && out[0] != 'T' && out[0] != 'Z'
}

// What cannot be executed although it looks like it is told by run, with the status
// of a shell, and a command that is found keeps its name, its process and its group.
func TestGate(t *testing.T) {
	b := startBroker(t)
	path := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(path, []byte("#!/nowhere/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.run("run", "k", "--", path).want(t, 127, "", path+": no such file or directory\n")
	if err := os.WriteFile(path, []byte{0x7f, 'E', 'L', 'F'}, 0o755); err != nil {
		t.Fatal(err)
	}
	b.run("run", "k", "--", path).want(t, 126, "", path+": "+syscall.ENOEXEC.Error()+"\n")
	b.run("run", "k", "--", "sh", "-c", `echo "$0 $1" $(($(ps -o pgid= -p $$) - $$)); ls /proc/self/fd 2>/dev/null | wc -l`, "name", "a b").
		want(t, 0, "name a b 0\n", "")
	if got := b.run("ls"); got.out != "" {
		t.Errorf("something is left behind:\n%s", got.out)
	}
}
