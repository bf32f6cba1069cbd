package httpserve

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/latchkey-go/latchkey/lease"
)

// meters are what /metrics shows. The registry is this server's own, so that
// several servers fit into one process.
type meters struct {
	registry *prometheus.Registry
	handler  http.Handler
	requests *prometheus.CounterVec
}

func newMetrics(s *Server) *meters {
	m := &meters{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "latchkey_http_requests_total",
			Help: "Requests answered over HTTP, by route and status; streams count when they end.",
		}, []string{"route", "method", "status"}),
	}
	m.registry.MustRegister(m.requests, newCollector(s.figures, s.opts.Version),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            promLog{s.log},
		ErrorHandling:       promhttp.ContinueOnError, // what could be read is shown; latchkey_up says whether all could
		MaxRequestsInFlight: 4,
	})
	return m
}

func (m *meters) serve(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // a recorder has none
	m.handler.ServeHTTP(w, r)
}

// count counts an answered request. Paths and methods that no route has are not
// labels: callers could make up any number of them.
func (m *meters) count(rt route, method string, status int) {
	path := rt.path
	switch {
	case path == "":
		path, method = "none", "other"
	case path == keyPath:
		path += "{key}"
	}
	m.requests.WithLabelValues(path, method, strconv.Itoa(status)).Inc()
}

// promLog gives the metrics handler's complaints to the log.
type promLog struct{ log *slog.Logger }

func (p promLog) Println(v ...any) { p.log.Error("http: metrics", "err", v) }

// collector reads the service's statistics when it is scraped: there is no
// second count that could differ from the first.
type collector struct {
	figures   func(context.Context) (figures, error)
	up        *prometheus.Desc
	buildInfo prometheus.Metric
	info      *prometheus.Desc
	singles   []single
	labelled  []labelled
	spreads   []spread
}

// single is one number.
type single struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*figures) float64
}

// labelled is one counter with a value for each value of its label.
type labelled struct {
	desc   *prometheus.Desc
	values []labelValue
}

type labelValue struct {
	label string
	value func(*figures) uint64
}

// spread is a histogram of times.
type spread struct {
	desc  *prometheus.Desc
	value func(*figures) *lease.Histogram
}

func newCollector(read func(context.Context) (figures, error), version string) *collector {
	return &collector{
		figures: read,
		up:      prometheus.NewDesc("latchkey_up", "Whether the service answered this scrape.", nil, nil),
		buildInfo: prometheus.MustNewConstMetric(prometheus.NewDesc("latchkey_build_info",
			"Always 1; the labels say what was built.", []string{"version", "goversion"}, nil),
			prometheus.GaugeValue, 1, version, runtime.Version()),
		info: prometheus.NewDesc("latchkey_service_info", "Always 1; the labels say how the service keeps its promises.",
			[]string{"service", "durability", "fencing"}, nil),
		singles:  singles(),
		labelled: labelledCounters(),
		spreads:  spreads(),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	ch <- c.buildInfo.Desc()
	ch <- c.info
	for _, s := range c.singles {
		ch <- s.desc
	}
	for _, l := range c.labelled {
		ch <- l.desc
	}
	for _, h := range c.spreads {
		ch <- h.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ch <- c.buildInfo
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	st, err := c.figures(ctx)
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 1)
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, st.Service, st.Durability, st.Fencing)
	for _, s := range c.singles {
		ch <- prometheus.MustNewConstMetric(s.desc, s.kind, s.value(&st))
	}
	for _, l := range c.labelled {
		for _, v := range l.values {
			ch <- prometheus.MustNewConstMetric(l.desc, prometheus.CounterValue, float64(v.value(&st)), v.label)
		}
	}
	for _, h := range c.spreads {
		ch <- constHistogram(h.desc, h.value(&st))
	}
}

// constHistogram turns counts per bucket into the cumulative ones of Prometheus,
// in seconds. The last bucket, all the rest, is Prometheus' +Inf.
func constHistogram(desc *prometheus.Desc, h *lease.Histogram) prometheus.Metric {
	buckets := make(map[float64]uint64, lease.HistogramBuckets-1)
	var sum uint64
	for i := range lease.HistogramBuckets - 1 {
		sum += h.Buckets[i]
		buckets[h.Bound(i).Seconds()] = sum
	}
	return prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets)
}
