// Package hotcacheprom shows what caches do as metrics of Prometheus. It is for programs that have a registry already;
// others can read [hotcache.Cache.Stats] and [hotcache.Cache.Lag] themselves, which is all that it does.
//
//	caches := hotcacheprom.New()
//	prometheus.MustRegister(caches)
//	err := caches.Add("prices", prices) // a *hotcache.Cache of any type
//
// All metrics begin with latchkey_cache_ and have the label cache, the name under which the cache was added. Nodes appear
// by their names; no key and no value is in a metric, of hot keys only how many there are. The two to watch are
// latchkey_cache_node_out, a node that is left alone because it failed, and latchkey_cache_reads_total, of which the
// outcomes shed and failed_... are reads that got no answer.
//
// Nothing is counted here: the caches are asked when the registry is. So a collector costs nothing in between. It may be
// used by several goroutines at a time.
package hotcacheprom

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/hotcache"
)

var (
	// ErrDuplicate: another cache was added under that name. The name is what tells series apart, so two of one name would
	// spoil the whole scrape.
	ErrDuplicate = errors.New("hotcacheprom: another cache was added under that name")
	// ErrInvalid: there is no cache, or no name for it.
	ErrInvalid = errors.New("hotcacheprom: a cache needs a name")
)

// A Source is what is shown: every *[hotcache.Cache] is one.
type Source interface {
	// Stats are the counts so far.
	Stats() hotcache.Stats
	// Lag says of each node whether memory may be served, and how old it may be.
	Lag() []hotcache.Lag
}

// A Collector shows the caches that were added to it. Use [New].
type Collector struct {
	metrics []metric
	mu      sync.Mutex // guards caches, and is not held while a cache is asked
	caches  map[string]Source
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a collector without caches.
func New() *Collector { return &Collector{metrics: metrics(), caches: map[string]Source{}} }

// Add shows a cache under a name from now on, until it is removed: a closed one too. The error is [ErrDuplicate] or
// [ErrInvalid]. To add the same cache again under its name is none.
func (c *Collector) Add(name string, s Source) error {
	if name == "" || s == nil {
		return fmt.Errorf("%w: the name is %q, the cache %v", ErrInvalid, name, s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.caches[name]; ok && other != s {
		return fmt.Errorf("%w: %q", ErrDuplicate, name)
	}
	c.caches[name] = s
	return nil
}

// Remove shows the cache of a name no more. If there is none, nothing happens.
func (c *Collector) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.caches, name)
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, one := range c.all() {
		now := reading{one.source.Stats(), one.source.Lag()}
		for _, m := range c.metrics {
			m.read(&now, func(value float64, label ...string) {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, value, append([]string{one.name}, label...)...)
			})
		}
	}
}

type named struct {
	name   string
	source Source
}

// all returns the caches as they are now.
func (c *Collector) all() []named {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]named, 0, len(c.caches))
	for name, s := range c.caches {
		out = append(out, named{name, s})
	}
	slices.SortFunc(out, func(a, b named) int { return strings.Compare(a.name, b.name) })
	return out
}
