package httpserve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// quietCaller starts requests whose outcome a test reads from the service.
type quietCaller struct{}

func (quietCaller) Queued(lease.Queued)         {}
func (quietCaller) Done(_ lease.Lease, _ error) {}

func (r *rig) open(o lease.SessionOptions) lease.Session {
	r.t.Helper()
	s, err := r.svc.Open(context.Background(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func TestListing(t *testing.T) {
	r := start(t, Options{})
	s := r.open(lease.SessionOptions{Name: "worker", Host: "h1", PID: 12})
	for i := range 5 {
		s.Acquire(lease.Request{Keys: []string{fmt.Sprint("job/", i)}, Label: "nightly", ID: fmt.Sprint("secret-", i)}, quietCaller{})
	}
	s.Acquire(lease.Request{Keys: []string{"job/1", "job/3"}, Wait: time.Minute}, quietCaller{})
	r.post("/v1/lock", `{"key":"other","max":4}`).want(t, 200, "acquired", true)

	a := r.get("/v1/locks").want(t, 200, "more", false)
	if n := len(a.body["keys"].([]any)); n != 6 {
		t.Errorf("%d keys, want 6", n)
	}
	if strings.Contains(a.text, "secret-") {
		t.Errorf("a listing shows hold ids: %s", a.text)
	}
	a = r.get("/v1/locks?prefix=job/&limit=2&after=job/1").want(t, 200, "more", true)
	keys := a.body["keys"].([]any)
	if len(keys) != 2 || keys[0].(map[string]any)["key"] != "job/2" {
		t.Errorf("page: %s", a.text)
	}
	a = r.get("/v1/locks?contended=true").want(t, 200, "more", false)
	if len(a.body["keys"].([]any)) != 2 {
		t.Errorf("contended: %s", a.text)
	}
	k := r.get("/v1/locks/job%2F3").want(t, 200, "key", "job/3", "waiting", 1)
	h, w := k.body["holders"].([]any)[0].(map[string]any), k.body["waiters"].([]any)[0].(map[string]any)
	if h["session"] != "worker" || h["host"] != "h1" || h["pid"] != 12.0 || h["label"] != "nightly" ||
		h["mode"] != "exclusive" || h["fencingToken"].(float64) < 1 || h["remaining"].(float64) < 1 {
		t.Errorf("holder: %v", h)
	}
	if w["keys"] != 2.0 || w["left"].(float64) < 1 {
		t.Errorf("waiter: %v", w)
	}
	r.get("/v1/locks/free").want(t, 200, "holders", []any{}, "waiters", []any{}, "waiting", 0)
}

func TestStats(t *testing.T) {
	r := start(t, Options{Version: "9.9"})
	r.post("/v1/lock", `{"key":"s","shared":true}`).want(t, 200)
	r.post("/v1/acquire-many", `{"keys":["m","n"],"ttl":60000}`).want(t, 200)
	r.post("/v1/lock", `{"key":"m"}`).want(t, 200, "acquired", false)
	s := r.open(lease.SessionOptions{Name: "w"})
	s.Acquire(lease.Request{Keys: []string{"m"}}, quietCaller{})
	a := r.get("/v1/stats").want(t, 200,
		"totalLocks", 3, "totalHolders", 3, "totalReaders", 1, "pendingRequests", 1, "connectedClients", 2,
		"compositeLocksHeld", 1, "maxConcurrencyCap", 1000, "concurrencyCapClampsTotal", 0,
		"version", "9.9", "durability", "memory", "fencing", "clock", "busyTotal", 1, "grantedTotal", 2)
	top := a.body["topKeys"].([]any)[0].(map[string]any)
	if top["key"] != "m" || top["waiters"] != 1.0 || top["max"] != 1.0 || top["fencingToken"].(float64) < 1 {
		t.Errorf("top key: %v", top)
	}
	if a.num("startedAt") < 1e12 || a.num("uptime") <= 0 || a.num("pid") < 1 {
		t.Errorf("process: %s", a.text)
	}
	if m := a.body["memoryUsage"].(map[string]any); m["heapUsed"].(float64) < 1 || m["heapTotal"].(float64) < m["heapUsed"].(float64) {
		t.Errorf("memory: %v", m)
	}
}

// ill is a service that says it is not well. Everything else it does is real.
type ill struct {
	lease.Service
	failed     string
	recovering time.Duration
	err        error
}

func (s *ill) Stats(ctx context.Context) (lease.Stats, error) {
	st, err := s.Service.Stats(ctx)
	st.Failed, st.Recovering = s.failed, s.recovering
	return st, errors.Join(err, s.err)
}

func TestHealth(t *testing.T) {
	r := start(t, Options{})
	for _, path := range []string{"/healthz", "/health"} {
		r.get(path).want(t, 200, "ok", true, "isOpen", true)
	}
	r.get("/readyz").want(t, 200, "ready", true)

	sick := &ill{Service: r.svc, failed: "disk full"}
	r = startOn(t, sick, Options{})
	r.get("/healthz").want(t, 503, "ok", false, "error", "disk full")
	r.get("/readyz").want(t, 503, "ready", false, "error", "disk full")
	if page := r.get("/"); !strings.Contains(page.text, "Nothing is granted until this broker is started again") ||
		!strings.Contains(page.text, "disk full") {
		t.Error("the page does not show the failure")
	}

	sick.failed, sick.recovering = "", 90*time.Second
	r.get("/healthz").want(t, 200, "ok", true)
	r.get("/readyz").want(t, 503, "ready", false, "recovering", 90_000)
	if page := r.get("/?prefix=other"); !strings.Contains(page.text, "grants begin in") {
		t.Error("the page does not show the recovery")
	}

	sick.err = context.DeadlineExceeded
	r.get("/healthz").want(t, 503, "code", "unavailable")
	r.get("/v1/stats").want(t, 503, "code", "unavailable")
	if page := r.get("/?prefix=third"); page.status != 200 || !strings.Contains(page.text, "does not answer") {
		t.Errorf("page of a silent service: %d", page.status)
	}
	sick.err = errors.New("password is hunter2")
	if a := r.get("/v1/stats").want(t, 500, "code", "internal"); strings.Contains(a.text, "hunter2") {
		t.Errorf("an internal error is told to callers: %s", a.text)
	}
	sick.err = nil
}

// follow opens a stream of server-sent events and returns them one by one.
func (r *rig) follow(path string, header ...string) (next func() (name, data string), stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	req := r.request(ctx, "GET", path, "")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("GET %s: %d %s", path, resp.StatusCode, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	next = func() (name, data string) {
		r.t.Helper()
		var text []string
		for lines.Scan() {
			line := lines.Text()
			switch {
			case line == "" && name != "":
				return name, strings.Join(text, "\n")
			case strings.HasPrefix(line, "event: "):
				name = line[len("event: "):]
			case strings.HasPrefix(line, "data: "):
				text = append(text, line[len("data: "):])
			}
		}
		r.t.Fatalf("GET %s: the stream ended: %v", path, lines.Err())
		return "", ""
	}
	return next, func() {
		cancel()
		resp.Body.Close()
	}
}

func TestWatch(t *testing.T) {
	r := start(t, Options{})
	next, stop := r.follow("/v1/watch?prefix=w/")
	defer stop()
	r.post("/v1/lock", `{"key":"elsewhere"}`).want(t, 200)
	a := r.post("/v1/lock", `{"key":"w/1","label":"one\nline"}`).want(t, 200, "acquired", true)
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"w/1","lockUuid":%q}`, a.str("lockUuid"))).want(t, 200)
	r.post("/v1/lock", `{"key":"w/2","ttl":20}`).want(t, 200, "acquired", true)
	for _, want := range []struct{ kind, key string }{
		{"granted", "w/1"}, {"released", "w/1"}, {"granted", "w/2"}, {"expired", "w/2"},
	} {
		name, data := next()
		var e event
		var v any
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		schema := r.described.answerSchema("GET", "/v1/watch", 200, "text/event-stream")
		for _, p := range r.described.check(schema, v, true, "event") {
			t.Error(p)
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if name != want.kind || string(e.Event) != want.kind || e.Key != want.key || e.Token == 0 {
			t.Errorf("event %s %s, want %v", name, data, want)
		}
		if strings.Contains(data, a.str("lockUuid")) {
			t.Errorf("a watch shows hold ids: %s", data)
		}
	}
}

// TestWatchAgain shows that a watcher who was cut off is told of the gap.
func TestWatchAgain(t *testing.T) {
	r := start(t, Options{})
	next, stop := r.follow("/v1/watch", "Last-Event-ID", "7")
	defer stop()
	if name, data := next(); name != "gap" || data != `{"event":"gap"}` {
		t.Errorf("event %s %s, want a gap", name, data)
	}
}

// TestSlowWatcher shows that events beyond the buffer are dropped, that the
// service's loop never waits, and that the watcher is told once.
func TestSlowWatcher(t *testing.T) {
	q := newQueue()
	for i := range 3 * watchBuffer {
		q.put(lease.Event{Kind: lease.EventGranted, Token: lease.Token(i + 1)})
	}
	if len(q.events) != watchBuffer || len(q.lost) != 1 {
		t.Fatalf("%d events kept and %d gaps, want %d and 1", len(q.events), len(q.lost), watchBuffer)
	}
	for i := range watchBuffer {
		if e := <-q.events; e.Token != lease.Token(i+1) {
			t.Fatalf("event %d has token %d", i, e.Token)
		}
	}
}

// TestStreamEndsWithViewer shows that a closed stream frees its watch.
func TestStreamEndsWithViewer(t *testing.T) {
	r := start(t, Options{})
	_, stopWatch := r.follow("/v1/watch")
	next, stopStream := r.follow("/v1/status/stream")
	next()
	stopWatch()
	stopStream()
	eventually(t, "nothing is open", func() bool {
		st, err := r.svc.Stats(context.Background())
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return err == nil && st.Watches == 0 && r.server.streams == 0
	})
}
