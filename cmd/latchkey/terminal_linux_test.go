package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// typist is a person at a terminal: an interactive shell on a pseudo-terminal.
type typist struct {
	t      *testing.T
	master *os.File
	screen *lockedBuffer
	seen   int // what of the screen has been looked at
	shell  *exec.Cmd
}

// sitDown starts the shell, with job control and a plain prompt.
func sitDown(t *testing.T, b *testBroker) *typist {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash: the tests on a terminal need a shell with job control")
	}
	master, slave := openTerminal(t)
	p := &typist{t: t, master: master, screen: &lockedBuffer{}}
	p.shell = b.command()
	p.shell.Path, p.shell.Args = lookPath(t, "bash"), []string{"bash", "--norc", "--noprofile", "-i"}
	p.shell.Env = append(p.shell.Env, "PS1=ready> ", "TERM=xterm", "HISTFILE=/dev/null", "BASH_SILENCE_DEPRECATION_WARNING=1")
	p.shell.Stdin, p.shell.Stdout, p.shell.Stderr = slave, slave, slave
	p.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.shell.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			_, _ = p.screen.Write(buf[:n])
			if err != nil { // the last process has closed the terminal
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.shell.Process.Kill() // the session's leader: the others get SIGHUP
		_ = p.shell.Wait()
		master.Close()
		<-done
		if t.Failed() {
			t.Logf("the terminal showed:\n%s", p.screen)
		}
	})
	p.expect("ready> ")
	return p
}

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// openTerminal makes a pseudo-terminal of 100 columns.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// press sends keys.
func (p *typist) press(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// Keys with a meaning to the terminal.
const (
	ctrlC = "\x03"
	ctrlD = "\x04"
	ctrlZ = "\x1a"
)

// expect waits until a text appears behind what was seen before.
func (p *typist) expect(text string) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("the terminal shows %q", text), func() bool {
		s := p.screen.String()
		i := strings.Index(s[p.seen:], text)
		if i >= 0 {
			p.seen += i + len(text)
		}
		return i >= 0
	})
}

// status asks the shell for the exit status of what it ran last. The words are
// split so that the echo of the typing does not pass for the answer.
func (p *typist) status(want int) {
	p.t.Helper()
	p.press("echo sta''tus=$?.\n")
	p.expect(fmt.Sprintf("status=%d.", want))
	p.expect("ready> ")
}

func TestTerminalReading(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run k -- sh -c 'echo a''sks; read x; echo got-$x; cat'\n")
	p.expect("asks")
	p.press("this\n")
	p.expect("got-this")
	p.press(ctrlD)
	p.expect("ready> ")
	p.status(0)
}

func TestTerminalInterrupt(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run k -- sh -c 'echo be''gun; exec sleep 600'\n")
	p.expect("begun")
	p.press(ctrlC)
	p.expect("ready> ")
	p.status(130)
	b.run("run", "--try", "k", "--", "true").want(t, 0, "", "")
	// One that handles ^C is not disturbed otherwise. It starts no process while
	// it is interrupted: some shells lose a signal that comes in that moment.
	p.press("latchkey run k -- sh -c 'trap \"echo han''dled; exit 4\" INT; echo be''gun; while :; do :; done'\n")
	p.expect("begun")
	p.press(ctrlC)
	p.expect("handled")
	p.expect("ready> ")
	p.status(4)
}

func TestTerminalInterruptWhileWaiting(t *testing.T) {
	b := startBroker(t)
	b.run("lock", "k", "--ttl", "1h", "--label", "night shift").want(t, 0, "token", "")
	p := sitDown(t, b)
	p.press("latchkey run k -- true\n")
	p.expect("waiting for k: held by")
	p.expect(`"night shift"`)
	p.expect("1st in line, waiting for ") // it is brought up to date
	p.press(ctrlC)
	p.expect("ready> ")
	p.status(130)
	if got := b.run("show", "k"); strings.Contains(got.out, "waiting") {
		t.Errorf("a waiter was left behind:\n%s", got.out)
	}
}

// ^Z stops the whole job, and fg continues it with the lock still held.
func TestTerminalStop(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run --ttl 1h k -- sh -c 'echo asks; read x; echo got-$x'\n")
	p.expect("asks\r\n")
	p.press(ctrlZ)
	p.expect("Stopped")
	p.expect("ready> ")
	p.press("fg\n")
	p.expect("latchkey run")
	p.press("that\n")
	p.expect("got-that")
	p.expect("ready> ")
	p.status(0)
}

// A lock that was lost while its job was stopped: the command never goes on.
func TestTerminalStoppedTooLong(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run --ttl 2s k -- sh -c 'echo asks; read x; echo got-$x'\n")
	p.expect("asks\r\n")
	p.press(ctrlZ)
	p.expect("Stopped")
	p.expect("ready> ")
	if got := b.run("run", "--wait", "20s", "k", "--", "true"); got.code != 0 {
		t.Errorf("the next one got %+v", got)
	}
	p.press("fg\n")
	p.expect("lock was lost")
	p.expect("ready> ")
	p.status(137)
	if strings.Contains(p.screen.String(), "\ngot-") {
		t.Error("the command went on without the lock")
	}
}

// A job in the background that reads from the terminal is stopped, as any other
// would be, and gets it with fg.
func TestTerminalBackground(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run --ttl 1h k -- sh -c 'read x; echo got-$x' &\n")
	p.expect("ready> ")
	eventually(t, "the command asks for the terminal", func() bool { return strings.Contains(b.run("ls").out, "k ") })
	p.press("wait; echo wai''ted\n")
	p.expect("waited")
	p.press("jobs\n")
	p.expect("Stopped")
	p.press("fg\n")
	p.expect("latchkey run")
	p.press("other\n")
	p.expect("got-other")
	p.expect("ready> ")
}

// In a pipeline the other programs may need the terminal, so the command gets it
// only when it reads from it.
func TestTerminalPipeline(t *testing.T) {
	b := startBroker(t)
	p := sitDown(t, b)
	p.press("latchkey run k -- sh -c 'echo asks; read x; echo got-$x' | cat\n")
	p.expect("asks\r\n")
	p.press("it\n")
	p.expect("got-it")
	p.expect("ready> ")
	p.status(0)
	p.press("latchkey run k -- sh -c 'echo begun; exec sleep 600' | cat\n")
	p.expect("begun\r\n")
	p.press(ctrlC)
	p.expect("ready> ")
	b.run("run", "--try", "k", "--", "true").want(t, 0, "", "")
}

func TestTerminalForceAsks(t *testing.T) {
	b := startBroker(t)
	b.run("lock", "k", "--ttl", "1h", "--label", "night shift").want(t, 0, "token", "")
	p := sitDown(t, b)
	p.press("latchkey force k\n")
	p.expect(`"night shift"`)
	p.expect("[y/N] ")
	p.press("\n")
	p.expect("not forced")
	p.expect("ready> ")
	p.press("latchkey force k\n")
	p.expect("[y/N] ")
	p.press("\x03")
	p.expect("ready> ")
	p.status(130)
	p.press("latchkey force k\n")
	p.expect("[y/N] ")
	p.press("y\n")
	p.expect("ended 1 hold of k")
	p.expect("ready> ")
	p.status(0)
}

// Tables on a terminal are in colour and as wide as it is; NO_COLOR turns the
// colour off.
func TestTerminalTables(t *testing.T) {
	b := startBroker(t)
	b.run("lock", strings.Repeat("long-", 30), "--ttl", "1h", "--label", strings.Repeat("text ", 20)).want(t, 0, "token", "")
	p := sitDown(t, b)
	p.press("latchkey ls; NO_COLOR=1 latchkey ls\n")
	p.expect("\x1b[1mKEY\x1b[0m")
	p.expect("…")
	p.expect("ready> ")
	lines := strings.Split(p.screen.String(), "\r\n")
	plainText := lines[len(lines)-3:]
	for _, line := range plainText[:2] {
		if strings.Contains(line, "\x1b") || displayWidth(line) > 100 {
			t.Errorf("with NO_COLOR: %q, %d columns", line, displayWidth(line))
		}
	}
}
