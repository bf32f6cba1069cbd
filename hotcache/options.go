package hotcache

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// Limits of every cache.
const (
	// MaxKey is the length of an encoded key in bytes: it is part of every message about it.
	MaxKey = 4 << 10
	// MaxValue is the size of an encoded value in bytes.
	MaxValue = 8 << 20
	// MaxNodes is how many nodes a cache may have.
	MaxNodes = 1024
	// MaxStuckLoads is how many loaders of a cache may go on though their time is over: each has a goroutine that nobody can
	// end. While there are as many no loader is called, and what needs one fails with [ErrOverloaded].
	MaxStuckLoads = 64
)

// A Loader reads rows from where they really are. The context is that of the load, not of a reader who happens to wait
// for it: it ends with [Options.LoadTimeout] or when the cache is closed.
//
// With min above zero, [Fresh] included, the row must be read from the primary: a replica may not have the version yet.
// The version that is returned rises with each write of the row, such as a counter in the row itself. It must go on rising
// when the row is deleted and inserted anew, or what was inserted counts as outdated for a while. A loader that knows no
// versions returns 0: see the package comment for what that costs. A row that does not exist is [ErrNotFound], for which
// 0 is good.
type Loader[K comparable, V any] func(ctx context.Context, key K, min Version) (V, Version, error)

// A NamedNode is a [Node] with the name by which keys are given to it. All processes must have the same names at the same
// time: where they do not, they do not hear one another's invalidations. The guide has the steps for a change.
type NamedNode struct {
	Name string
	Node Node
}

// Options are those of [New]. The zero value is a cache of this process alone.
type Options[K comparable, V any] struct {
	// Nodes are where items are kept, in any order. Nil is one embedded node.
	Nodes []NamedNode
	// Keys and Values encode. Nil is Strings, Bytes, Ints or JSON, whichever fits the type; keys of other types need one.
	Keys   Codec[K]
	Values Codec[V]

	// TTL is how long a value is served, from when its load began. Default 5 minutes.
	TTL time.Duration
	// RefreshAfter is when a value that is still read is loaded anew, before anybody has to wait. It is spread at random
	// by a tenth. Default 3/4 of TTL; a negative one is never.
	RefreshAfter time.Duration
	// NegativeTTL is TTL for rows that do not exist. Default 10 s.
	NegativeTTL time.Duration
	// StaleWhile is how long past its TTL a value may be served while somebody loads it. Default 0.
	StaleWhile time.Duration
	// StaleOnError is how long past its TTL a value may be served when the load fails. Default 0.
	StaleOnError time.Duration

	// MemoryEntries and MemoryBytes bound what this process keeps for itself; the encoded size counts. Bytes, if given,
	// is the bound; otherwise entries, by default 10 000. A negative one keeps nothing.
	MemoryEntries int
	MemoryBytes   int
	// MemoryTTL is how long this process serves a value without asking the home. Default: as long as the home would.
	MemoryTTL time.Duration
	// Trust is how long after a proof that all invalidations were heard this process serves from its memory, and how
	// long at most a strict [Cache.Invalidate] takes once the node was told. All processes must use the same: a writer
	// waits by its own. Default 250 ms, at least 20 ms.
	Trust time.Duration
	// Bounded makes Invalidate return as soon as the home is told: other processes may serve what they have for up to
	// Trust.
	Bounded bool

	// LoadTimeout limits a load; a loader that does not return by then is left to itself: see [MaxStuckLoads]. With NodeTimeout it must not
	// exceed the FloorTTL of the rules. Default 10 s.
	LoadTimeout time.Duration
	// NodeTimeout limits whatever a node is asked. Default 1 s.
	NodeTimeout time.Duration
	// FirstPause and LastPause: after a failed load nobody loads the key for a while, which doubles. Default 100 ms, 5 s.
	FirstPause, LastPause time.Duration
	// MaxLoads is how many loads this process may have under way at the same time while nodes answer, and MaxDirectLoads
	// how many past nodes that are out; for each of the two MaxWaitingLoads may wait, and a read beyond that is
	// [ErrOverloaded]. Default 64, 32 and 1024; with a negative MaxLoads there is no limit while nodes answer.
	MaxLoads, MaxDirectLoads, MaxWaitingLoads int
	// BreakAfter failures in a row a node is left alone for BreakFor. Default 3 and 500 ms.
	BreakAfter int
	BreakFor   time.Duration

	// Copies is on how many nodes a hot key is. 0 is 8, or all nodes if there are fewer; 1 is without copies.
	Copies int
	// HotShare is the share of all reads of the fleet, those that memory answers included, that makes a key hot; with less
	// than half of it for two windows it is cold again. With few reads, less than 8/HotShare or 1000 in a window, no key
	// is. Default 0.002.
	HotShare float64
	// HotWindow is how often what is hot is looked at and told to the fleet; a new hot key is told of at once. Default 1 s.
	HotWindow time.Duration

	// Rules are those of the embedded node, if Nodes is nil. Leases are renewed by them in any case, so where nodes are
	// opened with other ones give them here too; all processes must use the same. Zero ones are [DefaultRules].
	Rules Rules
	// Logger gets what cannot be returned, never a value. Nil is silent.
	Logger *slog.Logger
}

const (
	defaultTTL         = 5 * time.Minute
	defaultNegativeTTL = 10 * time.Second
	minTrust           = 20 * time.Millisecond
	defaultEntries     = 10_000
	minHotShare        = 0.0001 // a counter each
	minHotWindow       = 50 * time.Millisecond
)

func (o Options[K, V]) withDefaults() (Options[K, V], error) {
	type duration struct {
		name string
		of   *time.Duration
		is   time.Duration
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	is := core.DefaultSettings()
	for _, d := range []duration{
		{"NegativeTTL", &o.NegativeTTL, defaultNegativeTTL}, {"Trust", &o.Trust, is.Trust},
		{"RefreshAfter", &o.RefreshAfter, o.TTL * 3 / 4}, {"MemoryTTL", &o.MemoryTTL, o.TTL},
		{"LoadTimeout", &o.LoadTimeout, 10 * time.Second}, {"NodeTimeout", &o.NodeTimeout, time.Second},
		{"FirstPause", &o.FirstPause, is.FirstPause}, {"LastPause", &o.LastPause, is.LastPause},
		{"BreakFor", &o.BreakFor, is.BreakFor}, {"HotWindow", &o.HotWindow, time.Second},
	} {
		if *d.of == 0 {
			*d.of = d.is
		}
		if *d.of < 0 && d.name != "RefreshAfter" {
			return o, fmt.Errorf("%w: %s is negative", ErrInvalid, d.name)
		}
	}
	if o.TTL < 0 || o.StaleWhile < 0 || o.StaleOnError < 0 {
		return o, fmt.Errorf("%w: TTL, StaleWhile and StaleOnError must not be negative", ErrInvalid)
	}
	if o.RefreshAfter < 0 || o.RefreshAfter > o.TTL {
		o.RefreshAfter = o.TTL
	}
	if o.Trust < minTrust {
		return o, fmt.Errorf("%w: Trust is %v, the least is %v", ErrInvalid, o.Trust, minTrust)
	}
	for _, n := range []struct {
		name string
		of   *int
		is   int
	}{
		{"MaxLoads", &o.MaxLoads, is.MaxLoads}, {"MaxDirectLoads", &o.MaxDirectLoads, is.MaxDirect},
		{"MaxWaitingLoads", &o.MaxWaitingLoads, is.MaxWaiting}, {"BreakAfter", &o.BreakAfter, is.BreakAfter},
		{"Copies", &o.Copies, 8},
	} {
		if *n.of == 0 {
			*n.of = n.is
		}
		if *n.of < 0 && n.name != "MaxLoads" {
			return o, fmt.Errorf("%w: %s is negative", ErrInvalid, n.name)
		}
	}
	if o.MemoryEntries == 0 {
		o.MemoryEntries = defaultEntries
	}
	if o.HotShare == 0 {
		o.HotShare = 0.002
	}
	o.Rules = withDefaults(o.Rules)
	if err := o.check(); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Values == nil {
		o.Values, _ = defaultCodec[V]()
	}
	if o.Keys == nil {
		c, canonical := defaultCodec[K]()
		if !canonical {
			return o, fmt.Errorf("%w: keys of the type %v need a codec in Options.Keys: hotcache.JSON[%[2]v]() for a struct, "+
				"hotcache.Strings or Ints for what is text or a whole number", ErrInvalid, reflect.TypeFor[K]())
		}
		o.Keys = c
	}
	return o, nil
}

// check looks at what must fit together.
func (o Options[K, V]) check() error {
	if !(o.HotShare >= minHotShare && o.HotShare < 1) {
		return fmt.Errorf("%w: HotShare is %v: it is a share, such as 0.002, the least is %v", ErrInvalid, o.HotShare, minHotShare)
	}
	if o.HotWindow < minHotWindow {
		return fmt.Errorf("%w: HotWindow is %v, the least is %v", ErrInvalid, o.HotWindow, minHotWindow)
	}
	if len(o.Nodes) > MaxNodes {
		return fmt.Errorf("%w: %d nodes, the limit is %d", ErrTooLarge, len(o.Nodes), MaxNodes)
	}
	if o.LoadTimeout > o.Rules.FloorTTL-o.NodeTimeout { // a sum may not fit
		return fmt.Errorf("%w: LoadTimeout %v and NodeTimeout %v are together more than the %v of Rules.FloorTTL: what a load "+
			"brings could be stored when it is forgotten that the row was invalidated meanwhile", ErrInvalid, o.LoadTimeout,
			o.NodeTimeout, o.Rules.FloorTTL)
	}
	return nil
}

func (o Options[K, V]) longestTrust() time.Duration { return core.LongestTrust(o.Trust) }

// settings are what the core wants to know.
func (o Options[K, V]) settings() core.Settings {
	return core.Settings{
		Rules: o.Rules, Trust: o.Trust, StaleWhile: o.StaleWhile, StaleOnError: o.StaleOnError,
		FirstPause: o.FirstPause, LastPause: o.LastPause, MaxDirect: o.MaxDirectLoads, MaxWaiting: o.MaxWaitingLoads,
		MaxLoads: max(o.MaxLoads, 0), BreakAfter: o.BreakAfter, BreakFor: o.BreakFor, Tries: core.DefaultSettings().Tries, Memory: o.MemoryBytes > 0 || o.MemoryEntries > 0,
	}
}
