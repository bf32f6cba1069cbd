//go:build linux

package npmtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guide is what people who move over read. All its code is run here.
const guide = "../../../docs/live-mutex.md"

// block is one piece of code of the guide, with what it must print when the guide says so.
type block struct {
	lang, text string
	output     string
	line       int
}

var fence = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

func blocks(t *testing.T) []block {
	t.Helper()
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	for _, m := range fence.FindAllSubmatchIndex(text, -1) {
		b := block{lang: string(text[m[2]:m[3]]), text: string(text[m[4]:m[5]]), line: bytes.Count(text[:m[4]], []byte("\n")) + 1}
		if b.lang == "output" && len(out) > 0 {
			out[len(out)-1].output = b.text
			continue
		}
		out = append(out, b)
	}
	return out
}

func TestGuide(t *testing.T) {
	t.Parallel()
	dir := needsPackage(t)
	ran := make(map[string]int)
	for _, b := range blocks(t) {
		t.Run(fmt.Sprintf("%s at line %d", b.lang, b.line), func(t *testing.T) {
			t.Parallel()
			switch b.lang {
			case "js":
				b.script(t, dir, startOurs(t).addr)
			case "frames":
				b.conversation(t, startOurs(t).addr)
			case "sh":
				b.commands(t, dir)
			default:
				t.Errorf("nothing here runs blocks of %q", b.lang)
			}
		})
		ran[b.lang]++
	}
	if ran["js"] < 1 || ran["frames"] < 1 || ran["sh"] < 3 {
		t.Errorf("the guide has blocks of %v: some were not found", ran)
	}
}

// at is code of the guide for other ports than the ones that it speaks of.
func at(text, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return strings.ReplaceAll(text, "6970", port)
}

// script runs JavaScript where the package is installed.
func (b block) script(t *testing.T, dir, addr string) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "-e", at(b.text, addr))
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != b.output {
		t.Errorf("%v, and it printed\n%s\nwant\n%s\nand said\n%s", err, out, b.output, stderr.String())
	}
}

// conversation says the lines that are marked with > and expects the others, in their order. Tokens may be others than
// in the guide, but the same where they are the same there.
func (b block) conversation(t *testing.T, addr string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(nc)
	tokens := make(map[string]string)
	for line := range strings.Lines(b.text) {
		if said, ok := strings.CutPrefix(line, "> "); ok {
			if _, err := io.WriteString(nc, said); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%v; the guide expects %s", err, line)
		}
		if problem := answers(got, strings.TrimPrefix(line, "< "), tokens); problem != "" {
			t.Fatalf("%s: got %s the guide has %s", problem, got, line)
		}
	}
}

// answers compares a frame with one of the guide, and learns which token stands for which.
func answers(got, want string, tokens map[string]string) string {
	var frames [2]map[string]any
	for i, text := range []string{got, want} {
		if err := json.Unmarshal([]byte(text), &frames[i]); err != nil {
			return err.Error()
		}
		delete(frames[i], "fencingToken")
	}
	if !reflect.DeepEqual(frames[0], frames[1]) {
		return "another frame"
	}
	token := regexp.MustCompile(`"fencingToken":(\d+)`)
	g, w := token.FindStringSubmatch(got), token.FindStringSubmatch(want)
	switch {
	case len(g) != len(w):
		return "a token too many or too few"
	case len(g) > 0 && tokens[w[1]] != "" && tokens[w[1]] != g[1]:
		return "another token than before"
	case len(g) > 0:
		tokens[w[1]] = g[1]
	}
	return ""
}

// commands runs the lines of a shell. Where the last one is `latchkey serve` it must come to serve clients of the
// package, and in place of the package's broker when the lines before stop that; else a broker is there already.
func (b block) commands(t *testing.T, dir string) {
	lines := strings.Split(strings.TrimSpace(b.text), "\n")
	if !slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "make ") }) {
		return // they run this, and other tests know whether the targets are there
	}
	s := shell{dir: t.TempDir(), npm: dir}
	last := len(lines) - 1
	if !strings.HasPrefix(lines[last], "latchkey serve") {
		s.addr = startOurs(t).addr
		s.run(t, lines)
		return
	}
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s.addr = "127.0.0.1:" + strconv.Itoa(port)
	if last == 0 {
		s.serve(t, lines[last])
		s.script(t, asking)
		return
	}
	old, err := StartBroker(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	s.addr = old.Addr
	s.old = old.cmd.Process.Pid
	client := s.start(t, moving)
	client.hears(t, "connected")
	s.run(t, lines[:last])
	_ = old.cmd.Wait() // its status says that it was stopped
	s.serve(t, lines[last])
	client.hears(t, "moved")
}

// asking ends well when a lock can be had, on the socket in this folder.
const asking = `
const { Client } = require('live-mutex');
new Client({ udsPath: process.cwd() + '/lmx.sock' }).ensure()
  .then((c) => c.acquire('a').then((lock) => lock.unlock()))
  .then(() => process.exit(0), (err) => { console.error(err); process.exit(1); });
`

// moving connects to one broker and locks at the next one, as a process with the handler that the guide asks for.
const moving = `
const { Client } = require('live-mutex');
const say = process.stdout.write.bind(process.stdout);
console.log = () => {};
process.on('unhandledRejection', () => {});
process.on('uncaughtException', () => {});
(async () => {
  const client = await new Client({ host: '127.0.0.1', port: 6970 }).ensure();
  for (const e of ['error', 'warning']) client.emitter.on(e, () => {});
  await client.acquire('a');
  say('connected\n');
  for (;;) {
    const answer = await new Promise((resolve) => {
      const none = setTimeout(() => resolve({}), 200);
      client.requestLockInfo('a', (err, info) => { clearTimeout(none); resolve(err ? {} : info.data || {}); });
    }).catch(() => ({}));
    if ('lockholderCount' in answer) break; // their broker does not tell it
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await (await client.acquire('a')).unlock();
  say('moved\n');
  process.exit(0);
})();
`

// shell is where commands of the guide are run.
type shell struct {
	dir  string // the working folder
	npm  string // where the package is installed
	addr string // what stands for 127.0.0.1:6970
	old  int    // process id of the broker that is to be stopped
}

func (s shell) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	path := filepath.Dir(os.Getenv(envProgram)) + ":" + filepath.Join(s.npm, "node_modules", ".bin") + ":" + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "PATH="+path, "NODE_PATH="+filepath.Join(s.npm, "node_modules"), "HOME="+s.dir,
		"NODE_OPTIONS=--dns-result-order=ipv4first", // the tools know no host but localhost
		"OLD="+strconv.Itoa(s.old), "LATCHKEY_SERVER="+s.addr)
	return cmd
}

func (s shell) run(t *testing.T, lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	text := at(strings.Join(lines, "\n"), s.addr)
	if out, err := s.command(ctx, "bash", "-ec", text).CombinedOutput(); err != nil {
		t.Errorf("%s\n%v, and said\n%s", text, err, out)
	}
}

func (s shell) script(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := s.command(ctx, "node", "-e", at(text, s.addr)).CombinedOutput(); err != nil {
		t.Errorf("%v, and said\n%s", err, out)
	}
}

// serve runs a line that starts a broker, and returns when it listens. The broker must end well with the test.
func (s shell) serve(t *testing.T, line string) {
	t.Helper()
	line = "exec " + line + " --listen " + s.addr + " --http 127.0.0.1:0 --json"
	cmd := s.command(context.Background(), "bash", "-c", line)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
		if err != nil || said.Len() > 0 {
			t.Errorf("%s ended with %v, and said\n%s", line, err, said.String())
		}
	})
	if first, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(first, s.addr) {
		t.Fatalf("%s printed %q, %v", line, first, err)
	}
}

// running is a program that says how far it is.
type running struct {
	lines chan string
	said  *bytes.Buffer // what else it said, once it has ended
}

func (s shell) start(t *testing.T, text string) running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := s.command(ctx, "node", "-e", at(text, s.addr))
	r := running{lines: make(chan string), said: new(bytes.Buffer)}
	cmd.Stderr = r.said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cmd.Wait()
		defer close(r.lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			select {
			case r.lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (r running) hears(t *testing.T, what string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case line, ok := <-r.lines:
			switch {
			case !ok:
				t.Fatalf("the program ended without %q", what)
			case line == what:
				return
			}
		case <-limit.C:
			t.Fatalf("the program does not say %q", what)
		}
	}
}

// What is wrong in a guide must be noticed.
func TestGuideIsJudged(t *testing.T) {
	t.Parallel()
	const granted = `{"type":"lock","uuid":"u","fencingToken":7}`
	for _, c := range []struct {
		name, got, want string
		known           map[string]string
		problem         bool
	}{
		{"the same", granted, granted, nil, false},
		{"a token that is new", granted, strings.ReplaceAll(granted, "7", "9"), nil, false},
		{"a token that is known", granted, strings.ReplaceAll(granted, "7", "9"), map[string]string{"9": "7"}, false},
		{"a token that changed", granted, strings.ReplaceAll(granted, "7", "9"), map[string]string{"9": "8"}, true},
		{"a token that is not there", strings.Replace(granted, `,"fencingToken":7`, "", 1), granted, nil, true},
		{"another uuid", granted, strings.Replace(granted, `"u"`, `"v"`, 1), nil, true},
		{"a member too many", granted, strings.Replace(granted, "{", `{"key":"k",`, 1), nil, true},
	} {
		known := map[string]string{}
		for k, v := range c.known {
			known[k] = v
		}
		if problem := answers(c.got, c.want, known); (problem != "") != c.problem {
			t.Errorf("%s: got %q", c.name, problem)
		}
	}
}
