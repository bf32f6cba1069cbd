//go:build unix

package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
)

// asGuard makes the test binary be a guard.
const asGuard = "LATCHKEY_TEST_GUARD"

func TestMain(m *testing.M) {
	if os.Getenv(asGuard) != "" {
		if err := Guard(os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// testHold is a hold whose deadline and loss the test decides.
type testHold struct {
	ctx  context.Context
	lose context.CancelCauseFunc

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

func newHold(t *testing.T, left time.Duration) *testHold {
	h := &testHold{}
	h.ctx, h.lose = context.WithCancelCause(context.Background())
	t.Cleanup(func() { h.lose(nil) })
	if left > 0 {
		h.push(left)
	}
	return h
}

func (h *testHold) Context() context.Context { return h.ctx }

func (h *testHold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

func (h *testHold) push(left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = time.Now().Add(left)
}

// outcome is what Run did to one command.
type outcome struct {
	status  Status
	err     error
	took    time.Duration
	reports string
}

// shell runs a script under a hold. The script finds a directory of its own in
// $DIR.
func shell(t *testing.T, dir string, h Hold, lead time.Duration, script string) outcome {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var reports []string
	begin := time.Now()
	st, err := Run(h, Options{
		Path: "/bin/sh", Args: []string{"sh", "-c", script},
		Env:   append(os.Environ(), "DIR="+dir),
		Stdin: null, Stdout: null, Stderr: os.Stderr,
		Lead:   lead,
		Guard:  []string{"/usr/bin/env", asGuard + "=1", self},
		Report: func(s string) { reports = append(reports, s) },
	})
	return outcome{st, err, time.Since(begin), strings.Join(reports, "\n")}
}

// eventually polls a condition of the system outside this process.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("after a minute still not: %s", what)
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// running reports whether the process whose id is in a file runs. One that ended
// and was not waited for by its parent does not.
func running(t *testing.T, pidFile string) bool {
	t.Helper()
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		script string
		want   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"kill -TERM $$", 143},
		{"kill -KILL $$", 137},
	} {
		got := shell(t, t.TempDir(), newHold(t, time.Minute), time.Second, c.script)
		if got.err != nil || got.status.Code() != c.want || got.reports != "" {
			t.Errorf("%q: got code %d, error %v, reports %q; want code %d", c.script, got.status.Code(), got.err, got.reports, c.want)
		}
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte{0, 1, 2, 3}, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		exit int
		text string
	}{
		{"latchkey-no-such-command", ExitNotFound, "latchkey-no-such-command: command not found"},
		{filepath.Join(dir, "absent"), ExitNotFound, "no such file"},
		{plain, ExitNotExecutable, "permission denied"},
		{dir, ExitNotExecutable, "is a directory"},
		{garbage, ExitNotExecutable, "exec format error"},
	} {
		path, err := Find(c.name)
		if err == nil {
			_, err = Run(newHold(t, time.Minute), Options{Path: path, Args: []string{c.name},
				Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		}
		got, ok := errors.AsType[*StartError](err)
		if !ok || got.Exit != c.exit || !strings.Contains(got.Error(), c.text) {
			t.Errorf("%s: got %v; want exit %d and %q in the text", c.name, err, c.exit, c.text)
		}
	}
}

// A deadline that stands still: the command is asked to stop Lead before it, and
// one that does so in time is not killed.
func TestAskedToStop(t *testing.T) {
	const left, lead = 12 * time.Second, 10 * time.Second // in time, on a busy machine too
	dir := t.TempDir()
	got := shell(t, dir, newHold(t, left), lead, `trap 'touch $DIR/asked; exit 3' TERM; while :; do sleep 0.02; done`)
	if got.status.Code() != 3 || !exists(filepath.Join(dir, "asked")) {
		t.Errorf("got code %d, want 3: the command's own answer to SIGTERM", got.status.Code())
	}
	if got.took < left-lead || got.took >= left {
		t.Errorf("it ended after %v, want between %v and %v", got.took, left-lead, left)
	}
	if !strings.Contains(got.reports, "asking the command to stop") || strings.Contains(got.reports, "killed") {
		t.Errorf("reports: %q", got.reports)
	}
}

// A command that ignores SIGTERM, and its children that do: all are dead at the
// deadline.
func TestKilledAtDeadline(t *testing.T) {
	const left = 2 * time.Second
	dir := t.TempDir()
	got := shell(t, dir, newHold(t, left), left/2, `
		trap '' TERM
		sh -c 'echo $$ >$DIR/a.tmp; mv $DIR/a.tmp $DIR/a; while :; do sleep 0.05; done' &
		echo $$ >$DIR/b
		while :; do sleep 0.05; done`)
	if got.status.Code() != 137 {
		t.Errorf("got code %d, want 137", got.status.Code())
	}
	if got.took < left {
		t.Errorf("killed after %v, before the deadline of %v", got.took, left)
	}
	for _, f := range []string{"a", "b"} {
		if running(t, filepath.Join(dir, f)) {
			t.Errorf("process %s of the group outlived the deadline", f)
		}
	}
}

func TestRenewedIsNotDisturbed(t *testing.T) {
	dir := t.TempDir()
	h := newHold(t, 4*time.Second)
	stop := make(chan struct{})
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				h.push(4 * time.Second)
				if n == 80 {
					_ = os.WriteFile(filepath.Join(dir, "enough"), nil, 0o644)
				}
			}
		}
	}()
	got := shell(t, dir, h, time.Second, `while ! [ -e $DIR/enough ]; do sleep 0.02; done; exit 5`)
	close(stop)
	<-renewed
	if got.status.Code() != 5 || got.reports != "" {
		t.Errorf("got code %d and reports %q; want 5 and none", got.status.Code(), got.reports)
	}
}

func TestLossKillsAtOnce(t *testing.T) {
	dir := t.TempDir()
	h := newHold(t, time.Hour)
	done := make(chan outcome)
	go func() {
		done <- shell(t, dir, h, time.Minute, `trap '' TERM; touch $DIR/ready; while :; do sleep 0.05; done`)
	}()
	eventually(t, "the command runs", func() bool { return exists(filepath.Join(dir, "ready")) })
	h.lose(errors.New("forced by an administrator"))
	got := <-done
	if got.status.Code() != 137 || !strings.Contains(got.reports, "forced by an administrator") {
		t.Errorf("got code %d, reports %q; want 137 and the cause of the loss", got.status.Code(), got.reports)
	}
}

// What the command leaves behind in its group would go on without the lock.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	got := shell(t, dir, newHold(t, time.Hour), time.Minute, `
		sh -c 'echo $$ >$DIR/a; touch $DIR/ready; exec sleep 600' &
		while ! [ -e $DIR/ready ]; do sleep 0.02; done; exit 4`)
	if got.status.Code() != 4 || !strings.Contains(got.reports, "left processes behind") {
		t.Errorf("got code %d, reports %q", got.status.Code(), got.reports)
	}
	if running(t, filepath.Join(dir, "a")) {
		t.Error("the process that was left behind still runs")
	}
}

func TestSignalsAreRelayed(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) { // by who started the test, as nohup does: then the command ignores it too
			t.Logf("%v is ignored here, and not tried", sig)
			continue
		}
		dir := t.TempDir()
		done := make(chan outcome)
		go func() {
			done <- shell(t, dir, newHold(t, time.Hour), time.Minute,
				`trap 'exit 9' HUP INT TERM; touch $DIR/ready; while :; do sleep 0.02; done`)
		}()
		eventually(t, "the command runs", func() bool { return exists(filepath.Join(dir, "ready")) })
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		if got := <-done; got.status.Code() != 9 {
			t.Errorf("%v: got code %d, want 9", sig, got.status.Code())
		}
	}
}

func TestLead(t *testing.T) {
	for _, c := range []struct{ ttl, grace, want time.Duration }{
		{30 * time.Second, 10 * time.Second, 5 * time.Second},
		{2 * time.Second, 2 * time.Second, 500 * time.Millisecond},
		{time.Hour, 3 * time.Second, 1500 * time.Millisecond},
	} {
		if got := Lead(c.ttl, c.grace); got != c.want {
			t.Errorf("Lead(%v, %v) = %v, want %v", c.ttl, c.grace, got, c.want)
		}
	}
}

// The guard alone: it kills the group at the deadline it was told last, at the
// end of the pipe, and not after a goodbye.
func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name  string
		talk  func(g *guard)
		kills bool
	}{
		{"deadline", func(g *guard) {
			g.tell(time.Now().Add(time.Hour))
			g.tell(time.Now().Add(100 * time.Millisecond))
		}, true},
		{"never, then the end", func(g *guard) {
			g.tell(time.Time{})
			g.pipe.Close()
		}, true},
		{"goodbye", func(g *guard) {
			g.tell(time.Now().Add(time.Hour))
			g.dismiss()
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sleep", "600")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			g, err := startGuard([]string{"/usr/bin/env", asGuard + "=1", self})
			if err != nil {
				t.Fatal(err)
			}
			g.watch(cmd.Process.Pid)
			c.talk(g)
			if !c.kills {
				var ws syscall.WaitStatus
				if _, err := syscall.Wait4(g.pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
					t.Errorf("the guard ended with %v, %v", ws, err)
				}
				select {
				case <-ended:
					t.Error("the command was killed after the goodbye")
				default:
				}
				_ = cmd.Process.Kill()
			}
			<-ended
		})
	}
}

// A long wait is cut, since poll does not see that the machine slept.
func TestGuardLooksAtTheClock(t *testing.T) {
	if ms := untilDeadline(systemTime() + int64(time.Hour)); ms != int(lookEvery/time.Millisecond) {
		t.Errorf("waits %d ms for a deadline in an hour, want %v", ms, lookEvery)
	}
	if ms := untilDeadline(systemTime() + int64(lookEvery/2)); ms < 1 || ms > int(lookEvery/2/time.Millisecond) {
		t.Errorf("waits %d ms for a deadline in %v", ms, lookEvery/2)
	}
	if ms := untilDeadline(0); ms != -1 {
		t.Errorf("waits %d ms without a deadline, want for ever", ms)
	}
}

// A machine that slept is a process that stood still: renewals get a moment to
// catch up before the command is asked to stop.
func TestPatienceAfterSleep(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Minute} {
		var total time.Duration
		h := newHold(t, time.Second)
		s := supervisor{hold: h, options: Options{Lead: 5 * time.Second}, process: &process{},
			clock: asleep.Told(func() time.Duration { return total }), asked: true}
		s.checkDeadline()
		total += slept
		s.checkDeadline()
		if patient := !s.patient.IsZero(); patient != (slept > 0) {
			t.Errorf("slept %v: patient %v", slept, patient)
		}
	}
}

func FuzzGuardHears(f *testing.F) {
	f.Add("17\n123456789\n0\n", 3)
	f.Add("17\ndone\n", 1)
	f.Add("-1\n", 2)
	f.Fuzz(func(t *testing.T, text string, at int) {
		// However the text is cut, the same is heard.
		var whole, parts watched
		done, err := whole.hear([]byte(text))
		at = min(max(at, 0), len(text))
		partDone, partErr := parts.hear([]byte(text[:at]))
		if !partDone && partErr == nil {
			partDone, partErr = parts.hear([]byte(text[at:]))
		}
		if done != partDone || (err == nil) != (partErr == nil) || whole.group != parts.group || whole.deadline != parts.deadline {
			t.Errorf("%q as a whole: %v %v %+v; cut at %d: %v %v %+v", text, done, err, whole, at, partDone, partErr, parts)
		}
		if whole.group == 1 || whole.group < 0 {
			t.Errorf("%q made it watch group %d", text, whole.group)
		}
	})
}
