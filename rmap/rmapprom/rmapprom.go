// Package rmapprom shows what replicated maps do as metrics of Prometheus. It is for programs that have a registry
// already; others can read [rmap.Map.Lag] and [rmap.Map.Stats] themselves, which is all that it does.
//
//	maps := rmapprom.New()
//	prometheus.MustRegister(maps)
//	err := maps.Add(flags) // a *rmap.Map of any type
//
// All metrics begin with latchkey_map_ and have the label map, the name of the map. No key and no value is in them. The
// two to watch are latchkey_map_lag_seconds, which stays below the heartbeat and two of the store's time limits as long
// as nothing is wrong, and latchkey_map_reloads_total, which does not rise in a steady state, but for the cause join.
//
// Nothing is counted here: the maps are asked when the registry is. So a collector costs nothing in between. It may be
// used by several goroutines at a time.
package rmapprom

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/rmap"
)

// ErrDuplicate: a map of that name is in the collector already. The name is what tells series apart, so two of one name
// would spoil the whole scrape. For a second copy of a map, or one of the same name in another store, use another
// collector, registered with prometheus.WrapRegistererWith and a label of its own.
var ErrDuplicate = errors.New("rmapprom: a map of that name was added already")

// A Source is what is shown: every *[rmap.Map] is one.
type Source interface {
	// Name is the label map; it does not change.
	Name() string
	// Stats are the counts so far.
	Stats() rmap.Stats
	// Lag says how old the copy may be.
	Lag() rmap.Lag
}

// A Collector shows the maps that were added to it. Use [New].
type Collector struct {
	mu   sync.Mutex // guards maps, and is not held while a map is asked
	maps map[string]Source
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector without maps.
func New() *Collector { return &Collector{maps: map[string]Source{}} }

// Add shows a map from now on, until it is removed: a closed one too, in the state "closed". The error is
// [ErrDuplicate]. To add the same map again is none.
func (c *Collector) Add(m Source) error {
	name := m.Name()
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.maps[name]; ok && other != m {
		return fmt.Errorf("%w: %q", ErrDuplicate, name)
	}
	c.maps[name] = m
	return nil
}

// Remove shows a map no more. One that was not added is left alone.
func (c *Collector) Remove(m Source) {
	name := m.Name()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.maps[name] == m {
		delete(c.maps, name)
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics() {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	all := metrics()
	for _, m := range c.sources() {
		name := m.Name()
		now := reading{Stats: m.Stats(), lag: m.Lag()}
		for _, metric := range all {
			metric.read(&now, func(value float64, label ...string) {
				ch <- prometheus.MustNewConstMetric(metric.desc, metric.kind, value, append([]string{name}, label...)...)
			})
		}
	}
}

// sources returns the maps in the order of their names.
func (c *Collector) sources() []Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]Source, 0, len(c.maps))
	for _, m := range c.maps {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Source) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}
