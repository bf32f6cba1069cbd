package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// sitDown sits down at a terminal where the store is known.
func (m *testMaps) sitDown() *typist {
	m.t.Helper()
	p := sitDown(m.t, &testBroker{t: m.t, addr: "127.0.0.1:1"})
	p.press("export " + envStore + "=" + m.url + "\n")
	p.expect("ready> ")
	return p
}

// What a terminal would obey is shown and not sent to it; what it can show is sent as it is.
func TestTerminalMapGet(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.revision(m.feed("\x1b]0;owned\x07\xff", "set", "m", "evil", "-"))
	m.revision(m.feed("line one\nline two", "set", "m", "text", "-"))
	m.set("m", "list", "--kind", "list", "a", "\x1b[2J")
	p := m.sitDown()
	p.press("latchkey map get m evil; latchkey map get m text; latchkey map get m list\n")
	p.expect(`"\x1b]0;owned\a\xff"` + "\r\n")
	p.expect("line one\r\nline two\r\n")
	p.expect(`a` + "\r\n" + `"\x1b[2J"` + "\r\n")
	p.expect("ready> ")
	if screen := p.screen.String(); strings.Contains(screen, "\x1b]0;owned") || strings.Contains(screen, "\x1b[2J") {
		t.Errorf("a value reached the terminal as a command: %q", screen)
	}
}

func TestTerminalMapReset(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "a", "1")
	m.set("m", "b", "1")
	p := m.sitDown()
	for _, c := range []struct {
		answer, then string
		status       int
	}{{"\n", "nothing removed", 1}, {ctrlC, "ready> ", 130}, {"y\n", "-", 0}} {
		p.press("latchkey map del m --all\n")
		p.expect("Remove 2 keys of map m in redis://" + m.server.Addr() + "? All processes lose them at once. [y/N] ")
		p.press(c.answer)
		p.expect(c.then)
		if c.then != "ready> " {
			p.expect("ready> ")
		}
		p.status(c.status)
	}
	m.run("ls", "m").want(t, 0, "m  0 keys", "")
}

// Tables are as wide as the terminal, and the state is in colour.
func TestTerminalMapList(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", strings.Repeat("long/", 40), strings.Repeat("text ", 40))
	m.set("m", "日本", strings.Repeat("語", 60))
	p := m.sitDown()
	p.press("latchkey map ls m; NO_COLOR=1 latchkey map ls m\n")
	p.expect("\x1b[32mlive\x1b[0m")
	p.expect("\x1b[1mKEY\x1b[0m")
	p.expect("ready> ")
	lines := strings.Split(p.screen.String(), "\r\n") // the last is the shell's
	for _, line := range lines[len(lines)-5 : len(lines)-1] {
		if strings.Contains(line, "\x1b") || displayWidth(line) > 100 {
			t.Errorf("with NO_COLOR: %q, %d columns", line, displayWidth(line))
		}
	}
}

// What cannot be printed is an error of every verb.
func TestMapOutputThatFails(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "k", "v")
	sink := full(t)
	for _, args := range [][]string{{"get", "m", "k"}, {"set", "m", "k", "w"}, {"ls", "m"}, {"status", "m"}, {"del", "m", "k"}} {
		for _, form := range [][]string{nil, {"--json"}} {
			m.set("m", "k", "v")
			cmd := m.command(append(args, form...)...)
			var errOut strings.Builder
			cmd.Stdout, cmd.Stderr = sink, &errOut
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if code := waitFor(t, cmd); code != 1 || form == nil && !strings.Contains(errOut.String(), "no space left") {
				t.Errorf("map %s %s with a full standard output: got code %d and %q", args, form, code, &errOut)
			}
		}
	}
	cmd := m.command("watch", "m")
	cmd.Stdout = sink
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan int)
	go func() { done <- waitFor(t, cmd) }()
	eventually(t, "the watch gives up", func() bool {
		m.set("m", "k", "x")
		select {
		case code := <-done:
			if code != 1 {
				t.Errorf("the watch ended with %d, want 1", code)
			}
			return true
		default:
			return false
		}
	})
}
