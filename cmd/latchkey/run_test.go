//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// started is a run whose command has begun.
type started struct {
	*exec.Cmd
	dir string
	err *lockedBuffer
}

// begin starts `latchkey run` of a script, which finds a directory in $DIR and
// tells that it runs by making the file ready there.
func (b *testBroker) begin(flags []string, key, script string) *started {
	b.t.Helper()
	s := &started{dir: b.t.TempDir(), err: &lockedBuffer{}}
	s.Cmd = b.command(slices.Concat([]string{"run"}, flags, []string{key, "--", "sh", "-c", script})...)
	s.Env = append(s.Env, "DIR="+s.dir)
	s.Stderr = s.err
	if err := s.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if s.ProcessState == nil {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	})
	return s
}

func (s *started) file(name string) string { return filepath.Join(s.dir, name) }

func (s *started) awaitReady(t *testing.T) {
	t.Helper()
	eventually(t, "the command runs", func() bool { return exists(s.file("ready")) })
}

// running reports whether the process whose id is in a file still runs.
func (s *started) running(t *testing.T, name string) bool {
	t.Helper()
	pid, err := strconv.Atoi(read(t, s.file(name)))
	if err != nil {
		t.Fatal(err)
	}
	return processRuns(pid)
}

// processRuns is false for a process that ended and was not waited for.
func processRuns(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// family is a command with a child that outlives it unless it is killed.
const family = `
	echo $$ >$DIR/leader
	sh -c 'trap "" TERM HUP INT; echo $$ >$DIR/child; touch $DIR/ready; while :; do sleep 0.02; done' &
	` + loop

const loop = `while :; do sleep 0.02; done`

// Sixteen shells count in one file under one lock, and lose nothing. Meanwhile
// ls and the status page show who holds the lock and who waits for it.
func TestRunIsExclusive(t *testing.T) {
	b := startBroker(t, "--http", "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "counter")
	if err := os.WriteFile(file, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const shells = 16
	times := 3
	if os.Getenv("LATCHKEY_SOAK") != "" {
		times = 50
	}
	// Until everybody has been seen, somebody else holds the lock.
	first := b.begin(nil, "counter", `touch $DIR/ready; until [ -e $DIR/end ]; do sleep 0.02; done`)
	first.awaitReady(t)
	cmds := make([]*exec.Cmd, shells)
	for i := range cmds {
		cmds[i] = b.command()
		cmds[i].Path, cmds[i].Args = "/bin/sh", []string{"sh", "-ec", fmt.Sprintf(
			`for i in $(seq %d); do latchkey run counter -- sh -c 'n=$(cat '%s'); echo $((n+1)) >'%s; done`, times, file, file)}
		if err := cmds[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ls shows the holder and those who wait", func() bool {
		out := b.run("ls").out
		return strings.Contains(out, fmt.Sprintf("pid %d", first.Process.Pid)) && strings.Contains(out, fmt.Sprintf("… and %d more", shells-fewWaiters))
	})
	page := b.fetchPage()
	for _, text := range []string{"counter</span>", fmt.Sprintf("%d waiting", shells), ">holds<", fmt.Sprintf("pid %d", first.Process.Pid), ">1st<"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not show %s", text)
		}
	}
	if err := os.WriteFile(first.file("end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range cmds {
		if code := waitWithin(t, cmd, time.Duration(times)*10*time.Second); code != 0 {
			t.Errorf("a shell ended with %d", code)
		}
	}
	if got := read(t, file); got != strconv.Itoa(shells*times) {
		t.Errorf("the counter is at %s, want %d: increments were lost", got, shells*times)
	}
}

func TestRunExitStatus(t *testing.T) {
	b := startBroker(t)
	b.run("run", "k", "--", "true").want(t, 0, "", "")
	b.run("run", "k", "--", "sh", "-c", "echo out; echo err >&2; exit 9").want(t, 9, "out\n", "err\n")
	b.run("run", "k", "--", "sh", "-c", "kill -TERM $$").want(t, 143, "", "")
	b.run("run", "k", "--", "no-such-command").want(t, 127, "", "no-such-command: command not found")
	b.run("run", "k", "--", "/etc/passwd").want(t, 126, "", "permission denied")
	b.run("run", "k", "true").want(t, 1, "", "put -- between")
	b.run("run", "k", "--").want(t, 1, "", "the command is missing")
	b.run("run", "--", "true").want(t, 1, "", "KEY is missing")
	b.run("run", "--ttl", "50ms", "k", "--", "true").want(t, 1, "", "MinClientTTL")
	b.run("run", "--ttl", "soon", "k", "--", "true").want(t, 1, "", "forever")
	b.run("run", "--max", "0", "k", "--", "true").want(t, 1, "", "max must be a positive integer")
	b.run("run", "--try", "--wait", "1s", "k", "--", "true").want(t, 1, "", "wait")
	b.run("run", "a,a", "--", "true").want(t, 1, "", "twice")
	if got := b.run("ls"); got.out != "" {
		t.Errorf("something is left behind:\n%s", got.out)
	}
}

func TestRunCannotHaveTheLock(t *testing.T) {
	b := startBroker(t)
	b.run("lock", "k", "--label", "maintenance").want(t, 0, "token", "")
	b.run("run", "--try", "k", "--", "true").want(t, exitNotHeld, "", `"maintenance"`)
	got := b.run("run", "--wait", "1s", "k", "--", "true")
	got.want(t, exitNotHeld, "", "was not free within 1s")
	if !strings.Contains(got.err, "waiting for k: held by") {
		t.Errorf("errors %q do not say who is waited for", got.err)
	}
	b.kill()
	b.run("run", "k", "--", "true").want(t, exitNotHeld, "", "no broker at "+b.addr+": start one with `latchkey serve`")
}

func TestRunEnvironment(t *testing.T) {
	b := startBroker(t)
	got := b.run("run", `b c=d,a\,x`, "--", "sh", "-c",
		`printf '%s\n' "$LATCHKEY_KEY" "$LATCHKEY_TOKEN" "$LATCHKEY_TOKENS" "$LATCHKEY_SERVER"`)
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(lines) != 4 {
		t.Fatalf("got %+v", got)
	}
	pairs := strings.Fields(lines[2])
	if lines[0] != "b c=d" || lines[3] != b.addr || len(pairs) != 2 ||
		!strings.HasPrefix(pairs[0], "a%2Cx=") || pairs[1] != "b%20c%3Dd="+lines[1] {
		t.Errorf("got %q", lines)
	}
}

// The broker is gone for good: the command is asked to stop and then killed,
// children included, before the lock can have ended.
func TestRunWhenTheBrokerDies(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "2s"}, "k", `
		trap 'touch $DIR/asked' TERM
		echo $$ >$DIR/leader
		sh -c 'trap "" TERM; echo $$ >$DIR/child; touch $DIR/ready; `+loop+`' &
		`+loop)
	s.awaitReady(t)
	b.kill()
	begin := time.Now()
	eventually(t, "command and child have ended", func() bool { return !s.running(t, "leader") && !s.running(t, "child") })
	// The deadline is earlier than that by the time since the last renewal and
	// by the margin; what is added is for a busy machine, whose timers are late.
	if took := time.Since(begin); took > 2*time.Second+lateness {
		t.Errorf("the command ended %v after the broker, which is after its ttl of 2 s", took)
	}
	if code := waitFor(t, s.Cmd); code != 137 {
		t.Errorf("got code %d, want 137", code)
	}
	if !exists(s.file("asked")) {
		t.Error("the command was not asked to stop before it was killed")
	}
	for _, text := range []string{"asking the command to stop", "killed the command"} {
		if !strings.Contains(s.err.String(), text) {
			t.Errorf("errors do not say %q:\n%s", text, s.err)
		}
	}
}

// A broker with a directory that comes back in time disturbs nobody.
func TestRunOverABrokerRestart(t *testing.T) {
	b := startBroker(t, "--data", t.TempDir())
	s := b.begin(nil, "k", `echo $LATCHKEY_TOKEN >$DIR/token; touch $DIR/ready; until [ -e $DIR/end ]; do sleep 0.02; done`)
	s.awaitReady(t)
	b.kill()
	b.start()
	b.run("run", "--try", "k", "--", "true").want(t, exitNotHeld, "", "k is not free")
	if err := os.WriteFile(s.file("end"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, s.Cmd); code != 0 || strings.Contains(s.err.String(), "lost") {
		t.Errorf("got code %d and errors %q", code, s.err)
	}
	next := b.run("run", "--wait", "10s", "k", "--", "sh", "-c", "echo $LATCHKEY_TOKEN")
	if number(t, next.out) <= number(t, read(t, s.file("token"))) {
		t.Errorf("the token went from %s to %s over the restart", read(t, s.file("token")), next.out)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRunForced(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "1h"}, "k", `trap '' TERM; touch $DIR/ready; `+loop)
	s.awaitReady(t)
	b.run("force", "k").want(t, 1, "", "add --yes")
	b.run("force", "k", "--yes", "--reason", "maintenance").want(t, 0, "ended 1 hold of k", "")
	if code := waitFor(t, s.Cmd); code != 137 || !strings.Contains(s.err.String(), "maintenance") {
		t.Errorf("got code %d, errors %q; want 137 and the reason", code, s.err)
	}
	b.run("force", "k", "--yes").want(t, 1, "", "not held")
}

// Not only the command but what it started dies with run.
func TestCommandDiesWithRun(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "3s"}, "k", family)
	s.awaitReady(t)
	if err := s.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait()
	eventually(t, "the command died with run", func() bool { return !s.running(t, "leader") && !s.running(t, "child") })
	if got := b.run("run", "--wait", "20s", "k", "--", "true"); got.code != 0 {
		t.Errorf("the next one got %+v", got)
	}
}

// SIGTERM to run is the command's to handle, and the lock is released at once.
func TestRunPassesSignalsOn(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "1h"}, "k", `trap 'exit 8' TERM; touch $DIR/ready; `+loop)
	s.awaitReady(t)
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, s.Cmd); code != 8 {
		t.Errorf("got code %d, want the command's own 8", code)
	}
	b.run("run", "--try", "k", "--", "true").want(t, 0, "", "")
}

// A signal while run waits ends the waiting and leaves nothing behind.
func TestRunInterruptedWhileWaiting(t *testing.T) {
	b := startBroker(t)
	b.run("lock", "k").want(t, 0, "token", "")
	s := b.begin(nil, "k", `touch $DIR/ready`)
	eventually(t, "it waits", func() bool { return strings.Contains(b.run("show", "k").out, "1 waiting") })
	if err := s.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, s.Cmd); code != 130 {
		t.Errorf("got code %d, want 130", code)
	}
	if got := b.run("show", "k"); strings.Contains(got.out, "waiting") {
		t.Errorf("a waiter was left behind:\n%s", got.out)
	}
	if exists(s.file("ready")) {
		t.Error("the command ran")
	}
}

func TestRunInRun(t *testing.T) {
	b := startBroker(t)
	b.run("run", "a", "--", "latchkey", "run", "b", "--", "echo", "both").want(t, 0, "both", "")
	// Waiting for what one holds oneself.
	b.run("run", "a", "--", "latchkey", "run", "a", "--", "true").want(t, exitNotHeld, "", "deadlock")

	// Crossed: each has one and waits for the other's.
	script := func(mine, other string) string {
		return fmt.Sprintf(`touch $DIR/ready; until [ -e %[1]s ]; do sleep 0.01; done; exec latchkey run --label inner-%[2]s %[2]s -- true`,
			mine, other)
	}
	sign := filepath.Join(t.TempDir(), "go")
	x := b.begin(nil, "x", script(sign, "y"))
	y := b.begin(nil, "y", script(sign, "x"))
	x.awaitReady(t)
	y.awaitReady(t)
	if err := os.WriteFile(sign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	codes := []int{waitFor(t, x.Cmd), waitFor(t, y.Cmd)}
	text := x.err.String() + y.err.String()
	slices.Sort(codes)
	if codes[0] != 0 || codes[1] != exitNotHeld {
		t.Errorf("got codes %v, want one refused and one through; they said:\n%s", codes, text)
	}
	for _, part := range []string{"deadlock", `waits for "x"`, `waits for "y"`} {
		if !strings.Contains(text, part) {
			t.Errorf("the cycle is not named (%s):\n%s", part, text)
		}
	}
}

// Only run stands still past the ttl: its guard kills the command, so that it is
// dead when the next holder has the lock.
func TestFrozenRun(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "2s"}, "k", family)
	s.awaitReady(t)
	eventually(t, "it was renewed", func() bool { return !strings.Contains(b.run("status", "--json").out, `"renewals":0`) })
	if err := s.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := b.begin([]string{"--wait", "20s"}, "k", fmt.Sprintf(
		`cat /proc/%s/stat /proc/%s/stat >$DIR/states 2>&1; touch $DIR/ready`, read(t, s.file("leader")), read(t, s.file("child"))))
	if code := waitFor(t, next.Cmd); code != 0 {
		t.Fatalf("the next holder ended with %d: %s", code, next.err)
	}
	for line := range strings.Lines(read(t, next.file("states"))) {
		// One that ended stays as a zombie while its parent is frozen.
		if !strings.Contains(line, ") Z ") && !strings.Contains(line, "No such file") {
			t.Errorf("when the next holder had the lock, the former still ran: %s", line)
		}
	}
	if err := s.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, s.Cmd); code != 137 || !strings.Contains(s.err.String(), "lock was lost") {
		t.Errorf("got code %d, errors %q; want 137 and the loss", code, s.err)
	}
}

// Holder and run stand still past the ttl. The next holder has a higher token,
// and when the frozen ones wake up run kills its command.
func TestFrozenHolder(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--ttl", "2s"}, "k",
		`echo $$ >$DIR/leader; echo $LATCHKEY_TOKEN >$DIR/token; touch $DIR/ready; `+loop)
	s.awaitReady(t)
	leader := number(t, read(t, s.file("leader")))
	for _, pid := range []int{s.Process.Pid, leader} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	next := b.run("run", "--wait", "20s", "k", "--", "sh", "-c", "echo $LATCHKEY_TOKEN")
	if next.code != 0 || number(t, next.out) <= number(t, read(t, s.file("token"))) {
		t.Errorf("the next holder got %+v after token %s", next, read(t, s.file("token")))
	}
	for _, pid := range []int{s.Process.Pid, leader} {
		_ = syscall.Kill(pid, syscall.SIGCONT) // run may have killed the command by now
	}
	if code := waitFor(t, s.Cmd); code != 137 || !strings.Contains(s.err.String(), "lock was lost") {
		t.Errorf("got code %d, errors %q; want the command killed for its loss", code, s.err)
	}
}

func TestRunAtLeast(t *testing.T) {
	b := startBroker(t)
	// It is not run that waits: this one ends at all.
	b.run("run", "--at-least", "1h", "long", "--", "true").want(t, 0, "", "")
	b.run("run", "--try", "long", "--", "true").want(t, exitNotHeld, "", "not free")
	begin := time.Now()
	b.run("run", "--at-least", "1500ms", "k", "--", "true").want(t, 0, "", "")
	if got := b.run("run", "--wait", "20s", "k", "--", "true"); got.code != 0 {
		t.Errorf("the next one got %+v", got)
	}
	if took := time.Since(begin); took < 1500*time.Millisecond {
		t.Errorf("the next holder had the lock after %v, want after 1.5 s", took)
	}
}

func TestRunShares(t *testing.T) {
	b := startBroker(t)
	s := b.begin([]string{"--max", "2"}, "k", `touch $DIR/ready; `+loop)
	s.awaitReady(t)
	b.run("run", "--try", "--max", "2", "k", "--", "true").want(t, 0, "", "")
	b.run("run", "--try", "--shared", "k", "--", "true").want(t, exitNotHeld, "", "not free")
	b.run("run", "--try", "k", "--", "true").want(t, exitNotHeld, "", "not free")
}

func TestLockUnlockRenew(t *testing.T) {
	b := startBroker(t)
	got := b.run("lock", "k", "--ttl", "10s", "--json")
	var l struct {
		OK    bool
		ID    string
		Token int
		TTL   int
	}
	if err := json.Unmarshal([]byte(got.out), &l); err != nil || !l.OK || l.ID == "" || l.Token == 0 || l.TTL != 10000 {
		t.Fatalf("lock --json: %+v, %v", got, err)
	}
	b.run("lock", "k", "--try").want(t, exitNotHeld, "", "k is not free: held by")
	b.run("lock", "k", "--try", "--json").want(t, exitNotHeld, `"code":"busy"`, "")
	b.run("renew", "--id", l.ID, "--ttl", "1h").want(t, 0, "ends   in 1h", "")
	b.run("unlock", "--id", l.ID).want(t, 0, "unlocked k", "")
	b.run("unlock", "--id", l.ID).want(t, 1, "", "no lock has the id")
	b.run("renew", "--id", l.ID).want(t, 1, "", "no lock has the id")
	b.run("unlock").want(t, 1, "", "--id is missing")
	b.run("lock").want(t, 1, "", "KEY is missing")
	b.run("lock", "--ttl", "forever", "x,y").want(t, 0, "never", "")
	b.run("lock", "--try", "y").want(t, exitNotHeld, "", "y is not free")
}
