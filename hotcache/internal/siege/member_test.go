//go:build unix

package siege

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
	"github.com/latchkey-go/latchkey/internal/proctest"
)

// A member says how a process takes part.
type member struct {
	Slot     int
	Redis    []string // addresses, by node
	Database string
	Ledger   string
	Seed     uint64
	Trust    time.Duration // the same for all
	Pause    time.Duration // of a writer, at most
}

// A row is what the cache keeps. The text says of what version it is, so that no version can be read with the data of
// another.
type row struct {
	Version uint64
	Text    string
}

func textOf(key int64, version uint64) string { return fmt.Sprintf("%d at %d", key, version) }

// floorTTL is short, so that nodes which have lost their floors trust the replica again within the siege; the replica is
// used only while it is no further behind than maxLag.
const (
	floorTTL = 2 * time.Second
	maxLag   = 500 * time.Millisecond
	patience = 15 * time.Second // of a read or a write
)

func rules() hotcache.Rules { return hotcache.Rules{FloorTTL: floorTTL} }

// A process reads and writes.
type process struct {
	member
	ledger *ledger
	db     *pgxpool.Pool
	nodes  []*hotcacheredis.Node
	cache  *hotcache.Cache[int64, row]
	topic  *outbox.Topic[int64]

	fate    atomic.Pointer[string] // where it is to die; nil is nowhere
	loading atomic.Int64

	life, working       context.Context
	end, rest           context.CancelFunc
	readers, writers    sync.WaitGroup
	relayed, collecting sync.WaitGroup
	relayErr            error
}

// play is the part of a process. It reads and writes at once, and does as it is told: "die commit", "die load"; "calm"
// ends the writing; "verify" has it read everything; "stop" ends it.
func play(stage *proctest.Stage, args []string) error {
	p := &process{}
	if err := json.Unmarshal([]byte(args[0]), &p.member); err != nil {
		return err
	}
	stage.Say("begun")
	if err := p.begin(); err != nil {
		return err
	}
	for {
		line, err := stage.Hear()
		if err != nil {
			return nil // the test is over
		}
		switch line {
		case "die commit", "die load":
			p.fate.Store(&line)
		case "calm":
			p.rest()
			p.writers.Wait()
			stage.Say("calm")
		case "verify":
			stage.Say(p.verify())
		case "stop":
			if err := p.stop(); err != nil {
				return err
			}
			stage.Say("stopped")
			return nil
		}
	}
}

// begin opens everything and starts the work.
func (p *process) begin() (err error) {
	if p.ledger, err = openLedger(p.Ledger); err != nil {
		return err
	}
	p.ledger.count("lives", 1)
	p.life, p.end = context.WithCancel(context.Background())
	p.working, p.rest = context.WithCancel(p.life)
	if p.db, err = pgxpool.New(p.life, p.Database); err != nil {
		return err
	}
	var named []hotcache.NamedNode
	for i, addr := range p.Redis {
		node := p.open(addr)
		p.nodes = append(p.nodes, node)
		named = append(named, hotcache.NamedNode{Name: fmt.Sprint("node", i), Node: node})
	}
	o := hotcache.Options[int64, row]{
		Nodes: named, Rules: rules(), TTL: 3 * time.Second, NegativeTTL: 2 * time.Second, StaleWhile: time.Second, StaleOnError: time.Second,
		NodeTimeout: 300 * time.Millisecond, LoadTimeout: 1500 * time.Millisecond, MaxDirectLoads: maxDirect, FirstPause: 20 * time.Millisecond,
		LastPause: 200 * time.Millisecond, BreakFor: 100 * time.Millisecond, HotShare: 0.05,
		MemoryEntries: 1000, Trust: p.Trust,
	}
	if p.Slot%2 == 1 {
		o.StaleWhile = 0 // so that it depends on the load
	}
	if p.Slot == slots-1 {
		o.MemoryEntries = -1 // so that copies are read much
	}
	if p.cache, err = hotcache.New(p.load, o); err != nil {
		return err
	}
	if p.topic, err = outbox.NewTopic("rows", teller{p}, outbox.Options[int64]{Grace: 300 * time.Millisecond}); err != nil {
		return err
	}
	relay, err := outbox.NewRelay(outbox.RelayOptions{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, p.Database) },
		Targets: []outbox.Target{relayTarget{p.topic, p}}, Poll: 100 * time.Millisecond, Timeout: 2 * time.Second, LastPause: 500 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	p.relayed.Go(func() { p.relayErr = relay.Run(p.life) })
	p.collecting.Go(p.collect)
	for i := range 4 {
		p.readers.Go(func() { p.readOn(rand.New(rand.NewPCG(p.Seed, uint64(i)))) })
	}
	for i := range 2 {
		p.writers.Go(func() { p.writeOn(rand.New(rand.NewPCG(p.Seed, uint64(100+i)))) })
	}
	return nil
}

// open opens a node; it may be out.
func (p *process) open(addr string) *hotcacheredis.Node {
	for {
		n, err := hotcacheredis.Open(p.life, "redis://"+addr, hotcacheredis.Options{
			Rules: rules(), Timeout: 300 * time.Millisecond, Heartbeat: 200 * time.Millisecond, Pong: 300 * time.Millisecond,
		})
		if err == nil {
			return n
		}
		<-time.After(10 * time.Millisecond) // until it is there
	}
}

// dies ends the process if it is to end here.
func (p *process) dies(at string) {
	if fate := p.fate.Load(); fate == nil || *fate != "die "+at {
		return
	}
	p.ledger.count("died at "+at, 1)
	p.ledger.dead(p.Slot).Store(1)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// collect adds what the cache counts to the ledger, often, since the process may be killed.
func (p *process) collect() {
	was := map[string]uint64{}
	for done := false; !done; {
		select {
		case <-p.life.Done():
			done = true
		case <-time.After(50 * time.Millisecond):
		}
		s := p.cache.Stats()
		now := map[string]uint64{
			"by refused lease": s.RefusedLease, "by refused floor": s.RefusedFloor, "by losses": s.Losses, "by dropped": s.Dropped,
			"by invalidations": s.Invalidations,
		}
		for outcome, n := range s.Reads {
			now["by "+outcome] = n
		}
		for name, n := range now {
			if p.ledger.counts[name] != nil {
				p.ledger.count(name, n-was[name])
			}
		}
		was = now
		rise(p.ledger.counts["by hot keys"], uint64(s.HotKeys))
	}
}

// stop ends everything, and sees that nothing of it is left.
func (p *process) stop() error {
	p.end()
	p.writers.Wait()
	p.readers.Wait()
	p.relayed.Wait()
	p.collecting.Wait()
	p.cache.Close()
	for _, n := range p.nodes {
		n.Close()
	}
	p.db.Close()
	if err := goleak.Find(); err != nil {
		p.ledger.complain(p.Slot, "goroutines are left: %v", err)
	}
	return errors.Join(p.relayErr, p.ledger.close())
}
