package rmap

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Defaults of [Options].
const (
	// DefaultHeartbeat bounds, together with the time limit of the feed, how long anything can be wrong unnoticed.
	DefaultHeartbeat = time.Second
	// DefaultTimeout is for calls whose context has no deadline.
	DefaultTimeout = 5 * time.Second
	// DefaultReloadJitter spreads the reloads of all processes after the store was away for all of them.
	DefaultReloadJitter = 250 * time.Millisecond
	// DefaultEvents is how many events a subscriber may be behind.
	DefaultEvents = 256
)

// LiveOnly as [Options.MaxStale] refuses reads whenever the state is not [Live]. A dead link or a silent loss ends that
// state within the bound that [Lag] names, not at once.
const LiveOnly time.Duration = -1

// Options are those of [Join]. The zero value is good for maps whose keys are strings or signed
// integers.
type Options[K comparable, V any] struct {
	// Keys and Values turn keys and values into what the store keeps. Nil stands for Strings, Ints, Bytes, Lists of
	// strings or JSON, whichever fits the type. All processes must use the same.
	Keys   Codec[K]
	Values Codec[V]

	// TTL, when it is not zero, is how long the whole map lives, from its first write, or, when Sliding is set, from
	// its last change. The grain is a millisecond. It is fixed when the map begins: a process that says something else
	// is refused with [ErrLifetime], by Join if the map has entries, and otherwise by the first write. Zero goes along with what is there, and begins a map that lives for ever.
	TTL     time.Duration
	Sliding bool

	// MaxStale decides about [Map.Lookup] and [Map.Fresh] while the copy cannot be proved current: 0 serves whatever
	// its age, a positive duration up to that age, [LiveOnly] never. [Map.Get], All and Snapshot always serve.
	MaxStale time.Duration

	// Heartbeat is how often the copy is compared with the store. Default [DefaultHeartbeat], at least 10 ms.
	Heartbeat time.Duration
	// Timeout limits writes, Sync and the like when their context has no deadline. Default [DefaultTimeout].
	Timeout time.Duration
	// ReloadJitter is the longest random delay of a reload after a lost connection, when nobody waits for it. Default
	// [DefaultReloadJitter]; a negative one is none.
	ReloadJitter time.Duration

	// MaxEntries refuses writes after which the map would be larger. Default [DefaultMaxEntries].
	MaxEntries int

	// Logger gets what cannot be returned: losses, reloads, values that do not decode. Never a value. Nil is silent. It
	// is called by the map's own goroutine, under no lock: one that hangs stops the heartbeat, as [Lag] shows, but
	// neither readers nor writers.
	Logger *slog.Logger
}

func (o Options[K, V]) withDefaults() (Options[K, V], error) {
	if o.Values == nil {
		o.Values = defaultCodec[V]()
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
		least    time.Duration
		name     string
	}{
		{&o.Heartbeat, DefaultHeartbeat, 10 * time.Millisecond, "Heartbeat"},
		{&o.Timeout, DefaultTimeout, time.Millisecond, "Timeout"},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
		if *d.value < d.least {
			return o, fmt.Errorf("%w: %s is %v, the least is %v", ErrInvalid, d.name, *d.value, d.least)
		}
	}
	if o.ReloadJitter == 0 {
		o.ReloadJitter = DefaultReloadJitter
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	if o.MaxEntries < 0 {
		return o, fmt.Errorf("%w: MaxEntries is %d", ErrInvalid, o.MaxEntries)
	}
	if o.MaxStale < 0 && o.MaxStale != LiveOnly {
		return o, fmt.Errorf("%w: MaxStale is %v: use a positive duration, 0, or LiveOnly", ErrInvalid, o.MaxStale)
	}
	if o.TTL == 0 && o.Sliding {
		return o, fmt.Errorf("%w: Sliding without a TTL", ErrInvalid)
	}
	if o.TTL != 0 {
		if err := checkTTL(o.TTL); err != nil {
			return o, err
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// checkTTL refuses what would be rounded to something else or leave the range of the stores' clocks.
func checkTTL(d time.Duration) error {
	if d < MinTTL || d > MaxTTL {
		return fmt.Errorf("%w: the ttl %v is not between %v and %v", ErrInvalid, d, MinTTL, time.Duration(MaxTTL))
	}
	if d%time.Millisecond != 0 {
		return fmt.Errorf("%w: the ttl %v is not a whole number of milliseconds", ErrInvalid, d)
	}
	return nil
}

// CheckName returns an error, which wraps [ErrInvalid], for what cannot be the name of a map: it has 1 to [MaxName]
// bytes, no white space, no control characters and none of { } * ? [ ] which mean something in keys and channels.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName {
		return fmt.Errorf("%w: the name of a map has 1 to %d bytes, this one has %d", ErrInvalid, MaxName, len(name))
	}
	bad := strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune("{}*?[]\u00a0\u2028\u2029\ufffd", r)
	})
	if bad >= 0 {
		return fmt.Errorf("%w: the name %q has a character at byte %d that a map's name cannot have", ErrInvalid, name, bad)
	}
	return nil
}
