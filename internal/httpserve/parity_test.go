package httpserve

import (
	"fmt"
	"html"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/tally"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// exchange is one request as a caller of live-mutex's front end makes it, and
// the answer that such a caller relies on.
type exchange struct {
	claim   string
	method  string
	path    string
	body    string // $name stands for the lockUuid that was kept under the name
	status  int
	members []any    // members of the answer, name and value by turns
	has     []string // members that must be there, with whatever value
	hasNot  []string
	keep    string // name to keep the lockUuid of the answer under
}

const post, get = "POST", "GET"

// parity is a conversation: a row may rely on the locks that those before it took.
var parity = []exchange{
	{claim: "a free key is granted, with a token and an id", method: post, path: "/v1/lock",
		body: `{"key":"a","ttl":60000}`, status: 200,
		members: []any{"acquired", true, "key", "a", "lockRequestCount", 0}, has: []string{"lockUuid", "fencingToken"}, keep: "a"},
	{claim: "a contended key is no error", method: post, path: "/v1/lock",
		body: `{"key":"a","ttl":60000}`, status: 200,
		members: []any{"acquired", false, "key", "a", "lockRequestCount", 0}, hasNot: []string{"lockUuid", "fencingToken", "error"}},
	{claim: "a refused request does not stay queued", method: get, path: "/v1/locks/a", status: 200, members: []any{"waiting", 0}},
	{claim: "max admits that many", method: post, path: "/v1/lock", body: `{"key":"pool","ttl":60000,"max":2}`, status: 200,
		members: []any{"acquired", true}},
	{claim: "max admits that many", method: post, path: "/v1/lock", body: `{"key":"pool","ttl":60000,"max":2}`, status: 200,
		members: []any{"acquired", true}},
	{claim: "max admits no more", method: post, path: "/v1/lock", body: `{"key":"pool","ttl":60000,"max":2}`, status: 200,
		members: []any{"acquired", false}},
	{claim: "max over the cap is cut to it", method: post, path: "/v1/lock", body: `{"key":"wide","max":4000}`, status: 200,
		members: []any{"acquired", true}},
	{claim: "the three limits may be null", method: post, path: "/v1/lock",
		body: `{"key":"nulls","max":null,"maxRead":null,"maxWrite":null}`, status: 200, members: []any{"acquired", true}},
	{claim: "the limits of readers and writers are taken", method: post, path: "/v1/lock",
		body: `{"key":"rw","max":1,"maxRead":10,"maxWrite":1}`, status: 200, members: []any{"acquired", true}},
	{claim: "max 0", method: post, path: "/v1/lock", body: `{"key":"free","max":0}`, status: 400,
		members: []any{"acquired", false, "key", "free", "error", "max must be a positive integer, got 0"}},
	{claim: "max below 0", method: post, path: "/v1/lock", body: `{"key":"free","max":-3}`, status: 400,
		members: []any{"acquired", false, "error", "max must be a positive integer, got -3"}},
	{claim: "maxRead 0", method: post, path: "/v1/lock", body: `{"key":"free","maxRead":0}`, status: 400,
		members: []any{"acquired", false, "error", "maxRead must be a positive integer, got 0"}},
	{claim: "maxWrite below 0", method: post, path: "/v1/lock", body: `{"key":"free","max":2,"maxWrite":-1}`, status: 400,
		members: []any{"acquired", false, "error", "maxWrite must be a positive integer, got -1"}},
	{claim: "max 0 of many keys", method: post, path: "/v1/acquire-many", body: `{"keys":["free"],"max":0}`, status: 400,
		members: []any{"acquired", false, "error", "max must be a positive integer, got 0"}},
	{claim: "nothing of a refused request stays", method: get, path: "/v1/locks/free", status: 200,
		members: []any{"holders", []any{}, "waiting", 0}},
	{claim: "key missing", method: post, path: "/v1/lock", body: `{"ttl":5000}`, status: 400, has: []string{"error"}},
	{claim: "key is no string", method: post, path: "/v1/lock", body: `{"key":7}`, status: 400, has: []string{"error"}},
	{claim: "bad JSON", method: post, path: "/v1/lock", body: `{"key":`, status: 400, has: []string{"error"}},

	{claim: "unlock without id and force", method: post, path: "/v1/unlock", body: `{"key":"a"}`, status: 400,
		members: []any{"released", false, "key", "a"}, has: []string{"error"}},
	{claim: "unlock with a foreign id", method: post, path: "/v1/unlock", body: `{"key":"a","lockUuid":"foreign"}`, status: 400,
		members: []any{"released", false}, has: []string{"error"}},
	{claim: "force with a foreign id spares the holder", method: post, path: "/v1/unlock",
		body: `{"key":"a","lockUuid":"foreign","force":true}`, status: 400, members: []any{"released", false}, has: []string{"error"}},
	{claim: "unlock with the id", method: post, path: "/v1/unlock", body: `{"key":"a","lockUuid":"$a"}`, status: 200,
		members: []any{"released", true, "key", "a", "lockRequestCount", 0}},
	{claim: "unlock after the end says what happened", method: post, path: "/v1/unlock", body: `{"key":"a","lockUuid":"$a"}`,
		status: 400, members: []any{"released", false, "error", "it has ended: released"}},
	{claim: "force without id ends all", method: post, path: "/v1/unlock", body: `{"key":"pool","force":true}`, status: 200,
		members: []any{"released", true, "key", "pool", "lockRequestCount", 0}},
	{claim: "all of them", method: get, path: "/v1/locks/pool", status: 200, members: []any{"holders", []any{}}},
	{claim: "unlock without a key", method: post, path: "/v1/unlock", body: `{"lockUuid":"$a"}`, status: 400, has: []string{"error"}},
	{claim: "unlock, bad JSON", method: post, path: "/v1/unlock", body: `[`, status: 400, has: []string{"error"}},

	{claim: "many keys are sorted and had together", method: post, path: "/v1/acquire-many",
		body: `{"keys":["z","m","b","m"],"ttl":60000}`, status: 200,
		members: []any{"acquired", true, "keys", []string{"b", "m", "z"}}, has: []string{"lockUuid", "fencingTokens"}, keep: "many"},
	{claim: "contended many", method: post, path: "/v1/acquire-many", body: `{"keys":["c","m"],"ttl":60000}`, status: 409,
		members: []any{"acquired", false, "contendedKey", "m", "keys", []string{"c", "m"}}, hasNot: []string{"lockUuid", "fencingTokens"}},
	{claim: "nothing is held of it", method: get, path: "/v1/locks/c", status: 200, members: []any{"holders", []any{}, "waiting", 0}},
	{claim: "no keys", method: post, path: "/v1/acquire-many", body: `{"keys":[]}`, status: 400, has: []string{"error"}},
	{claim: "keys missing", method: post, path: "/v1/acquire-many", body: `{}`, status: 400, has: []string{"error"}},
	{claim: "65 keys", method: post, path: "/v1/acquire-many", body: `{"keys":` + manyKeys(65) + `}`, status: 400, has: []string{"error"}},
	{claim: "forcing one key of many", method: post, path: "/v1/unlock", body: `{"key":"m","force":true}`, status: 200,
		members: []any{"released", true}},
	{claim: "and unlocking it again", method: post, path: "/v1/unlock", body: `{"key":"m","lockUuid":"$many"}`, status: 400,
		members: []any{"released", false, "error", "the lease with this id does not hold this key, or not any more"}},
	{claim: "release-many frees what is left", method: post, path: "/v1/release-many", body: `{"lockUuid":"$many"}`, status: 200,
		members: []any{"released", true, "keys", []string{"b", "z"}}},
	{claim: "release-many of what is over", method: post, path: "/v1/release-many", body: `{"lockUuid":"$many"}`, status: 404,
		members: []any{"released", false}, has: []string{"error"}},
	{claim: "release-many without id", method: post, path: "/v1/release-many", body: `{}`, status: 400, has: []string{"error"}},

	{claim: "liveness", method: get, path: "/healthz", status: 200, members: []any{"ok", true, "isOpen", true}},
	{claim: "liveness under its other name", method: get, path: "/health", status: 200, members: []any{"ok", true, "isOpen", true}},
	{claim: "statistics", method: get, path: "/v1/stats", status: 200,
		members: []any{"maxConcurrencyCap", 1000, "concurrencyCapClampsTotal", 1, "ttlSweepIntervalMs", 0},
		has: []string{"memoryUsage", "uptime", "startedAt", "connectedClients", "totalLocks", "totalHolders", "totalReaders",
			"pendingRequests", "activeTimeouts", "pendingDeadlines", "ttlEvictionsTotal", "compositeLocksHeld", "topKeys", "pid"}},
	{claim: "body over 64 KiB", method: post, path: "/v1/lock", body: `{"key":"` + strings.Repeat("x", 64<<10) + `"}`, status: 413},
	{claim: "unknown route", method: get, path: "/v2/lock", status: 404, has: []string{"error"}},
	{claim: "nothing to administer", method: get, path: "/admin/otel", status: 404},
	{claim: "wrong method", method: get, path: "/v1/lock", status: 404},
	{claim: "wrong method", method: "PUT", path: "/v1/unlock", status: 404},
	{claim: "wrong method", method: get, path: "/v1/acquire-many", status: 404},
	{claim: "wrong method", method: "DELETE", path: "/v1/release-many", status: 404},
	{claim: "wrong method", method: post, path: "/healthz", body: `{}`, status: 404},
	{claim: "wrong method", method: post, path: "/v1/stats", body: `{}`, status: 404},
	{claim: "wrong method", method: post, path: "/metrics", body: `{}`, status: 404},
	{claim: "wrong method", method: post, path: "/", body: `{}`, status: 404},
}

// TestParity has the conversation with a server that no TCP listener stands
// beside. What it cannot say is in other tests: a slow body is answered 408
// (TestSlowBody), and holds outlive the caller until their ttl (TestRestart).
func TestParity(t *testing.T) {
	r := start(t, Options{})
	kept := make(map[string]string)
	for _, x := range parity {
		body := regexp.MustCompile(`\$\w+`).ReplaceAllStringFunc(x.body, func(name string) string { return kept[name[1:]] })
		a := r.do(r.request(t.Context(), x.method, x.path, body))
		what := fmt.Sprintf("%s: %s %s %s", x.claim, x.method, x.path, lease.QuoteKey(body))
		if a.status != x.status {
			t.Errorf("%s: status %d, want %d: %s", what, a.status, x.status, a.text)
			continue
		}
		if problem := a.lacks(x.members); problem != "" {
			t.Errorf("%s: %s: %s", what, problem, a.text)
		}
		for _, name := range x.has {
			if _, is := a.body[name]; !is {
				t.Errorf("%s: no %s: %s", what, name, a.text)
			}
		}
		for _, name := range x.hasNot {
			if _, is := a.body[name]; is {
				t.Errorf("%s: %s is there: %s", what, name, a.text)
			}
		}
		if x.keep != "" {
			kept[x.keep] = a.str("lockUuid")
		}
	}
}

// TestParityOfThePage looks for what monitors of live-mutex's page rely on.
func TestParityOfThePage(t *testing.T) {
	r := start(t, Options{})
	const key = `<b onclick="x()">&'`
	r.post("/v1/lock", fmt.Sprintf(`{"key":%q,"ttl":60000}`, key)).want(t, 200, "acquired", true)
	for _, path := range []string{"/", "/status"} {
		page := r.get(path).want(t, 200)
		if kind := page.header.Get("Content-Type"); kind != "text/html; charset=utf-8" {
			t.Errorf("%s is %s", path, kind)
		}
		if !strings.HasPrefix(page.text, "<!doctype html>") {
			t.Errorf("%s does not begin as HTML does", path)
		}
		head, _, _ := strings.Cut(page.text, "</head>")
		if !strings.Contains(head, `<noscript><meta http-equiv="refresh" content="5"></noscript>`) {
			t.Errorf("%s is not refreshed without scripts", path)
		}
		if strings.Contains(page.text, "<b onclick") || !strings.Contains(page.text, html.EscapeString(key)) {
			t.Errorf("%s shows the key unescaped, or not at all", path)
		}
	}
}

// TestEndedHolds shows that an unlock that comes too late says what happened.
func TestEndedHolds(t *testing.T) {
	r := start(t, Options{})
	id := func(body string) string {
		return r.post("/v1/lock", body).want(t, 200, "acquired", true).str("lockUuid")
	}
	evicted, forced, released := id(`{"key":"e","ttl":1}`), id(`{"key":"f","ttl":60000}`), id(`{"key":"r","ttl":60000}`)
	eventually(t, "one is evicted", func() bool { return r.holding("e") == 0 })
	r.post("/v1/unlock", `{"key":"f","force":true}`).want(t, 200)
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"r","lockUuid":%q}`, released)).want(t, 200)
	for _, c := range []struct{ key, id, says string }{
		{"e", evicted, "it has ended: expired"},
		{"f", forced, "it has ended: forced"},
		{"r", released, "it has ended: released"},
		{"r", "never-was", "there is no hold with this id"},
	} {
		r.post("/v1/unlock", fmt.Sprintf(`{"key":%q,"lockUuid":%q}`, c.key, c.id)).
			want(t, 400, "released", false, "code", "not_held", "error", c.says)
	}
}

// TestTopKeys shows that held keys fill the places that contended ones leave.
func TestTopKeys(t *testing.T) {
	r := start(t, Options{})
	r.get("/v1/stats").want(t, 200, "topKeys", []any{})
	for i := range 12 {
		r.post("/v1/lock", fmt.Sprintf(`{"key":"k%02d","max":4,"ttl":60000}`, i)).want(t, 200)
	}
	s := r.open(lease.SessionOptions{Name: "w"})
	for _, key := range []string{"k03", "k11", "k11"} {
		s.Acquire(lease.Request{Keys: []string{key}}, quietCaller{})
	}
	eventually(t, "all wait", func() bool { return r.waiting("k11") == 2 })
	var got []string
	for _, k := range r.get("/v1/stats").want(t, 200).body["topKeys"].([]any) {
		k := k.(map[string]any)
		if k["holders"] != 1.0 || k["max"] != 4.0 || k["fencingToken"].(float64) < 1 {
			t.Errorf("top key: %v", k)
		}
		got = append(got, fmt.Sprint(k["key"], " ", k["waiters"]))
	}
	want := "k11 2,k03 1,k00 0,k01 0,k02 0,k04 0,k05 0,k06 0,k07 0,k08 0"
	if strings.Join(got, ",") != want {
		t.Errorf("top keys %v, want %s", got, want)
	}
}

// TestLiveMutexMetrics brings each of the eleven to a known value that is not
// zero, by a fake clock where time is in it, and reads it with its type. The same
// numbers are in /v1/stats.
func TestLiveMutexMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer svc.Close()
		s, err := New(svc, Options{Dialect: func() tally.Extra {
			return tally.Extra{Sessionless: 5, Readers: 3, Clamps: 7}
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ask := func(method, path, body string) string {
			t.Helper()
			req := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			if w.Code != 200 {
				t.Fatalf("%s %s: status %d: %s", method, path, w.Code, w.Body)
			}
			return w.Body.String()
		}
		ask(post, "/v1/lock", `{"key":"read","shared":true,"ttl":60000}`)
		ask(post, "/v1/lock", `{"key":"wide","max":1001,"forever":true}`)
		ask(post, "/v1/acquire-many", `{"keys":["m","n"],"ttl":60000}`)
		ask(post, "/v1/lock", `{"key":"gone","ttl":1000}`)
		other, err := svc.Open(t.Context(), lease.SessionOptions{Name: "other"})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			other.Acquire(lease.Request{Keys: []string{"read"}, Wait: time.Hour}, quietCaller{})
		}
		time.Sleep(7 * time.Second)

		page, stats := ask(get, "/metrics", ""), ask(get, "/v1/stats", "")
		for _, m := range []struct {
			name, kind string
			value      int
			stat       string
		}{
			{"lmx_keys", "gauge", 4, "totalLocks"},
			{"lmx_holders", "gauge", 4, "totalHolders"},
			{"lmx_readers", "gauge", 1 + 3, "totalReaders"},
			{"lmx_waiters", "gauge", 2, "pendingRequests"},
			{"lmx_clients", "gauge", 2 + 5, "connectedClients"},
			{"lmx_pending_deadlines", "gauge", 3 + 2, "pendingDeadlines"},
			{"lmx_ttl_evictions_total", "counter", 1, "ttlEvictionsTotal"},
			{"lmx_max_concurrency_cap", "gauge", 1000, "maxConcurrencyCap"},
			{"lmx_concurrency_cap_clamps_total", "counter", 1 + 7, "concurrencyCapClampsTotal"},
			{"lmx_composite_locks_held", "gauge", 1, "compositeLocksHeld"},
			{"lmx_uptime_seconds", "gauge", 7, "uptime"},
		} {
			for _, line := range []string{
				fmt.Sprintf("\n# TYPE %s %s\n", m.name, m.kind), fmt.Sprintf("\n%s %d\n", m.name, m.value),
			} {
				if !strings.Contains("\n"+page, line) {
					t.Errorf("the metrics do not have the line %s", strings.TrimSpace(line))
				}
			}
			if member := fmt.Sprintf(`"%s":%d,`, m.stat, m.value); !strings.Contains(stats, member) {
				t.Errorf("the statistics do not have %s: %s", member, stats)
			}
		}
	})
}
