// Package outboxprom shows what a relay of an outbox does as metrics of Prometheus. It is for programs that have a
// registry already; others can read [outbox.Relay.Stats] themselves, which is all that it does.
//
//	prometheus.MustRegister(outboxprom.New("prices", relay))
//
// All metrics begin with latchkey_outbox_ and have the label relay. The one to watch is latchkey_outbox_lag_seconds: for
// so long something old may have been served. It is of the whole table, whichever relay shows it, and is not shown while
// the relay has no connection, since it knows nothing then; so watch latchkey_outbox_connected too.
//
// It is not in hotcacheprom, so that who has no PostgreSQL does not carry its driver.
package outboxprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/hotcache/outbox"
)

// A Source is what is shown: every *[outbox.Relay] is one.
type Source interface {
	// Stats are the counts so far.
	Stats() outbox.RelayStats
}

// A collector asks its relay when the registry asks it.
type collector struct {
	relay   Source
	metrics []metric
}

// A metric is one family of one series.
type metric struct {
	desc      *prometheus.Desc
	kind      prometheus.ValueType
	connected bool // shown only while the relay is
	value     func(s *outbox.RelayStats) float64
}

// New returns a collector of one relay. Several may be registered, under different names.
func New(name string, relay Source) prometheus.Collector {
	c := &collector{relay: relay}
	show := func(kind prometheus.ValueType, connected bool, family, help string, value func(*outbox.RelayStats) float64) {
		desc := prometheus.NewDesc("latchkey_outbox_"+family, help, nil, prometheus.Labels{"relay": name})
		c.metrics = append(c.metrics, metric{desc, kind, connected, value})
	}
	count := func(family, help string, value func(*outbox.RelayStats) uint64) {
		show(prometheus.CounterValue, false, family, help, func(s *outbox.RelayStats) float64 { return float64(value(s)) })
	}
	show(prometheus.GaugeValue, false, "connected", "1 while the relay has its connection to the database.",
		func(s *outbox.RelayStats) float64 {
			if s.Connected {
				return 1
			}
			return 0
		})
	show(prometheus.GaugeValue, true, "lag_seconds", "Age of the oldest row that waits in the table, of any topic.",
		func(s *outbox.RelayStats) float64 { return s.Lag.Age.Seconds() })
	show(prometheus.GaugeValue, true, "rows", "Rows that wait in the table, of any topic, counted up to a limit.",
		func(s *outbox.RelayStats) float64 { return float64(s.Lag.Rows) })
	count("delivered_rows_total", "Rows of which the cache was told.", func(s *outbox.RelayStats) uint64 { return s.Delivered })
	count("failed_deliveries_total", "Deliveries that failed, each attempt counted.",
		func(s *outbox.RelayStats) uint64 { return s.Failed })
	count("dropped_rows_total", "Rows that were given up, being too old.", func(s *outbox.RelayStats) uint64 { return s.Dropped })
	count("connection_losses_total", "Times that the connection was lost, or could not be made.",
		func(s *outbox.RelayStats) uint64 { return s.Losses })
	return c
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		ch <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now := c.relay.Stats()
	for _, m := range c.metrics {
		if now.Connected || !m.connected {
			ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&now))
		}
	}
}
