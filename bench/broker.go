package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

const module = "github.com/latchkey-go/latchkey"

// buildBroker builds the binary that users run, unless one was given.
func (e *env) buildBroker(ctx context.Context) error {
	if e.broker != "" {
		path, err := filepath.Abs(e.broker)
		e.broker = path
		return err
	}
	root, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	e.broker = filepath.Join(e.dir, "latchkey")
	build := exec.CommandContext(ctx, "go", "build", "-o", e.broker, "./cmd/latchkey")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the broker: %w: %s", err, text)
	}
	return nil
}

// moduleDir is where the module under measurement is.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s (run this in the folder bench): %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// broker is a running latchkey serve.
type broker struct {
	process *process.Process
	addr    string
	data    string // its folder, empty in memory
	service *leaseremote.Service
}

// startBroker starts a broker on a free port and connects to it. With durable it
// has a folder, and the default policy of syncing before every answer.
func (e *env) startBroker(ctx context.Context, durable bool, environment ...string) (*broker, error) {
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	b := &broker{addr: addr}
	c := process.Command{
		Name: "latchkey serve", Program: e.broker, Env: environment, Ready: process.Listening(addr),
		Args: []string{"serve", "--listen", addr, "--http", ""},
	}
	if durable {
		if b.data, err = os.MkdirTemp(e.dir, "data-"); err != nil {
			return nil, err
		}
		c.Args = append(c.Args, "--data", b.data, "--fsync", "always")
	}
	if e.profile != "" {
		e.brokers++
		c.Program, c.Args = e.self, []string{childMode, "broker", addr, b.data, e.profilePath(fmt.Sprintf("broker-%d", e.brokers))}
	}
	if b.process, err = e.start(ctx, c); err != nil {
		return nil, err
	}
	if b.service, err = leaseremote.Dial(ctx, addr, leaseremote.Options{}); err != nil {
		return nil, err
	}
	e.later(b.service.Close)
	return b, b.verify(ctx, durable)
}

// verify asks the broker whether it is as durable as the row says.
func (b *broker) verify(ctx context.Context, durable bool) error {
	s, err := b.service.Stats(ctx)
	if err != nil {
		return err
	}
	want := "memory"
	if durable {
		want = "always"
	}
	if s.Durability != want {
		return rounds.Wrong("the broker says that its durability is %q, not %q", s.Durability, want)
	}
	return nil
}

// durability is how settings describe it.
func (b *broker) durability() string {
	if b.data == "" {
		return "memory"
	}
	return "fsync always"
}

func tallyOf(s lease.Stats) answers.Tally {
	return answers.Tally{Granted: s.Granted, Released: s.Released, Held: s.Holds}
}

// lockers are callers that lock and unlock a key of their own, all through one
// client and so over one connection.
type lockers struct {
	broker *broker
	client *lease.Client
	keys   []string
	tokens []answers.Rising
	before lease.Stats
}

func (b *broker) lockers(ctx context.Context, e *env, callers int) (*lockers, error) {
	c, err := b.connect(ctx, e)
	if err != nil {
		return nil, err
	}
	l := &lockers{broker: b, client: c, tokens: make([]answers.Rising, callers)}
	for i := range callers {
		l.keys = append(l.keys, fmt.Sprintf("bench:caller:%02d", i))
	}
	l.before, err = b.service.Stats(ctx)
	return l, err
}

func (b *broker) connect(ctx context.Context, e *env) (*lease.Client, error) {
	c, err := lease.Connect(ctx, b.service, lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: "bench"}})
	if err != nil {
		return nil, err
	}
	e.later(func() error { return c.Close(context.WithoutCancel(ctx)) })
	return c, nil
}

// pair acquires and releases the caller's key.
func (l *lockers) pair(ctx context.Context, caller int) error {
	got, err := l.client.Acquire(ctx, lease.Request{Keys: l.keys[caller : caller+1], TTL: ttl})
	if err != nil {
		return err
	}
	if err := l.judge(caller, got); err != nil {
		return err
	}
	gone, err := l.client.Release(ctx, got.ID)
	if err != nil {
		return err
	}
	if len(gone.Holds) != 1 || gone.Holds[0] != got.Holds[0] {
		return rounds.Wrong("released %v of a lease on %v", gone.Holds, got.Holds)
	}
	return nil
}

func (l *lockers) judge(caller int, got lease.Lease) error {
	if len(got.Holds) != 1 || got.Holds[0].Key != l.keys[caller] {
		return rounds.Wrong("asked for %q and got %v", l.keys[caller], got.Holds)
	}
	return l.tokens[caller].Next(uint64(got.Token()))
}

// arm makes the arm of these callers. The journal's figures come with it.
func (l *lockers) arm(name, note string) rounds.Arm {
	return rounds.Arm{
		Name:    name,
		Setting: fmt.Sprintf("%s, 1 connection, %s%s", plural(len(l.keys), "caller"), l.broker.durability(), note),
		PIDs:    []int{l.broker.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, len(l.keys), d, l.pair)
		},
		Check: l.check,
	}
}

func (l *lockers) check(ctx context.Context, s *rounds.Sample) error {
	now, err := l.broker.service.Stats(ctx)
	if err != nil {
		return err
	}
	before := l.before
	l.before = now
	if now.Failed != "" {
		return rounds.Wrong("the broker failed: %s", now.Failed)
	}
	s.Facts = journalFacts(before, now, s.Ops)
	return tallyOf(now).Since(tallyOf(before), s.Ops)
}

const (
	syncsPerPair   = "syncs a pair"
	recordsPerSync = "records a sync"
)

// journalFacts are what a round cost the journal; nothing in memory.
func journalFacts(before, now lease.Stats, ops int) map[string]float64 {
	syncs := now.JournalSyncs - before.JournalSyncs
	if syncs == 0 || ops == 0 {
		return nil
	}
	facts := map[string]float64{
		syncsPerPair:   float64(syncs) / float64(ops),
		recordsPerSync: float64(now.JournalRecords-before.JournalRecords) / float64(syncs),
	}
	if n := now.Sync.Count - before.Sync.Count; n > 0 {
		facts["mean µs of a sync"] = float64((now.Sync.Sum-before.Sync.Sum)/time.Duration(n)) / float64(time.Microsecond)
	}
	return facts
}

// brokerMutex is one contender: a client of its own, and so a connection and a
// session of its own, as if it were another process.
type brokerMutex struct {
	client *lease.Client
	key    []string
	id     string
}

func (m *brokerMutex) Lock(ctx context.Context) (uint64, error) {
	l, err := m.client.Acquire(ctx, lease.Request{Keys: m.key, TTL: ttl})
	if err != nil {
		return 0, err
	}
	m.id = l.ID
	return uint64(l.Token()), nil
}

func (m *brokerMutex) Unlock(ctx context.Context) error {
	_, err := m.client.Release(ctx, m.id)
	return err
}

// contest makes the contest of the contended rows on this broker.
func (b *broker) contest(ctx context.Context, e *env, name string) (*contest, error) {
	c := &contest{name: name, setting: fmt.Sprintf("a connection and session each, %s", b.durability()), pids: []int{b.process.PID()}}
	for range waiters {
		client, err := b.connect(ctx, e)
		if err != nil {
			return nil, err
		}
		c.contenders = append(c.contenders, &brokerMutex{client: client, key: []string{"bench:contended"}})
	}
	before, err := b.service.Stats(ctx)
	c.agrees = func(ctx context.Context, s *rounds.Sample, grants int) error {
		now, err := b.service.Stats(ctx)
		if err != nil {
			return err
		}
		was := before
		before = now
		maps.Copy(s.Facts, journalFacts(was, now, grants))
		return tallyOf(now).Since(tallyOf(was), grants)
	}
	return c, err
}
