package httpserve

import (
	"context"
	"math"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latchkey-go/latchkey/lease"
)

// samples are what a page of metrics says: values by name with labels.
type samples map[string]float64

func parseMetrics(t *testing.T, page string) samples {
	t.Helper()
	out := make(samples)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if i < 0 || err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		out[line[:i]] = v
	}
	return out
}

// number is the value of a metric, with a part of its labels where it has some.
func (s samples) number(t *testing.T, name, label string) float64 {
	t.Helper()
	for k, v := range s {
		if k == name || strings.HasPrefix(k, name+"{") && strings.Contains(k, label) {
			return v
		}
	}
	t.Fatalf("no %s %s", name, label)
	return 0
}

// TestMetrics takes locks of every kind and reads the true values back.
func TestMetrics(t *testing.T) {
	r := start(t, Options{Version: "9.9"})
	r.post("/v1/lock", `{"key":"s","shared":true,"ttl":60000}`).want(t, 200)
	r.post("/v1/lock", `{"key":"s","shared":true,"ttl":60000}`).want(t, 200)
	r.post("/v1/acquire-many", `{"keys":["m","n"],"ttl":60000}`).want(t, 200)
	r.post("/v1/lock", `{"key":"gone","ttl":1}`).want(t, 200)
	eventually(t, "one expired", func() bool { return r.holding("gone") == 0 })
	s := r.open(lease.SessionOptions{Name: "w"})
	s.Acquire(lease.Request{Keys: []string{"m"}}, quietCaller{})

	got := parseMetrics(t, r.get("/metrics").want(t, 200).text)
	for name, want := range map[string]float64{
		"lmx_keys": 3, "lmx_holders": 4, "lmx_readers": 2, "lmx_waiters": 1, "lmx_clients": 2, "lmx_pending_deadlines": 4,
		"lmx_ttl_evictions_total": 1, "lmx_max_concurrency_cap": 1000, "lmx_concurrency_cap_clamps_total": 0,
		"lmx_composite_locks_held": 1,
		"latchkey_up":              1, "latchkey_keys": 3, "latchkey_holds": 4, "latchkey_shared_holds": 2, "latchkey_many_key_leases": 1,
		"latchkey_waiters": 1, "latchkey_contended_keys": 1, "latchkey_sessions": 2, "latchkey_failed": 0,
		"latchkey_build_info": 1, "latchkey_service_info": 1, "latchkey_queued_total": 1,
	} {
		if v := got.number(t, name, ""); v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"latchkey_requests_total", `outcome="granted"`, 4},
		{"latchkey_holds_ended_total", `how="expired"`, 1},
		{"latchkey_http_requests_total", `route="/v1/lock"`, 3},
		{"latchkey_hold_seconds_count", "", 1},
		{"latchkey_wait_seconds_count", "", 0},
	} {
		if v := got.number(t, c.name, c.label); v != c.want {
			t.Errorf("%s %s is %v, want %v", c.name, c.label, v, c.want)
		}
	}
	for _, name := range []string{"lmx_uptime_seconds", "latchkey_uptime_seconds", "latchkey_last_token", "go_goroutines",
		"process_start_time_seconds", "latchkey_hold_seconds_sum"} {
		if got.number(t, name, "") <= 0 {
			t.Errorf("%s is not positive", name)
		}
	}
}

// TestMetricNames runs the linter of Prometheus over everything shown.
func TestMetricNames(t *testing.T) {
	r := start(t, Options{})
	r.get("/healthz")
	problems, err := testutil.GatherAndLint(r.server.metrics.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestHistogram shows that no observation is lost or moved down on its way to
// Prometheus' cumulative buckets.
func TestHistogram(t *testing.T) {
	var h lease.Histogram
	for _, d := range []time.Duration{0, time.Microsecond, 3 * time.Millisecond, time.Second, 48 * time.Hour} {
		h.Observe(d)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(fixed{constHistogram(desc("x_seconds", "x"), &h)})
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/", nil))
	got := parseMetrics(t, page.Body.String())
	if got["x_seconds_count"] != 5 || math.Abs(got["x_seconds_sum"]-(48*time.Hour+time.Second+3*time.Millisecond).Seconds()) > 0.01 {
		t.Errorf("count %v, sum %v", got["x_seconds_count"], got["x_seconds_sum"])
	}
	bucket, buckets := regexp.MustCompile(`^x_seconds_bucket\{le="(.*)"\}$`), 0
	for name, n := range got {
		m := bucket.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		buckets++
		bound, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		want := 0.0
		for _, d := range []float64{0, 1e-6, 3e-3, 1, 48 * 3600} {
			if d < bound {
				want++
			}
		}
		if n != want {
			t.Errorf("%v below %v, want %v", n, bound, want)
		}
	}
	if buckets != lease.HistogramBuckets {
		t.Errorf("%d buckets, want %d", buckets, lease.HistogramBuckets)
	}
}

// fixed is a collector of one metric.
type fixed struct{ prometheus.Metric }

func (f fixed) Describe(ch chan<- *prometheus.Desc) { ch <- f.Desc() }
func (f fixed) Collect(ch chan<- prometheus.Metric) { ch <- f.Metric }

// TestMetricsOfSilentService shows that a service that does not answer is told
// from one that is not scraped.
func TestMetricsOfSilentService(t *testing.T) {
	r := start(t, Options{})
	sick := &ill{Service: r.svc}
	r = startOn(t, sick, Options{})
	sick.err = context.DeadlineExceeded
	a := r.get("/metrics").want(t, 200)
	if !strings.Contains(a.text, "\nlatchkey_up 0\n") || strings.Contains(a.text, "lmx_keys") {
		t.Errorf("metrics: %s", a.text)
	}
	sick.err = nil
}
