//go:build unix

package proctest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	Play(map[string]Part{"echo": echo, "failing": failing, "panicking": panicking, "parent": parent})
	goleak.VerifyTestMain(m)
}

// echo says its arguments and then what it hears.
func echo(stage *Stage, args []string) error {
	fmt.Println("printed by the way") // not a line of the talk
	stage.Say(strings.Join(args, "|"))
	for {
		line, err := stage.Hear()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		stage.Say(line)
	}
}

func failing(*Stage, []string) error { return errors.New("it went wrong, as it should") }

func panicking(*Stage, []string) error { panic("as it should") }

// parent starts a process, says its id, and waits to be killed.
func parent(stage *Stage, args []string) error {
	p, err := Start(exec.Command(args[0], args[1:]...))
	if err != nil {
		return err
	}
	stage.Say(fmt.Sprint(p.Pid()))
	_, err = stage.Hear()
	return err
}

// gone says whether there is no such process, a zombie aside.
func gone(pid int) bool {
	if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, after, _ := strings.Cut(string(state), ") ")
		return strings.HasPrefix(after, "Z")
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestForkTalks(t *testing.T) {
	f := Fork(t, "echo", "one", "", "a b")
	f.Wants("one||a b")
	if got := f.Ask("hello"); got != "hello" {
		t.Errorf("heard %q, want hello", got)
	}
	if got := f.Ask(""); got != "" {
		t.Errorf("heard %q, want the empty line", got)
	}
	long := strings.Repeat("x", 1<<20)
	go func() { _, _ = f.in.WriteString(oneLine(long)) }() // longer than what the pipes hold
	if got := f.Hear(); got != long {
		t.Errorf("heard %d bytes, want %d", len(got), len(long))
	}
	f.Finish()
	if !gone(f.Pid()) {
		t.Error("the process is still there")
	}
}

func TestForksAreFrozenAndKilled(t *testing.T) {
	f, other := Fork(t, "echo"), Fork(t, "echo")
	f.Wants("")
	other.Wants("")
	f.Freeze()
	f.Tell("late")
	if got := other.Ask("other"); got != "other" {
		t.Errorf("heard %q from the other", got)
	}
	if err := f.out.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if line, err := f.lines.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a frozen process says %q, %v", line, err)
	}
	f.Thaw()
	f.Wants("late")
	f.Freeze()
	f.Kill()
	f.Kill()
	if !gone(f.Pid()) {
		t.Error("the process is still there")
	}
	if state := f.process.State(); state.Success() {
		t.Errorf("a killed process ended with %v", state)
	}
}

// A part that ends badly is seen to.
func TestBadEnds(t *testing.T) {
	for _, part := range []string{"failing", "panicking", "nobody"} {
		f := Fork(t, part)
		if err := f.process.await(); err != nil {
			t.Fatal(err)
		}
		if state := f.process.State(); state.Success() {
			t.Errorf("part %s ended with %v", part, state)
		}
	}
}

func TestForkEndsWithItsTest(t *testing.T) {
	var pid int
	t.Run("the test", func(t *testing.T) {
		f := Fork(t, "echo")
		f.Wants("")
		f.Freeze()
		pid = f.Pid()
	})
	if !gone(pid) {
		t.Errorf("process %d is still there", pid)
	}
}

func TestTerminate(t *testing.T) {
	p, err := Start(exec.Command("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := errors.Join(p.Terminate(), p.Kill()); err != nil {
			t.Error(err)
		}
	}
	if p.Running() || !gone(p.Pid()) {
		t.Error("the process is still there")
	}
	if err := p.Freeze(); err == nil {
		t.Error("a process that is over is frozen without an error")
	}
}

func TestStartOfNothing(t *testing.T) {
	if p, err := Start(exec.Command("/no/such/program")); err == nil || p.Running() {
		t.Errorf("started %v, %v", p, err)
	}
}

// Nothing is left when the process of the test is killed.
func TestKilledParentLeavesNoOrphan(t *testing.T) {
	probe := exec.Command("true")
	if orphanless(probe); probe.SysProcAttr == nil {
		t.Skip("this system does not end processes with the one that started them")
	}
	f := Fork(t, "parent", "sleep", "1000")
	var pid int
	if _, err := fmt.Fscan(bytes.NewBufferString(f.Hear()), &pid); err != nil {
		t.Fatal(err)
	}
	if gone(pid) {
		t.Fatal("the process is not there")
	}
	f.Kill()
	for deadline := time.After(Patience); !gone(pid); {
		select {
		case <-deadline:
			t.Fatalf("process %d has survived the one that started it", pid)
		case <-time.After(2 * time.Millisecond):
		}
	}
}
