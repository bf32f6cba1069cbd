package sim

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// The policies.
const (
	Ours   = "ours"   // package hotcache
	Source = "source" // the rules of a cache written by hand, as which it is shown
)

// Config is one run. Begin with [Defaults]: not every zero is a world.
type Config struct {
	Policy string
	Seed   uint64

	// The work. Keys are drawn with a chance that falls as rank^-Skew; reads come at Rate a second, at random moments.
	// After WriteEvery reads one key, drawn the same way, is written; WriteRate is so many a second besides.
	Servers    int
	Keys       int
	Skew       float64
	Reads      int
	Rate       float64
	WriteEvery int
	WriteRate  float64
	// Trace opens a file of reads and writes that is the work instead; TraceName is what errors call it. See [Config.Rate]
	// for traces without times.
	Trace     func() (io.ReadCloser, error)
	TraceName string

	// The nodes: how many, how many things each does at a time, how long one takes, and what it keeps.
	Nodes       int
	Capacity    int
	Service     time.Duration
	NodeEntries int // 0 is no bound that matters
	VNodes      int // of the ring of the policy source

	// The cache. Window is of "ours"; a server of "source" closes its window after WindowReads reads of its own, 0 for
	// as many as it makes in a Window.
	TTL         time.Duration
	Replicate   bool
	Copies      int
	Counters    int
	HotShare    float64
	Window      time.Duration
	WindowReads int
	L1          bool
	L1TTL       time.Duration
	L1Entries   int
	Trust       time.Duration // of "ours": how long memory is trusted after a proof

	// What lies between: one way over the network, a load from the database, and how far the replica is behind.
	Network    time.Duration
	Load       time.Duration
	Lag        time.Duration
	ValueBytes int

	Faults []Fault

	// Progress is told now and then how many reads there were, and of how many, 0 for unknown. Nil is told nothing.
	Progress func(done, total int)
}

// Defaults returns a world that is busy and takes a few seconds.
func Defaults() Config {
	return Config{
		Policy: Ours, Seed: 1,
		Servers: 8, Keys: 50_000, Skew: 0.99, Reads: 200_000, Rate: 50_000, WriteEvery: 100,
		Nodes: 16, Capacity: 1, Service: 50 * time.Microsecond, VNodes: 128,
		TTL: time.Hour, Replicate: true, Copies: 8, Counters: 1024, HotShare: 0.002, Window: time.Second,
		L1: true, L1TTL: time.Second, L1Entries: 10_000, Trust: core.DefaultSettings().Trust,
		Network: 100 * time.Microsecond, Load: 5 * time.Millisecond, ValueBytes: 256,
	}
}

// A ConfigError says which setting is wrong. Setting is the name of the flag that has it.
type ConfigError struct {
	Setting, Why string
}

// Error says what is wrong with which setting.
func (e *ConfigError) Error() string { return "sim: " + e.Setting + " " + e.Why }

// Limits of a run: what is larger would take more memory or time than anybody means to give.
const (
	MaxReads   = 1 << 30
	MaxKeys    = 10_000_000
	MaxServers = 1024
	MaxNodes   = 1024
)

// Check tells what is wrong with the settings, by a [ConfigError].
func (c *Config) Check() error {
	for _, check := range []func() error{c.checkNumbers, c.checkShares, c.checkTimes, c.checkFaults} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) checkNumbers() error {
	if c.Policy != Ours && c.Policy != Source {
		return &ConfigError{"policy", fmt.Sprintf("%q is neither %s nor %s", c.Policy, Ours, Source)}
	}
	for _, n := range []struct {
		name            string
		is, least, most int
	}{
		{"servers", c.Servers, 1, MaxServers}, {"nodes", c.Nodes, 1, MaxNodes}, {"keys", c.Keys, 1, MaxKeys},
		{"reads", c.Reads, 1, MaxReads}, {"write-every", c.WriteEvery, 0, MaxReads}, {"capacity", c.Capacity, 1, 1024},
		{"node-entries", c.NodeEntries, 0, MaxKeys}, {"vnodes", c.VNodes, 1, 4096}, {"copies", c.Copies, 1, MaxNodes},
		{"counters", c.Counters, 1, 1 << 20}, {"window-reads", c.WindowReads, 0, MaxReads},
		{"l1-entries", c.L1Entries, 1, MaxKeys}, {"value-bytes", c.ValueBytes, 0, 8 << 20},
	} {
		switch {
		case n.is < n.least:
			return &ConfigError{n.name, fmt.Sprintf("%d is too small, the least is %d", n.is, n.least)}
		case n.is > n.most:
			return &ConfigError{n.name, fmt.Sprintf("%d is too large, the limit is %d", n.is, n.most)}
		}
	}
	if c.Servers*c.Nodes > 1<<16 {
		return &ConfigError{"servers", fmt.Sprintf("%d times %d nodes are more links than %d", c.Servers, c.Nodes, 1<<16)}
	}
	return nil
}

func (c *Config) checkShares() error {
	within := func(x, least, most float64) bool { return x >= least && x <= most && !math.IsNaN(x) }
	switch {
	case !within(c.Skew, 0, 5):
		return &ConfigError{"skew", fmt.Sprintf("%v is not from 0 to 5", c.Skew)}
	case !within(c.Rate, 1, 1e7):
		return &ConfigError{"rate", fmt.Sprintf("%v reads a second is not from 1 to 10 million", c.Rate)}
	case !within(c.WriteRate, 0, 1e7):
		return &ConfigError{"write-rate", fmt.Sprintf("%v writes a second is not from 0 to 10 million", c.WriteRate)}
	case !within(c.HotShare, 0.0001, 0.99):
		return &ConfigError{"hot-share", fmt.Sprintf("%v is not a share from 0.0001 to 0.99", c.HotShare)}
	}
	return nil
}

func (c *Config) checkTimes() error {
	const day = 24 * time.Hour
	for _, d := range []struct {
		name            string
		is, least, most time.Duration
	}{
		{"service", c.Service, time.Microsecond, time.Second}, {"ttl", c.TTL, time.Millisecond, 365 * day},
		{"window", c.Window, 50 * time.Millisecond, time.Hour}, {"l1-ttl", c.L1TTL, time.Millisecond, 365 * day},
		{"trust", c.Trust, 20 * time.Millisecond, time.Minute}, {"network", c.Network, time.Microsecond, time.Second},
		{"load", c.Load, time.Microsecond, 10 * time.Second}, {"lag", c.Lag, 0, 30 * time.Second},
	} {
		switch {
		case d.is < d.least:
			return &ConfigError{d.name, fmt.Sprintf("%v is too short, the least is %v", d.is, d.least)}
		case d.is > d.most:
			return &ConfigError{d.name, fmt.Sprintf("%v is too long, the limit is %v", d.is, d.most)}
		}
	}
	if c.Network > c.Trust/8 {
		return &ConfigError{"network", fmt.Sprintf("%v one way is more than an eighth of --trust %v, so memory could never be trusted",
			c.Network, c.Trust)}
	}
	return nil
}

func (c *Config) checkFaults() error {
	for _, f := range c.Faults {
		switch {
		case f.Kind == NodeLoss || f.Kind == NodeAway:
			if f.Which >= c.Nodes {
				return &ConfigError{"fault", fmt.Sprintf("%v: nodes are 0 to %d", f, c.Nodes-1)}
			}
		case f.Kind == Cut && f.Which >= c.Servers:
			return &ConfigError{"fault", fmt.Sprintf("%v: servers are 0 to %d", f, c.Servers-1)}
		}
	}
	return nil
}

// windowReads is after how many reads of its own a server of the policy source closes its window.
func (c *Config) windowReads() int {
	switch {
	case c.WindowReads > 0:
		return c.WindowReads
	case c.Trace != nil:
		return 10_000
	}
	return max(1, int(c.Rate*c.Window.Seconds()/float64(c.Servers)))
}

// longestLag is how far the replica is behind at most.
func (c *Config) longestLag() time.Duration {
	lag := c.Lag
	for _, f := range c.Faults {
		if f.Kind == Lag {
			lag = max(lag, f.Much)
		}
	}
	return lag
}

func (c Config) clone() Config {
	c.Faults = slices.Clone(c.Faults)
	return c
}
