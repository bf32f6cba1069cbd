package check

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/proctest"
)

// An event is a line that an agent said.
type event struct {
	Event    string           `json:"event"`
	Ref      string           `json:"ref"`
	Code     string           `json:"code"`
	Text     string           `json:"text"`
	Tokens   map[string]int64 `json:"tokens"`
	Token    int64            `json:"token"`
	SafeMS   *int64           `json:"safe_ms"`
	LateMS   int64            `json:"late_ms"`
	Safe     bool             `json:"safe"`
	Position int              `json:"position"`
	Kind     string           `json:"kind"`
	Key      string           `json:"key"`
	Pairs    int64            `json:"pairs"`
	Errors   int64            `json:"errors"`

	at time.Time // when it was heard
}

func (e event) String() string {
	s := strings.TrimSpace(e.Event + " " + e.Code + e.Text + e.Kind)
	if e.Event == "checked" {
		s += fmt.Sprintf(" safe=%v", e.Safe)
	}
	return s
}

// An agent is a process that plays a client. Its methods may be called from any goroutine.
type agent struct {
	lang, name string
	process    *proctest.Process
	in         *os.File
	judge      *judge
	patience   time.Duration
	deaf       string        // makes a liar of it: the command that never comes to it
	heard      chan struct{} // closed when it says no more

	mu      sync.Mutex          // guards what follows
	twist   func(event) []event // makes a liar of it: what it says instead of a line
	changed chan struct{}
	claims  map[string]*claim
	said    map[string][]event // not taken yet, by ref; what has no ref is under ""
	ended   bool
	raced   bool // a cancel may have come too late, and it may say so
	last    int  // of the refs that were made
}

// command is a line for an agent.
type command map[string]any

// launch starts an agent.
func launch(t *testing.T, l *language, name string, j *judge) *agent {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin.agent)
	if l.name != "go" {
		script, err := filepath.Abs(filepath.Join(l.folder(), "run"))
		if err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(script, "agent")
	}
	a := &agent{lang: l.name, name: name, judge: j, patience: patience, heard: make(chan struct{}), changed: make(chan struct{}),
		claims: make(map[string]*claim), said: make(map[string][]event)}
	stderr, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	childIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, stderr
	a.process, err = proctest.Start(cmd)
	childIn.Close()
	childOut.Close()
	if err != nil {
		t.Fatal(err)
	}
	a.in = in
	go a.listen(out)
	t.Cleanup(func() {
		if err := a.process.Kill(); err != nil {
			t.Error(err)
		}
		in.Close()
		out.Close() // ends the listening even where a grandchild has the other end
		<-a.heard
		if text, err := os.ReadFile(stderr.Name()); err == nil && len(text) > 0 && t.Failed() {
			t.Logf("%s said on standard error:\n%s", a.name, text)
		}
		stderr.Close()
	})
	return a
}

// listen hears the agent out.
func (a *agent) listen(out *os.File) {
	defer close(a.heard)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{Event: "error", Text: fmt.Sprintf("said %q: %v", lines.Text(), err)}
		}
		e.at = time.Now()
		a.mu.Lock()
		twist := a.twist
		a.mu.Unlock()
		told := []event{e}
		if twist != nil {
			told = twist(e)
		}
		for _, e := range told {
			a.take(e)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	close(a.changed)
	a.changed = make(chan struct{})
}

// take notes one event, for the judge first.
func (a *agent) take(e event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.claims[e.Ref]; c != nil {
		switch e.Event {
		case "granted":
			a.judge.grantedTo(c, e.Tokens)
		case "lost":
			a.judge.ends(c)
		}
	}
	a.said[e.Ref] = append(a.said[e.Ref], e)
	close(a.changed)
	a.changed = make(chan struct{})
}

// lie has the agent say something else from here on.
func (a *agent) lie(twist func(event) []event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.twist = twist
}

// tell sends a command.
func (a *agent) tell(c command) error {
	if a.deaf != "" && c["do"] == a.deaf {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := a.in.SetWriteDeadline(time.Now().Add(a.patience)); err != nil {
		return err
	}
	if _, err := a.in.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("tell %s to %v: %w", a.name, c["do"], err)
	}
	return nil
}

// expect takes the next event about a ref, which must be one of these. A queued is passed over when it is not among them.
func (a *agent) expect(ref string, kinds ...string) (event, error) {
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	for {
		a.mu.Lock()
		changed, ended := a.changed, a.ended
		for len(a.said[ref]) > 0 {
			e := a.said[ref][0]
			a.said[ref] = a.said[ref][1:]
			if slices.Contains(kinds, e.Event) {
				a.mu.Unlock()
				return e, nil
			}
			if e.Event != "queued" {
				a.mu.Unlock()
				return e, fmt.Errorf("%s says %q of %q, want %v", a.name, e, ref, kinds)
			}
		}
		complaint := slices.IndexFunc(a.said[""], func(e event) bool { return e.Event == "error" && !a.raced })
		if complaint >= 0 {
			e := a.said[""][complaint]
			a.mu.Unlock()
			return e, fmt.Errorf("%s complains while %v of %q is awaited: %s", a.name, kinds, ref, e.Text)
		}
		a.mu.Unlock()
		if ended {
			return event{}, fmt.Errorf("%s has ended instead of saying %v of %q", a.name, kinds, ref)
		}
		select {
		case <-changed:
		case <-timer.C:
			return event{}, fmt.Errorf("not within %v: %s says %v of %q; it has said %v", a.patience, a.name, kinds, ref, a.pending(""))
		}
	}
}

// pending says what was said of a ref and not taken yet.
func (a *agent) pending(ref string) []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.said[ref])
}

// leftover is what was said and not taken, but for news of waiting, and a complaint that a cancel came too late.
func (a *agent) leftover() []event {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []event
	for _, events := range a.said {
		for _, e := range events {
			if e.Event != "queued" && !(e.Event == "error" && a.raced) {
				out = append(out, e)
			}
		}
	}
	return out
}

func (a *agent) connect(addr string, grace time.Duration) error {
	if err := a.tell(command{"do": "connect", "addr": addr, "name": a.name, "grace": grace.Milliseconds()}); err != nil {
		return err
	}
	usual := a.patience
	defer func() { a.patience = usual }()
	a.patience *= 2 // it has a runtime to start, beside many others
	_, err := a.expect("", "connected")
	return err
}

// acquire sends a request and does not wait.
func (a *agent) acquire(r request) (*claim, error) {
	a.mu.Lock()
	a.last++
	ref := fmt.Sprintf("r%d", a.last)
	c := a.judge.asked(a.name, ref, r)
	a.claims[ref] = c
	a.mu.Unlock()
	m := command{"do": "acquire", "ref": ref, "keys": r.Keys}
	for k, v := range map[string]any{"mode": r.Mode, "max": r.Max, "ttl": r.TTL, "wait": r.Wait, "try": r.Try} {
		if v != "" && v != 0 && v != int64(0) && v != false {
			m[k] = v
		}
	}
	return c, a.tell(m)
}

// hold acquires, and waits for the grant.
func (a *agent) hold(r request) (*claim, event, error) {
	c, err := a.acquire(r)
	if err != nil {
		return c, event{}, err
	}
	e, err := a.expect(c.ref, "granted")
	if err == nil && e.SafeMS != nil && *e.SafeMS <= 0 {
		err = fmt.Errorf("%v was granted with %d ms left", c, *e.SafeMS)
	}
	return c, e, err
}

// queue acquires what must wait, and waits until it does, behind so many others.
func (a *agent) queue(r request, ahead int) (*claim, error) {
	c, err := a.acquire(r)
	if err != nil {
		return c, err
	}
	e, err := a.expect(c.ref, "queued")
	if err == nil && e.Position != ahead {
		err = fmt.Errorf("%v is queued behind %d, want %d", c, e.Position, ahead)
	}
	return c, err
}

// cancel takes a request back; its grant may cross that.
func (a *agent) cancel(c *claim) error {
	a.mu.Lock()
	a.raced = true
	a.mu.Unlock()
	return a.tell(command{"do": "cancel", "ref": c.ref})
}

// ask sends a command about a ref and waits for one of the answers.
func (a *agent) ask(do string, c *claim, kinds ...string) (event, error) {
	if err := a.tell(command{"do": do, "ref": c.ref}); err != nil {
		return event{}, err
	}
	return a.expect(c.ref, kinds...)
}

// release gives back what is held.
func (a *agent) release(c *claim) error {
	a.judge.ends(c)
	_, err := a.ask("release", c, "released")
	return err
}

// settle gives back what is held and was cancelled too, so that it may be gone already.
func (a *agent) settle(c *claim) error {
	a.judge.ends(c)
	e, err := a.ask("release", c, "released", "failed")
	if err == nil && e.Event == "failed" && e.Code != "not_held" && e.Code != "cancelled" && e.Code != "over" {
		err = fmt.Errorf("%v: the release says %q", c, e)
	}
	return err
}

// isSafe asks the agent to look at the clock.
func (a *agent) isSafe(c *claim) error {
	e, err := a.ask("check", c, "checked")
	if err == nil && !e.Safe {
		err = fmt.Errorf("%v is not safe to act on", c)
	}
	return err
}

// stops says that the process will be killed or frozen: nothing that it holds is certain any more.
func (a *agent) stops() {
	a.mu.Lock()
	claims := slices.Collect(maps.Values(a.claims))
	a.mu.Unlock()
	for _, c := range claims {
		a.judge.ends(c)
	}
}

func (a *agent) kill() error   { a.stops(); return a.process.Kill() }
func (a *agent) freeze() error { a.stops(); return a.process.Freeze() }

// finish sees the agent end by itself: told to, or by the end of its input.
func (a *agent) finish(told bool) error {
	a.stops()
	if told {
		if err := a.tell(command{"do": "close"}); err != nil {
			return err
		}
	} else {
		a.in.Close()
	}
	if _, err := a.expect("", "closed"); err != nil {
		return err
	}
	select {
	case <-a.process.Over():
	case <-time.After(a.patience):
		return fmt.Errorf("%s says that it has closed, and has not ended %v later", a.name, a.patience)
	}
	if state := a.process.State(); !state.Success() {
		return fmt.Errorf("%s has ended with %v", a.name, state)
	}
	return nil
}
