//go:build linux

package npmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// The package's command-line tools, as npm installs them. Each is run as its users do, and its answers are judged by
// what is held in fact.
func TestTools(t *testing.T) {
	t.Parallel()
	w := workshop{dir: needsPackage(t)}
	t.Run("lmx_acquire_lock", func(t *testing.T) {
		t.Parallel()
		w.on(t).acquire(t)
	})
	t.Run("lmx_release_lock", func(t *testing.T) {
		t.Parallel()
		w.on(t).release(t)
	})
	t.Run("lmx_ls", func(t *testing.T) {
		t.Parallel()
		w.on(t).ls(t)
	})
	t.Run("lmx_inspect_broker", func(t *testing.T) {
		t.Parallel()
		w.on(t).inspect(t)
	})
	t.Run("lmx", func(t *testing.T) {
		t.Parallel()
		w.on(t).lmx(t)
	})
}

// The tools against the package's own broker: locks that end with the process that took them, an empty list and
// constants for counts must be noticed.
func TestToolsSeeTheirBroker(t *testing.T) {
	t.Parallel()
	dir := needsPackage(t)
	w := workshop{dir: dir, broker: startTheirs(t, dir)}
	if _, code := w.run(t, "lmx_acquire_lock", "a", w.port()); code != 0 {
		t.Fatalf("lmx_acquire_lock: exit status %d", code)
	}
	if _, code := w.run(t, "lmx_acquire_lock", "--json", w.json(`"key":"a","lockRequestTimeout":100`)); code != 0 {
		t.Errorf("the npm broker keeps a lock whose holder has ended (exit status %d); so this test can no longer "+
			"show that ours does more", code)
	}
	if keys := w.list(t); keys != "[]" {
		t.Errorf("the npm broker lists %s; so this test can no longer show that ours does more", keys)
	}
	if locks := w.counts(t, "lockcount"); locks[0] != "5" {
		t.Errorf("the npm broker counts %v locks, not the constant 5", locks)
	}
}

// workshop runs the tools against one broker.
type workshop struct {
	dir    string
	broker target
}

// on is the workshop at a broker of its own.
func (w workshop) on(t *testing.T) workshop {
	t.Helper()
	w.broker = startOurs(t)
	return w
}

func (w workshop) port() string {
	_, port, _ := net.SplitHostPort(w.broker.addr)
	return port
}

// json is an argument for --json.
func (w workshop) json(more string) string {
	return fmt.Sprintf(`{"host":"127.0.0.1","port":%s,%s}`, w.port(), more)
}

func (w workshop) command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	bin := filepath.Join(w.dir, "node_modules", ".bin")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, tool), args...)
	// The tools call themselves by name, and some know no host but localhost, whose first address may be another.
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "NODE_OPTIONS=--dns-result-order=ipv4first")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// run returns what a tool printed and its exit status.
func (w workshop) run(t *testing.T, tool string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text, err := w.command(ctx, tool, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%s %v: %v\n%s", tool, args, err, text)
	}
	if exit != nil {
		return string(text), exit.ExitCode()
	}
	return string(text), 0
}

// must runs a tool that has to succeed.
func (w workshop) must(t *testing.T, tool string, args ...string) string {
	t.Helper()
	text, code := w.run(t, tool, args...)
	if code != 0 {
		t.Fatalf("%s %v: exit status %d\n%s", tool, args, code, text)
	}
	return text
}

// refuse wants a key to be held: another process does not get it.
func (w workshop) refuse(t *testing.T, key string) {
	t.Helper()
	text, code := w.run(t, "lmx_acquire_lock", "--json", w.json(`"lockRequestTimeout":100,"key":"`+key+`"`))
	if code != 1 || !strings.Contains(text, "timed out") {
		t.Errorf("%s is held, but lmx_acquire_lock ended with %d\n%s", key, code, text)
	}
}

func (w workshop) acquire(t *testing.T) {
	w.must(t, "lmx_acquire_lock", "a", w.port())
	w.refuse(t, "a") // its holder has ended, and it is held
	w.must(t, "lmx_acquire_lock", "--json", w.json(`"key":"b"`))
	w.refuse(t, "b")

	// One that waits gets it when it is released.
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var text bytes.Buffer
	cmd := w.command(ctx, "lmx_acquire_lock", "--json", w.json(`"key":"a","lockRequestTimeout":20000`))
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.must(t, "lmx_release_lock", "a", w.port())
	if err := cmd.Wait(); err != nil {
		t.Errorf("lmx_acquire_lock that waits: %v\n%s", err, text.String())
	}
	w.refuse(t, "a")
	if keys := w.list(t); keys != "[ 'a', 'b' ]" {
		t.Errorf("lmx_ls: %s, want a and b", keys)
	}
}

func (w workshop) release(t *testing.T) {
	w.must(t, "lmx_acquire_lock", "a", w.port())
	w.must(t, "lmx_acquire_lock", "b", w.port())
	w.must(t, "lmx_release_lock", "a", w.port())
	w.refuse(t, "b")
	if keys := w.list(t); keys != "[ 'b' ]" {
		t.Errorf("lmx_ls after a release: %s, want b", keys)
	}
	w.must(t, "lmx_acquire_lock", "a", w.port())
	w.must(t, "lmx_release_lock", "--json", w.json(`"key":"a"`))
	w.must(t, "lmx_release_lock", "--json", w.json(`"key":"b"`))
	w.must(t, "lmx_release_lock", "never-held", w.port())
	if keys := w.list(t); keys != "[]" {
		t.Errorf("lmx_ls after all releases: %s, want nothing", keys)
	}
}

func (w workshop) ls(t *testing.T) {
	if keys := w.list(t); keys != "[]" {
		t.Errorf("lmx_ls of an idle broker: %s", keys)
	}
	for _, key := range []string{"c", "a", "b"} {
		w.must(t, "lmx_acquire_lock", key, w.port())
	}
	if keys := w.list(t); keys != "[ 'a', 'b', 'c' ]" {
		t.Errorf("lmx_ls: %s, want a, b and c", keys)
	}
}

// escapes are what a tool prints to colour and to move.
var escapes = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

// list returns the keys as lmx_ls prints them. Without these two options it refuses to run, whatever the broker is.
func (w workshop) list(t *testing.T) string {
	t.Helper()
	text := w.must(t, "lmx_ls", "--json", w.json(`"keepLocksAfterDeath":false,"keepLocksOnExit":false`))
	_, keys, found := strings.Cut(escapes.ReplaceAllString(text, ""), "Lock keys list:")
	if !found {
		t.Fatalf("lmx_ls printed %q", text)
	}
	return strings.Join(strings.Fields(keys), " ")
}

func (w workshop) inspect(t *testing.T) {
	if locks := w.counts(t, "lockcount"); locks[0] != "0" {
		t.Errorf("lockcount of an idle broker: %v", locks)
	}
	for _, key := range []string{"a", "b", "c"} {
		w.must(t, "lmx_acquire_lock", key, w.port())
	}
	client, err := net.Dial("tcp", w.broker.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// One that has said who it is counts as a client; so does the tool, once it has asked something.
	if _, err := io.WriteString(client, `{"type":"lock","uuid":"u","key":"d","ttl":60000}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := w.counts(t, "lockcount", "clientcount"); got[0] != "4" || got[1] != "2" {
		t.Errorf("lockcount and clientcount: %v, want 4 locks, and 2 clients with the tool itself", got)
	}
}

// counts types commands into lmx_inspect_broker, which wants a terminal, and returns its answers.
func (w workshop) counts(t *testing.T, commands ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tool := w.command(ctx, "lmx_inspect_broker")
	cmd := exec.CommandContext(ctx, "script", "-qec", tool.Path+" "+w.port()+" 127.0.0.1", os.DevNull)
	cmd.Env, cmd.WaitDelay = tool.Env, tool.WaitDelay
	screen := &screen{news: make(chan struct{}, 1)}
	cmd.Stdout, cmd.Stderr = screen, screen
	keyboard, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	press := func(keys string) {
		if _, err := io.WriteString(keyboard, keys); err != nil {
			t.Fatalf("lmx_inspect_broker: %v; its screen:\n%s", err, screen)
		}
	}
	// Its prompt comes before it takes the terminal over. Only when it has does this clear the screen.
	screen.await(t, regexp.MustCompile(`lmx > $`))
	press("\f")
	screen.await(t, regexp.MustCompile(`(?s)\x1bc.*lmx > $`))
	var answers []string
	for i, command := range commands {
		screen.await(t, regexp.MustCompile(`lmx > $`))
		press(command) // it takes keys that come together for one
		screen.await(t, regexp.MustCompile(command+`$`))
		press("\r")
		answer := screen.await(t, regexp.MustCompile(`(?s)(?:server response: (\d+)\s.*){`+fmt.Sprint(i+1)+`}`))
		answers = append(answers, answer[1])
	}
	press("\x04")
	keyboard.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("lmx_inspect_broker: %v; its screen:\n%s", err, screen)
	}
	return answers
}

// screen is what a program has written to its terminal.
type screen struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	news chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return escapes.ReplaceAllString(s.text.String(), "")
}

// await waits until the screen shows something.
func (s *screen) await(t *testing.T, what *regexp.Regexp) []string {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		if found := what.FindStringSubmatch(s.String()); found != nil {
			return found
		}
		select {
		case <-s.news:
		case <-late.C:
			t.Fatalf("the screen never showed %v but:\n%s", what, s)
		}
	}
}

func (w workshop) lmx(t *testing.T) {
	w.must(t, "lmx", "acquire", "a", w.port())
	w.refuse(t, "a")
	text := w.must(t, "lmx", "ls", "--json", w.json(`"keepLocksAfterDeath":false,"keepLocksOnExit":false`))
	if !strings.Contains(text, "'a'") {
		t.Errorf("lmx ls printed %q, want a", text)
	}
	w.must(t, "lmx", "release", "a", w.port())
	if keys := w.list(t); keys != "[]" {
		t.Errorf("lmx_ls after lmx release: %s, want nothing", keys)
	}
}
