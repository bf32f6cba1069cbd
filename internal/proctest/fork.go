package proctest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// envPart tells a copy of the test binary which part to play, and with what.
const envPart = "LATCHKEY_TEST_PART"

// A Part is what a copy of the test binary does instead of testing. Its error, or a
// panic, fails the test that waits for its end.
type Part func(stage *Stage, args []string) error

// A call is what envPart holds, as JSON.
type call struct {
	Part string
	Args []string
}

// Play is for the beginning of TestMain. In a copy of the test binary that [Fork]
// started it plays the part and never returns; otherwise it does nothing.
func Play(parts map[string]Part) {
	text := os.Getenv(envPart)
	if text == "" {
		return
	}
	if err := play(parts, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(parts map[string]Part, text string) error {
	var c call
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("read %s: %w", envPart, err)
	}
	part := parts[c.Part]
	if part == nil {
		return fmt.Errorf("there is no part %q in the map that TestMain gives to Play", c.Part)
	}
	if err := os.Unsetenv(envPart); err != nil { // so that the part may start programs, and forks
		return fmt.Errorf("clear %s: %w", envPart, err)
	}
	stage := &Stage{in: bufio.NewReader(os.Stdin), out: os.Stdout}
	os.Stdout = os.Stderr // what prints unasked must not look like an answer
	if err := part(stage, c.Args); err != nil {
		return fmt.Errorf("part %s: %w", c.Part, err)
	}
	return nil
}

// A Stage is where a part talks to its test. Hear and Say may be called by one
// goroutine each.
type Stage struct {
	in  *bufio.Reader
	out io.Writer
}

// Hear waits for the next line that the test tells. Its error is io.EOF when the test
// wants no more.
func (s *Stage) Hear() (string, error) {
	line, err := s.in.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Say says one line to the test. When nobody can hear it any more the process ends.
func (s *Stage) Say(line string) {
	if _, err := io.WriteString(s.out, oneLine(line)); err != nil {
		os.Exit(1)
	}
}

// oneLine ends a line. A newline inside it is the caller's mistake, and would make two
// answers of one.
func oneLine(line string) string {
	if strings.Contains(line, "\n") {
		panic(fmt.Sprintf("a line with a newline in it: %q", line))
	}
	return line + "\n"
}

// A Forked is a copy of the test binary that plays a part. Methods that fail the test
// belong on the test's own goroutine.
type Forked struct {
	tb      testing.TB
	part    string
	process *Process
	in      *os.File
	out     *os.File
	lines   *bufio.Reader
}

// Fork starts a copy of the test binary that plays a part, and kills it at the end of
// the test if it is still there. What it prints on standard error appears there.
func Fork(tb testing.TB, part string, args ...string) *Forked {
	tb.Helper()
	text, err := json.Marshal(call{part, args})
	if err != nil {
		tb.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(self)
	// The race detector would make each of the processes wait a second before it ends.
	cmd.Env = append(os.Environ(), envPart+"="+string(text), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	f := &Forked{tb: tb, part: part}
	tb.Cleanup(f.cleanUp)
	childIn, in, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer childIn.Close()
	f.in = in
	out, childOut, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer childOut.Close()
	f.out, f.lines = out, bufio.NewReader(out)
	cmd.Stdin, cmd.Stdout = childIn, childOut
	if f.process, err = Start(cmd); err != nil {
		tb.Fatal(err)
	}
	return f
}

// Pid is the process id.
func (f *Forked) Pid() int { return f.process.Pid() }

// Tell tells the part one line.
func (f *Forked) Tell(line string) {
	f.tb.Helper()
	err := f.in.SetWriteDeadline(time.Now().Add(Patience))
	if err == nil {
		_, err = f.in.WriteString(oneLine(line))
	}
	if err != nil {
		f.tb.Fatalf("tell the %s %q: %v", f.part, line, err)
	}
}

// Hear waits for the next line that the part says.
func (f *Forked) Hear() string {
	f.tb.Helper()
	err := f.out.SetReadDeadline(time.Now().Add(Patience))
	var line string
	if err == nil {
		line, err = f.lines.ReadString('\n')
	}
	switch {
	case errors.Is(err, io.EOF):
		f.tb.Fatalf("the %s has ended instead of saying something", f.part)
	case err != nil:
		f.tb.Fatalf("hear the %s: %v", f.part, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// Ask tells a line and waits for the answer.
func (f *Forked) Ask(line string) string {
	f.tb.Helper()
	f.Tell(line)
	return f.Hear()
}

// Wants waits for the next line and fails the test when it is another one.
func (f *Forked) Wants(want string) {
	f.tb.Helper()
	if got := f.Hear(); got != want {
		f.tb.Fatalf("the %s says %q, want %q", f.part, got, want)
	}
}

// Finish tells the part that no more lines come, waits for its end, and fails the test
// when that is not a good one.
func (f *Forked) Finish() {
	f.tb.Helper()
	f.in.Close()
	if err := f.process.await(); err != nil {
		f.tb.Fatalf("the %s: %v", f.part, err)
	}
	if state := f.process.State(); !state.Success() {
		f.tb.Fatalf("the %s: %v", f.part, state)
	}
}

// Kill ends the process in the middle of what it does.
func (f *Forked) Kill() { f.tb.Helper(); f.must(f.process.Kill()) }

// Freeze stops the process where it is.
func (f *Forked) Freeze() { f.tb.Helper(); f.must(f.process.Freeze()) }

// Thaw has the frozen process go on.
func (f *Forked) Thaw() { f.tb.Helper(); f.must(f.process.Thaw()) }

func (f *Forked) must(err error) {
	f.tb.Helper()
	if err != nil {
		f.tb.Fatalf("the %s: %v", f.part, err)
	}
}

func (f *Forked) cleanUp() {
	if err := f.process.Kill(); err != nil {
		f.tb.Error(err)
	}
	for _, end := range []*os.File{f.in, f.out} {
		if end != nil {
			end.Close() // it may be closed already
		}
	}
}
