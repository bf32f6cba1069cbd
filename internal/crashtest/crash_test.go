//go:build linux

package crashtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// run is one broker over many lives, and the clients that load it.
type run struct {
	t       *testing.T
	dir     string // diaries
	b       *broker
	own     *diary // of this process
	clients []*client
	frail   *client // short leases and a short grace; it is killed and frozen
	frails  int
	seed    uint64
	ttl     time.Duration
}

// startRun starts a broker and its clients.
func startRun(t *testing.T, seed uint64, args ...string) *run {
	t.Helper()
	r := &run{t: t, dir: t.ArtifactDir(), seed: seed, ttl: 250 * time.Millisecond, b: startBroker(t, args...)}
	var err error
	if r.own, err = openDiary(filepath.Join(r.dir, "broker.jsonl")); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r.clients = append(r.clients, startClient(t, r.dir, clientConfig{Addr: r.b.addr, Name: fmt.Sprint("client", i), Seed: seed + uint64(i),
			Grace: 20 * time.Second, TTL: r.ttl, Keeper: true}))
	}
	r.startFrail()
	for _, c := range r.clients {
		r.connected(c, clientWorkers+1)
	}
	return r
}

func (r *run) startFrail() {
	r.frails++
	r.frail = startClient(r.t, r.dir, clientConfig{Addr: r.b.addr, Name: fmt.Sprint("frail", r.frails), Seed: r.seed + uint64(100*r.frails),
		Grace: r.ttl, TTL: r.ttl})
	r.connected(r.frail, clientWorkers)
}

// connected waits until a client has all its sessions: it cannot begin while the broker is away.
func (r *run) connected(c *client, sessions int) {
	r.t.Helper()
	eventually(r.t, c.o.Name+" has its sessions", func() bool { return r.seen(c, connected, 0) == sessions })
}

// entries reads all diaries.
func (r *run) entries() []entry {
	r.t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.dir, "*.jsonl"))
	if err != nil {
		r.t.Fatal(err)
	}
	all, err := readDiaries(paths)
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// seen counts the entries of a kind in the diary of a client since a time.
func (r *run) seen(c *client, what string, since int64) int {
	n := 0
	all, err := readDiaries([]string{c.o.Diary})
	if errors.Is(err, os.ErrNotExist) {
		return 0 // it has just been started
	}
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range all {
		if e.What == what && e.At > since {
			n++
		}
	}
	return n
}

// underLoad waits until every client has been granted leases since a time, so that it has come back and goes on.
func (r *run) underLoad(since int64, clients ...*client) {
	r.t.Helper()
	for _, c := range clients {
		eventually(r.t, c.o.Name+" is granted leases", func() bool { return r.seen(c, got, since) >= 4 })
	}
}

// look writes down what the broker says is held.
func (r *run) look() {
	r.t.Helper()
	from := clock()
	keys := r.b.list()
	e := entry{What: listed, From: from}
	for _, k := range keys {
		for _, h := range k.Holders {
			e.Held = append(e.Held, lease.Hold{Key: k.Key, Token: h.Token})
		}
	}
	r.own.write(e)
}

// round kills the broker once, under load, and sees to it that all go on.
func (r *run) round(rng *rand.Rand) {
	r.t.Helper()
	r.b.kill()
	died := r.own.write(entry{What: killed})
	if rng.IntN(2) == 0 {
		pause(r.t.Context(), time.Duration(rng.Int64N(int64(r.ttl)))) // it is away for longer
	}
	r.b.start()
	r.look()
	r.underLoad(died, append(r.clients, r.frail)...)
	r.look()
}

// fail kills or freezes the frail client.
func (r *run) fail(rng *rand.Rand) {
	r.t.Helper()
	if rng.IntN(2) == 0 {
		r.frail.kill()
		r.startFrail()
		return
	}
	r.signal(syscall.SIGSTOP)
	name := r.frail.o.Name + "/"
	eventually(r.t, "the leases of a frozen client end", func() bool {
		return !slices.ContainsFunc(r.b.list(), func(k lease.KeyInfo) bool {
			return slices.ContainsFunc(k.Holders, func(h lease.Holder) bool { return strings.HasPrefix(h.Session, name) })
		})
	})
	r.signal(syscall.SIGCONT)
}

func (r *run) signal(s os.Signal) {
	r.t.Helper()
	if err := r.frail.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// finish lets the clients end and waits until nothing of theirs is left.
func (r *run) finish() {
	r.t.Helper()
	for _, c := range append(r.clients, r.frail) {
		c.finish()
	}
	eventually(r.t, "nothing of the clients is held or waited for", func() bool {
		return !slices.ContainsFunc(r.b.list(), func(k lease.KeyInfo) bool { return strings.Contains(k.Key, "/") })
	})
}

// A durable broker is killed again and again under load, together with clients that are killed and frozen: no token is
// repeated or lowered, no lease that was acknowledged is lost before its time, nobody else has it meanwhile, and clients
// come back and go on, under every policy: a killed process loses nothing that the system has.
func TestKilledBroker(t *testing.T) {
	rounds := 5
	if soak() {
		rounds = 50
	}
	for _, policy := range []string{"always", "interval", "never"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64() >> 1
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			r := startRun(t, seed, "--data", t.TempDir(), "--fsync", policy)
			judged := r.alsoJudged(seed, rounds)
			r.underLoad(0, append(r.clients, r.frail)...)
			for range rounds {
				r.fail(rng)
				r.round(rng)
			}
			judged()
			r.finish()

			all := r.entries()
			c := check(all)
			for _, w := range c.wrong {
				t.Error(w)
			}
			if c.listed < 2*rounds || c.spanned < rounds || c.expired == 0 {
				t.Errorf("%d holds looked for, %d that outlived a broker, %d that expired: that proves little", c.listed, c.spanned, c.expired)
			}
			h := asHistory(all)
			if err := h.Check(); err != nil {
				t.Errorf("what the clients saw: %v", err)
				r.keep("clients", h)
			}
			t.Logf("%d grants, %d holds looked for, %d that outlived a broker, %d that expired, %d clients killed; %d operations judged",
				len(c.order), c.listed, c.spanned, c.expired, r.frails-1, len(h.Ops))
			if !t.Failed() {
				plant(t, all)
			}
		})
	}
}

// alsoJudged runs more traffic from this process, of every kind that there is, on keys of its own. The function that it
// returns waits for its end and judges what it saw.
func (r *run) alsoJudged(seed uint64, rounds int) func() {
	svc := r.b.dial()
	rec := history.Record(svc)
	rec.CutOff()
	done := make(chan error, 1)
	go func() {
		// The steps last about as long as the rounds.
		done <- history.Drive(r.t.Context(), rec, history.Load{Seed: seed, Clients: 4, Keys: 6, Steps: 16 * rounds, Pace: 40 * time.Millisecond,
			Grace: 10 * time.Second})
	}()
	return func() {
		if err := <-done; err != nil {
			r.t.Error(err)
		}
		h := rec.History()
		if err := h.Check(); err != nil {
			r.t.Errorf("what this process saw: %v", err)
			r.keep("history", h)
		}
		r.t.Logf("%d operations of all kinds judged", len(h.Ops))
		if err := svc.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// keep leaves a history that was rejected beside the diaries, for go test -artifacts.
func (r *run) keep(name string, h history.History) {
	var text strings.Builder
	for i := range h.Ops {
		fmt.Fprintln(&text, &h.Ops[i])
	}
	if err := os.WriteFile(filepath.Join(r.dir, name+".txt"), []byte(text.String()), 0o600); err != nil {
		r.t.Error(err)
	}
}

// A broker that keeps nothing is the planted defect of the whole arrangement: the checker sees what it forgets.
func TestForgetfulBrokerIsSeen(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64() >> 1
	r := startRun(t, seed)
	r.underLoad(0, r.clients...)
	eventually(t, "the keys that are kept for long are held", func() bool {
		return slices.ContainsFunc(r.b.list(), func(k lease.KeyInfo) bool { return strings.HasPrefix(k.Key, "own/") })
	})
	r.round(rand.New(rand.NewPCG(seed, 0)))
	r.finish()
	c := check(r.entries())
	for _, kind := range []string{"missing", "lost"} {
		if !slices.ContainsFunc(c.wrong, func(w string) bool { return strings.HasPrefix(w, kind+":") }) {
			t.Errorf("seed %d: the checker does not call anything %s; it says %q", seed, kind, c.wrong)
		}
	}
}
