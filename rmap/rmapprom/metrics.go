package rmapprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/rmap"
)

// A reading is what a map says when it is asked.
type reading struct {
	rmap.Stats
	lag rmap.Lag
}

// A metric is one family: how it is called, and its values in a reading, with a label each if it has one besides map.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(r *reading, emit func(value float64, label ...string))
}

// prefix is in front of all names.
const prefix = "latchkey_map_"

// metrics are all families, in the order in which a person asks: is it current, what is in it, what went wrong.
func metrics() []metric {
	return []metric{
		gauge("lag_seconds", "Time since the copy was last proved current: it shows every write that finished before.",
			func(r *reading) float64 { return r.lag.Age.Seconds() }),
		states(),
		gauge("revision_number", "Number of the change that the copy stands at, within the present life of the map.",
			func(r *reading) float64 { return float64(r.lag.Revision.Number) }),
		gauge("entries", "Entries in the copy.", func(r *reading) float64 { return float64(r.Entries) }),
		gauge("broken_entries", "Entries in the copy whose values did not decode.",
			func(r *reading) float64 { return float64(r.Broken) }),
		counter("changes_total", "Changes applied.", func(r *reading) uint64 { return r.Changes }),
		counter("duplicates_total", "Changes ignored because the copy had them.", func(r *reading) uint64 { return r.Duplicates }),
		counter("strange_total", "Changes that did not follow what the copy has: a gap, another life, a stray message.",
			func(r *reading) uint64 { return r.Strange }),
		counter("unreadable_total", "Broadcasts that could not be read.", func(r *reading) uint64 { return r.Unreadable }),
		counter("undecoded_total", "Keys and values that did not decode.", func(r *reading) uint64 { return r.Undecoded }),
		counter("losses_total", "Times that the subscription to the store was lost.", func(r *reading) uint64 { return r.Losses }),
		counter("heads_total", "Times that the store was asked where the map stands.", func(r *reading) uint64 { return r.Heads }),
		counter("catchups_total", "Times that missed changes were got from the store's change log.",
			func(r *reading) uint64 { return r.CaughtUp }),
		counter("replayed_total", "Changes got from the store's change log.", func(r *reading) uint64 { return r.Replayed }),
		reloads(),
		gauge("last_reload_seconds", "How long the last reading of the whole map took.",
			func(r *reading) float64 { return r.ReloadTime.Seconds() }),
		counter("subscriber_overflows_total", "Times that a subscriber fell behind and was told to read again.",
			func(r *reading) uint64 { return r.Overflows }),
		counter("subscriber_dropped_total", "Events that subscribers did not get because they fell behind.",
			func(r *reading) uint64 { return r.Dropped }),
		writes(),
	}
}

func gauge(name, help string, value func(*reading) float64) metric {
	return metric{describe(name, help), prometheus.GaugeValue,
		func(r *reading, emit func(float64, ...string)) { emit(value(r)) }}
}

func counter(name, help string, value func(*reading) uint64) metric {
	return metric{describe(name, help), prometheus.CounterValue,
		func(r *reading, emit func(float64, ...string)) { emit(float64(value(r))) }}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, append([]string{"map"}, labels...), nil)
}

// states has a series for each state, so that the time in one can be summed up.
func states() metric {
	return metric{describe("state", "1 for the state of the copy, 0 for the others.", "state"), prometheus.GaugeValue,
		func(r *reading, emit func(float64, ...string)) {
			for s := rmap.CatchingUp; s <= rmap.Closed; s++ {
				value := 0.0
				if s == r.lag.State {
					value = 1
				}
				emit(value, s.String())
			}
		}}
}

func reloads() metric {
	return metric{describe("reloads_total", "Times that the whole map was read, by cause.", "cause"), prometheus.CounterValue,
		func(r *reading, emit func(float64, ...string)) {
			for i, n := range r.Reloads {
				emit(float64(n), rmap.ReloadCause(i).String())
			}
		}}
}

func writes() metric {
	return metric{describe("writes_total", "Writes of this process, by what became of them.", "outcome"), prometheus.CounterValue,
		func(r *reading, emit func(float64, ...string)) {
			emit(float64(r.Writes), "applied")
			emit(float64(r.Conflicts), "conflict")
			emit(float64(r.Failures-r.Unknown), "failed")
			emit(float64(r.Unknown), "unknown")
		}}
}
