package httpserve

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/latchkey-go/latchkey/lease"
)

// family returns the samples of one metric as the registry gathers them.
func (r *rig) family(name string) []*dto.Metric {
	r.t.Helper()
	families, err := r.server.metrics.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	r.t.Fatalf("no metric %s", name)
	return nil
}

// number is the value of a metric, of the sample with this label value if it is
// not empty.
func (r *rig) number(name, label string) float64 {
	r.t.Helper()
	for _, m := range r.family(name) {
		if label != "" && !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
			continue
		}
		return m.GetGauge().GetValue() + m.GetCounter().GetValue()
	}
	r.t.Fatalf("no %s %q", name, label)
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

	for name, want := range map[string]float64{
		"lmx_keys": 3, "lmx_holders": 4, "lmx_readers": 2, "lmx_waiters": 1, "lmx_clients": 2, "lmx_pending_deadlines": 4,
		"lmx_ttl_evictions_total": 1, "lmx_max_concurrency_cap": 1000, "lmx_concurrency_cap_clamps_total": 0,
		"lmx_composite_locks_held": 1,
		"latchkey_up":              1, "latchkey_keys": 3, "latchkey_holds": 4, "latchkey_shared_holds": 2, "latchkey_many_key_leases": 1,
		"latchkey_waiters": 1, "latchkey_contended_keys": 1, "latchkey_sessions": 2, "latchkey_failed": 0,
		"latchkey_build_info": 1, "latchkey_service_info": 1, "latchkey_queued_total": 1,
	} {
		if got := r.number(name, ""); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := r.number("latchkey_requests_total", "granted"); got != 4 {
		t.Errorf("granted %v, want 4", got)
	}
	if got := r.number("latchkey_holds_ended_total", "expired"); got != 1 {
		t.Errorf("expired %v, want 1", got)
	}
	if got := r.number("latchkey_http_requests_total", "/v1/lock"); got != 3 {
		t.Errorf("locks over http %v, want 3", got)
	}
	for _, name := range []string{"lmx_uptime_seconds", "latchkey_uptime_seconds", "latchkey_last_token", "go_goroutines", "process_start_time_seconds"} {
		if r.number(name, "") <= 0 {
			t.Errorf("%s is not positive", name)
		}
	}
	hold := r.family("latchkey_hold_seconds")[0].GetHistogram()
	if hold.GetSampleCount() != 1 || hold.GetSampleSum() <= 0 || len(hold.GetBucket()) != lease.HistogramBuckets-1 {
		t.Errorf("hold histogram: %v", hold)
	}

	a := r.get("/metrics").want(t, 200)
	if !strings.Contains(a.text, "\nlmx_readers 2\n") || !strings.Contains(a.text, `latchkey_build_info{goversion="go`) {
		t.Errorf("page of metrics: %s", a.text)
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
	var m dto.Metric
	if err := constHistogram(desc("x_seconds", "x"), &h).Write(&m); err != nil {
		t.Fatal(err)
	}
	got := m.GetHistogram()
	if got.GetSampleCount() != 5 || math.Abs(got.GetSampleSum()-(48*time.Hour+time.Second+3*time.Millisecond).Seconds()) > 0.01 {
		t.Errorf("count %d, sum %v", got.GetSampleCount(), got.GetSampleSum())
	}
	for _, b := range got.GetBucket() {
		want := uint64(0)
		for _, d := range []float64{0, 1e-6, 3e-3, 1} {
			if d < b.GetUpperBound() {
				want++
			}
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("%d below %v, want %d", b.GetCumulativeCount(), b.GetUpperBound(), want)
		}
	}
}

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
