package httpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on a loopback port, in front of a real service.
type rig struct {
	t      *testing.T
	svc    lease.Service
	server *Server
	base   string
	client *http.Client
	served chan error

	described *description
	mu        sync.Mutex      // guards seen
	seen      map[string]bool // method, path and status of answers, by the description
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return startOn(t, svc, o)
}

func startOn(t *testing.T, svc lease.Service, o Options) *rig {
	t.Helper()
	server, err := New(svc, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, svc: svc, server: server, base: "http://" + l.Addr().String(),
		client: &http.Client{Transport: &http.Transport{}}, served: make(chan error, 1),
		described: describe(t), seen: make(map[string]bool)}
	go func() { r.served <- server.Serve(l) }()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) stop() {
	r.client.CloseIdleConnections()
	if err := r.server.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	if err := <-r.served; err != nil {
		r.t.Errorf("serve: %v", err)
	}
	r.served <- nil // stopping twice is harmless
}

// answer is a decoded reply.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

func (r *rig) do(req *http.Request) answer {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(text)}
	if req.Method != http.MethodHead && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &a.body); err != nil {
			r.t.Fatalf("%s %s: not JSON: %v: %s", req.Method, req.URL, err, text)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verify(req, a)
	return a
}

func (r *rig) request(ctx context.Context, method, path, body string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func (r *rig) post(path, body string) answer {
	r.t.Helper()
	return r.do(r.request(context.Background(), http.MethodPost, path, body))
}

func (r *rig) get(path string) answer {
	r.t.Helper()
	return r.do(r.request(context.Background(), http.MethodGet, path, ""))
}

// want fails unless the reply has this status and these members, given as name
// and value by turns.
func (a answer) want(t *testing.T, status int, members ...any) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.text)
	}
	if problem := a.lacks(members); problem != "" {
		t.Fatalf("%s: %s", problem, a.text)
	}
	return a
}

// lacks says which of the members, name and value by turns, is another.
func (a answer) lacks(members []any) string {
	for i := 0; i < len(members); i += 2 {
		got, _ := json.Marshal(a.body[members[i].(string)])
		want, _ := json.Marshal(members[i+1])
		if !bytes.Equal(got, want) {
			return fmt.Sprintf("%s is %s, want %s", members[i], got, want)
		}
	}
	return ""
}

func (a answer) str(name string) string { s, _ := a.body[name].(string); return s }
func (a answer) num(name string) float64 {
	n, _ := a.body[name].(float64)
	return n
}

// eventually polls a condition of a running system, with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within half a minute: %s", what)
		}
		<-tick.C
	}
}

func (r *rig) waiting(key string) int {
	r.t.Helper()
	l, err := r.svc.List(context.Background(), lease.Query{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(l.Keys) == 0 {
		return 0
	}
	return l.Keys[0].Waiting
}

func (r *rig) holding(key string) int {
	r.t.Helper()
	l, err := r.svc.List(context.Background(), lease.Query{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(l.Keys) == 0 {
		return 0
	}
	return len(l.Keys[0].Holders)
}
