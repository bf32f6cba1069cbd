package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/lmxload"
	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

// npmFiles pin the npm package whose broker is the peer, with a hash of each of
// its parts.
//
//go:embed npm/package.json npm/package-lock.json
var npmFiles embed.FS

// npmAgent drives the package's client.
//
//go:embed npm/agent.js
var npmAgent []byte

// npmVersion is the version of live-mutex that they pin.
const npmVersion = "0.2.25"

// installNPM installs the package with its own client, once in a run, and runs
// no script of it.
func (e *env) installNPM(ctx context.Context) error {
	if e.npm != "" {
		return nil
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return leaveOut("%s is not installed (Debian packages nodejs and npm)", program)
		}
	}
	dir := filepath.Join(e.dir, "npm")
	if err := os.CopyFS(e.dir, npmFiles); err != nil {
		return fmt.Errorf("npm: %w", err)
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	install.Dir = dir
	if text, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci, for live-mutex %s: %w: %s", npmVersion, err, text)
	}
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version: %w", err)
	}
	e.npm, e.node = dir, strings.TrimSpace(string(version))
	return nil
}

// lmxBroker is a broker of the live-mutex protocol: ours, or the npm package's.
type lmxBroker struct {
	name, setting string
	process       *process.Process
	addr          string
	ours          *broker // nil for the npm package's
}

func (b *lmxBroker) String() string { return b.name }

// lmxOurs starts our broker, which serves the dialect on its usual port.
func (e *env) lmxOurs(ctx context.Context, name string) (*lmxBroker, error) {
	b, err := e.startBroker(ctx, false)
	if err != nil {
		return nil, err
	}
	return &lmxBroker{name: name, setting: "latchkey serve, memory", process: b.process, addr: b.addr, ours: b}, nil
}

// lmxNPM starts the npm package's broker by its own launcher. It prints a lot,
// and waits while it prints, so that goes to the null device.
func (e *env) lmxNPM(ctx context.Context, name string) (*lmxBroker, error) {
	if err := e.installNPM(ctx); err != nil {
		return nil, err
	}
	addr, port, err := npmAddr()
	if err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	p, err := e.start(ctx, process.Command{
		Name: "live-mutex broker", Program: node, Quiet: true, Env: []string{"lmx_debug=no"}, Ready: process.Listening(addr),
		Args: []string{
			filepath.Join(e.npm, "node_modules", "live-mutex", "dist", "lm-start-server.js"),
			"--json", fmt.Sprintf(`{"host":"127.0.0.1","port":%d}`, port),
		},
	})
	if err != nil {
		return nil, err
	}
	return &lmxBroker{name: name, setting: "live-mutex " + npmVersion + " of npm, node " + e.node + ", its output thrown away", process: p, addr: addr}, nil
}

// npmAddr finds a free loopback address with a port that the package accepts.
func npmAddr() (string, int, error) {
	for range 1000 {
		addr, err := process.FreeAddr()
		if err != nil {
			return "", 0, err
		}
		_, text, _ := net.SplitHostPort(addr)
		port, err := strconv.Atoi(text)
		if err == nil && port > 1024 && port < 49152 {
			return addr, port, nil
		}
	}
	return "", 0, errors.New("npm: no free port below 49152, which is all that live-mutex accepts")
}

// lmxLoad is what an arm asks of its broker.
type lmxLoad struct {
	connections int
	keys        int // of each connection; one that all share in a contest
	contest     bool
	held        int // keys that another connection holds meanwhile
}

func (l lmxLoad) String() string {
	what := fmt.Sprintf("%s, %s in flight on each, a key each", plural(l.connections, "connection"), plural(l.keys, "pair"))
	if l.contest {
		what = fmt.Sprintf("%s, one key", plural(l.connections, "connection"))
	}
	if l.held > 0 {
		what += fmt.Sprintf(", %d other keys held over another connection", l.held)
	}
	return what
}

// lmxRun is a load on a broker.
type lmxRun struct {
	broker *lmxBroker
	load   lmxLoad
	conns  []*lmxload.Conn
	free   *lmxload.Conn   // asks for the keys between the rounds
	held   []*lmxload.Conn // ask, one in each round, for some of the held keys
	round  int
	grants []int // of each connection, over all rounds
	before lease.Stats
}

const (
	lmxHeldKey = "lmx:held:%06d"
	lmxSample  = 64 // held keys that are asked for after a round
)

// lmxArm connects to a broker and makes an arm of the load.
func (e *env) lmxArm(ctx context.Context, b *lmxBroker, l lmxLoad) (*lmxRun, rounds.Arm, error) {
	r := &lmxRun{broker: b, load: l, grants: make([]int, l.connections)}
	o := lmxload.Options{TTL: ttl, Tokens: b.ours != nil}
	plain := o
	if l.contest {
		o.Contest = new(answers.Section)
	}
	var all []string
	for i := range l.connections {
		var keys []string
		for j := range l.keys {
			keys = append(keys, fmt.Sprintf("lmx:caller:%02d", i*l.keys+j))
		}
		if l.contest {
			keys = []string{"lmx:contended"}
			all = nil
		}
		all = append(all, keys...)
		c, err := e.lmxDial(b, keys, o)
		if err != nil {
			return nil, rounds.Arm{}, err
		}
		r.conns = append(r.conns, c)
	}
	if err := r.hold(ctx, e); err != nil {
		return nil, rounds.Arm{}, err
	}
	var err error
	if r.free, err = e.lmxDial(b, all, plain); err != nil {
		return nil, rounds.Arm{}, err
	}
	if b.ours != nil {
		if r.before, err = b.ours.service.Stats(ctx); err != nil {
			return nil, rounds.Arm{}, err
		}
	}
	return r, rounds.Arm{
		Name: b.name, Setting: fmt.Sprintf("%v, %s", l, b.setting), PIDs: []int{b.process.PID()},
		Run: r.run, Check: r.check,
	}, nil
}

func (e *env) lmxDial(b *lmxBroker, keys []string, o lmxload.Options) (*lmxload.Conn, error) {
	c, err := lmxload.Dial(b.addr, keys, o)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b, err)
	}
	e.later(c.Close)
	return c, nil
}

// hold takes the keys that are to be held, and keeps them until the row ends.
func (r *lmxRun) hold(ctx context.Context, e *env) error {
	if r.load.held == 0 {
		return nil
	}
	var keys []string
	for i := range r.load.held {
		keys = append(keys, fmt.Sprintf(lmxHeldKey, i))
	}
	c, err := e.lmxDial(r.broker, keys, lmxload.Options{})
	if err != nil {
		return err
	}
	if err := c.Take(ctx); err != nil {
		return fmt.Errorf("%v: %w", r.broker, err)
	}
	// The npm broker takes a minute and more over the locks of a connection that
	// closes, so they are given back one by one.
	e.later(func() error { return c.Drop(context.WithoutCancel(ctx)) })
	for from := 0; from+lmxSample <= len(keys); from += max(lmxSample, len(keys)/10) {
		s, err := e.lmxDial(r.broker, keys[from:from+lmxSample], lmxload.Options{})
		if err != nil {
			return err
		}
		r.held = append(r.held, s)
	}
	return nil
}

func (r *lmxRun) run(ctx context.Context, d time.Duration) (rounds.Sample, error) {
	s, err := lmxload.Run(ctx, r.conns, d)
	for i, c := range r.conns {
		r.grants[i] += c.Pairs()
	}
	return s, err
}

// check judges the broker between rounds: every key of the load is free, those
// that are held are still held, and where it counts, it counted what was done.
func (r *lmxRun) check(ctx context.Context, s *rounds.Sample) error {
	free, err := lmxload.Run(ctx, []*lmxload.Conn{r.free}, 0)
	if err != nil {
		return fmt.Errorf("a key is not free after the round: %w", err)
	}
	if len(r.held) > 0 {
		r.round++
		if err := r.held[r.round%len(r.held)].Held(ctx); err != nil {
			return fmt.Errorf("a key is not held any more after the round: %w", err)
		}
	}
	if r.broker.ours == nil {
		return nil
	}
	now, err := r.broker.ours.service.Stats(ctx)
	if err != nil {
		return err
	}
	before := r.before
	r.before = now
	if now.Failed != "" || now.Waiters != 0 {
		return rounds.Wrong("after the round %d requests wait; failure: %q", now.Waiters, now.Failed)
	}
	return tallyOf(now).Since(tallyOf(before), s.Ops+free.Ops)
}
