package hotcacheprom

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A reading is what a cache says when it is asked.
type reading struct {
	hotcache.Stats
	nodes []hotcache.Lag
}

// An emit takes one value of a family, with the label that it has besides cache, if it has one.
type emit func(value float64, label ...string)

// A metric is one family: how it is called, and its values in a reading.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(r *reading, e emit)
}

// prefix is in front of all names.
const prefix = "latchkey_cache_"

// metrics are all families, in the order in which a person asks: are reads answered, what do they cost the database, is
// memory of any use, how are the nodes, what is hot.
func metrics() []metric {
	return []metric{
		family("reads_total", "Reads, by where the answer came from, or why there was none.", prometheus.CounterValue, "outcome",
			func(r *reading, e emit) { each(r.Reads, e) }),
		family("loads_total", "Calls of the loader. A row that does not exist is no failure.", prometheus.CounterValue, "result",
			func(r *reading, e emit) {
				e(float64(r.Loads-r.LoadErrors), "loaded")
				e(float64(r.LoadErrors), "failed")
			}),
		family("load_seconds_total", "Time that calls of the loader took.", prometheus.CounterValue, "",
			func(r *reading, e emit) { e(r.LoadTime.Seconds()) }),
		family("stuck_loads", "Calls of the loader that have not returned, though their time is over.", prometheus.GaugeValue, "",
			func(r *reading, e emit) { e(float64(r.StuckLoads)) }),
		family("refused_fills_total", "Loaded values that were not stored, by why.", prometheus.CounterValue, "cause",
			func(r *reading, e emit) {
				e(float64(r.RefusedLease), "lease")
				e(float64(r.RefusedFloor), "outdated")
			}),
		counter("invalidations_total", "Invalidations heard from nodes.", func(r *reading) uint64 { return r.Invalidations }),
		counter("feed_losses_total", "Times that a connection for invalidations was lost.", func(r *reading) uint64 { return r.Losses }),
		counter("memory_drops_total", "Times that everything of a node was dropped from memory, because something was missed.",
			func(r *reading) uint64 { return r.Dropped }),
		family("memory_entries", "Values that this process keeps in memory.", prometheus.GaugeValue, "",
			func(r *reading, e emit) { e(float64(r.MemoryEntries)) }),
		counter("memory_evictions_total", "Values that memory gave up to make room.", func(r *reading) uint64 { return r.MemoryEvicted }),
		family("node_reads_total", "Times that a node was asked for a key, or for the copy of one.", prometheus.CounterValue, "node",
			func(r *reading, e emit) { each(r.NodeReads, e) }),
		family("node_errors_total", "Times that a node did not do what it was asked.", prometheus.CounterValue, "node",
			func(r *reading, e emit) { each(r.NodeErrors, e) }),
		byNode("node_out", "1 while a node is left alone because asking it failed.",
			func(l hotcache.Lag) (float64, bool) { return number(l.Out), true }),
		byNode("node_trusted", "1 while memory is served for keys of the node: its invalidations were surely heard.",
			func(l hotcache.Lag) (float64, bool) { return number(l.Trusted), true }),
		byNode("node_proof_age_seconds", "Time since it was last proved that all invalidations of the node were heard.",
			func(l hotcache.Lag) (float64, bool) { return l.Age.Seconds(), l.Age > 0 }),
		family("hot_keys", "Keys that are hot now.", prometheus.GaugeValue, "", func(r *reading, e emit) { e(float64(r.HotKeys)) }),
		family("hot_samples_total", "Reads that were sampled to find hot keys, by whether they could be counted.",
			prometheus.CounterValue, "result", func(r *reading, e emit) {
				e(float64(r.HotSamples), "counted")
				e(float64(r.HotMissed), "missed")
			}),
		family("hot_reports_total", "Reports of hot keys that processes send one another.", prometheus.CounterValue, "result",
			func(r *reading, e emit) {
				e(float64(r.HotSent), "sent")
				e(float64(r.HotHeard), "heard")
				e(float64(r.HotBroken), "unreadable")
			}),
	}
}

func family(name, help string, kind prometheus.ValueType, label string, read func(*reading, emit)) metric {
	labels := []string{"cache"}
	if label != "" {
		labels = append(labels, label)
	}
	return metric{prometheus.NewDesc(prefix+name, help, labels, nil), kind, read}
}

func counter(name, help string, value func(*reading) uint64) metric {
	return family(name, help, prometheus.CounterValue, "", func(r *reading, e emit) { e(float64(value(r))) })
}

// byNode has a series for each node of which there is something to say.
func byNode(name, help string, value func(hotcache.Lag) (float64, bool)) metric {
	return family(name, help, prometheus.GaugeValue, "node", func(r *reading, e emit) {
		for _, l := range r.nodes {
			if v, ok := value(l); ok {
				e(v, l.Node)
			}
		}
	})
}

func each(counts map[string]uint64, e emit) {
	for _, label := range slices.Sorted(maps.Keys(counts)) {
		e(float64(counts[label]), label)
	}
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
