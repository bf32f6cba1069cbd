package httpserve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

func TestLockAndUnlock(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","label":"first"}`).
		want(t, 200, "acquired", true, "key", "a", "ttl", 5000, "waited", 0, "lockRequestCount", 0)
	if a.num("fencingToken") < 1 || a.num("remaining") < 1 || a.num("remaining") > 5000 || a.str("lockUuid") == "" {
		t.Fatalf("grant: %s", a.text)
	}
	b := r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", false, "key", "a", "code", "busy", "lockRequestCount", 0)
	holder := b.body["holders"].([]any)[0].(map[string]any)
	if holder["label"] != "first" || holder["session"] != "http" || holder["remaining"].(float64) < 1 ||
		!strings.Contains(holder["who"].(string), "first") {
		t.Errorf("holder: %v", holder)
	}
	if _, is := b.body["error"]; is {
		t.Errorf("to be busy is no error: %s", b.text)
	}
	if strings.Contains(b.text, a.str("lockUuid")) {
		t.Errorf("the hold id is told to others: %s", b.text)
	}
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"a","lockUuid":%q}`, a.str("lockUuid"))).
		want(t, 200, "released", true, "key", "a", "lockRequestCount", 0)
	c := r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", true)
	if c.num("fencingToken") <= a.num("fencingToken") {
		t.Errorf("token %v after %v", c.num("fencingToken"), a.num("fencingToken"))
	}
}

func TestUnlockRefusals(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", true).str("lockUuid")
	many := r.post("/v1/acquire-many", `{"keys":["m","n"]}`).want(t, 200, "acquired", true).str("lockUuid")
	for name, body := range map[string]string{
		"no id":              `{"key":"a"}`,
		"no key":             fmt.Sprintf(`{"lockUuid":%q}`, a),
		"unknown id":         `{"key":"a","lockUuid":"nobody's"}`,
		"of another key":     fmt.Sprintf(`{"key":"b","lockUuid":%q}`, a),
		"forced by wrong id": `{"key":"a","lockUuid":"nobody's","force":true}`,
		"none of many":       fmt.Sprintf(`{"key":"a","lockUuid":%q}`, many),
		"force of a free":    `{"key":"free","force":true}`,
		"reason, no force":   fmt.Sprintf(`{"key":"a","lockUuid":%q,"reason":"x"}`, a),
		"force: not a flag":  `{"key":"a","force":"yes"}`,
	} {
		got := r.post("/v1/unlock", body).want(t, 400, "released", false)
		if got.str("error") == "" {
			t.Errorf("%s: no error: %s", name, got.text)
		}
	}
	if r.holding("a") != 1 || r.holding("m") != 1 || r.holding("n") != 1 {
		t.Error("a refused unlock ended a hold")
	}
	// Each key of many is a hold of its own; release-many frees what is left.
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"m","lockUuid":%q}`, many)).want(t, 200, "released", true)
	if r.holding("m") != 0 || r.holding("n") != 1 {
		t.Errorf("%d and %d holders after one key of two was unlocked", r.holding("m"), r.holding("n"))
	}
	r.post("/v1/release-many", fmt.Sprintf(`{"lockUuid":%q}`, many)).want(t, 200, "released", true, "keys", []string{"n"})
}

// The id of a native hold with a wrong key changes nothing about that hold.
func TestUnlockForeignHold(t *testing.T) {
	r := start(t, Options{})
	sess, err := r.svc.Open(t.Context(), lease.SessionOptions{Name: "native"})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	sess.Acquire(lease.Request{ID: "native-1", Keys: []string{"a"}}, onDone(func(_ lease.Lease, err error) { got <- err }))
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	r.post("/v1/unlock", `{"key":"b","lockUuid":"native-1"}`).want(t, 400, "code", "not_held")
	l, err := r.svc.List(t.Context(), lease.Query{Key: "a"})
	if err != nil || len(l.Keys) != 1 || l.Keys[0].Holders[0].Detached {
		t.Errorf("a refused unlock changed the hold: %+v, %v", l, err)
	}
	r.post("/v1/unlock", `{"key":"a","lockUuid":"native-1"}`).want(t, 200, "released", true)
}

type onDone func(lease.Lease, error)

func (onDone) Queued(lease.Queued)             {}
func (f onDone) Done(l lease.Lease, err error) { f(l, err) }

func TestForce(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","max":2,"ttl":60000}`).want(t, 200, "acquired", true)
	b := r.post("/v1/lock", `{"key":"a","max":2,"ttl":60000}`).want(t, 200, "acquired", true)
	one := fmt.Sprintf(`{"key":"a","force":true,"fencingToken":%.0f,"by":"ops","reason":"stuck"}`, a.num("fencingToken"))
	f := r.post("/v1/unlock", one).want(t, 200, "released", true)
	if f.num("fencingToken") <= b.num("fencingToken") {
		t.Errorf("force answered with token %v, a holder has %v", f.num("fencingToken"), b.num("fencingToken"))
	}
	if r.holding("a") != 1 {
		t.Errorf("%d holders, want 1", r.holding("a"))
	}
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"a","lockUuid":%q}`, a.str("lockUuid"))).want(t, 400, "code", "not_held")
	r.post("/v1/unlock", `{"key":"a","force":true}`).want(t, 200, "released", true)
	if r.holding("a") != 0 {
		t.Error("force left a holder")
	}
}

func TestModes(t *testing.T) {
	r := start(t, Options{})
	for range 3 {
		r.post("/v1/lock", `{"key":"s","shared":true}`).want(t, 200, "acquired", true)
		r.post("/v1/lock", `{"key":"c","max":3}`).want(t, 200, "acquired", true)
	}
	r.post("/v1/lock", `{"key":"s"}`).want(t, 200, "acquired", false)
	r.post("/v1/lock", `{"key":"c","max":3}`).want(t, 200, "acquired", false)
	r.post("/v1/lock", `{"key":"c","max":null}`).want(t, 200, "acquired", false)
	for _, bad := range []string{`0`, `-1`, `1.5`, `"2"`, `true`, `1e2`, `[1]`} {
		a := r.post("/v1/lock", `{"key":"c","max":`+bad+`}`).want(t, 400, "acquired", false)
		if !strings.HasPrefix(a.str("error"), "max must be a positive integer") {
			t.Errorf("max %s: %s", bad, a.str("error"))
		}
	}
	r.post("/v1/lock", `{"key":"c","max":99999999999999999999}`).want(t, 200) // cut, like any that is too great
	r.post("/v1/lock", `{"key":"c","max":2,"shared":true}`).want(t, 400)
}

// TestClamp asks for more holders than a key may have. The native protocol
// refuses that; here it is cut to the cap and counted, once per request that
// reaches the service.
func TestClamp(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"c","max":1001,"ttl":60000}`).want(t, 200, "acquired", true)
	b := r.post("/v1/acquire-many", `{"keys":["c","d"],"max":5000000000,"ttl":60000}`).want(t, 200, "acquired", true)
	r.post("/v1/lock", `{"key":"c","max":1000,"ttl":60000}`).want(t, 200, "acquired", true)
	r.post("/v1/lock", `{"key":"c","max":1001,"wait":"long"}`).want(t, 400)
	r.get("/v1/stats").want(t, 200, "concurrencyCapClampsTotal", 2, "totalHolders", 4)
	for _, h := range r.get("/v1/locks/c").want(t, 200).body["holders"].([]any) {
		if h.(map[string]any)["max"] != float64(lease.MaxHolders) {
			t.Errorf("holder: %v", h)
		}
	}
	// The limit is what it was cut to: a smaller one of a newcomer still counts.
	r.post("/v1/lock", `{"key":"c","max":3}`).want(t, 200, "acquired", false)
	if a.num("fencingToken") < 1 || len(b.body["fencingTokens"].(map[string]any)) != 2 {
		t.Errorf("grants: %s, %s", a.text, b.text)
	}
}

func TestRefusedRequests(t *testing.T) {
	r := start(t, Options{})
	long := strings.Repeat("k", lease.MaxKeyLength+1)
	for name, c := range map[string]struct{ path, body, says string }{
		"no key":          {"/v1/lock", `{}`, "key is missing"},
		"empty key":       {"/v1/lock", `{"key":""}`, "key is empty"},
		"long key":        {"/v1/lock", `{"key":"` + long + `"}`, "MaxKeyLength"},
		"number as key":   {"/v1/lock", `{"key":7}`, "key must be a string"},
		"not JSON":        {"/v1/lock", `{"key":`, "JSON"},
		"not an object":   {"/v1/lock", `["a"]`, "one JSON object"},
		"empty body":      {"/v1/lock", ``, "one JSON object"},
		"trailing":        {"/v1/lock", `{"key":"a"} {}`, "more after"},
		"cut short":       {"/v1/lock", `{"key":"a"`, "JSON"},
		"unknown field":   {"/v1/lock", `{"key":"a","ttlMs":5}`, `unknown field "ttlMs"`},
		"capitals":        {"/v1/lock", `{"Key":"a"}`, `unknown field "Key"`},
		"twice":           {"/v1/lock", `{"key":"a","key":"b"}`, "key appears twice"},
		"invalid UTF-8":   {"/v1/lock", "{\"key\":\"a\xff\"}", "UTF-8"},
		"half a pair":     {"/v1/lock", `{"key":"a\ud800"}`, "surrogate"},
		"text ttl":        {"/v1/lock", `{"key":"a","ttl":"5s"}`, "ttl must be a positive integer of milliseconds"},
		"negative ttl":    {"/v1/lock", `{"key":"a","ttl":-1}`, "ttl must be a positive"},
		"null ttl":        {"/v1/lock", `{"key":"a","ttl":null}`, "forever"},
		"endless ttl":     {"/v1/lock", `{"key":"a","ttl":9223372036854775807}`, "MaxTTL"},
		"both ttls":       {"/v1/lock", `{"key":"a","ttl":5,"forever":true}`, "exclude"},
		"endless wait":    {"/v1/lock", `{"key":"a","wait":9223372036854775807}`, "MaxWait"},
		"empty requestId": {"/v1/lock", `{"key":"a","requestId":""}`, "requestId is empty"},
		"no keys":         {"/v1/acquire-many", `{"keys":[]}`, "keys must be a list"},
		"missing keys":    {"/v1/acquire-many", `{}`, "keys must be a list"},
		"one is no text":  {"/v1/acquire-many", `{"keys":["a",1]}`, "keys[1] must be a string"},
		"too many keys":   {"/v1/acquire-many", `{"keys":` + manyKeys(65) + `}`, "MaxKeys"},
		"nothing renewed": {"/v1/renew", `{}`, "lockUuid is missing"},
		"nothing to free": {"/v1/release-many", `{}`, "lockUuid is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.post(c.path, c.body).want(t, 400, "code", "refused")
			if !strings.Contains(a.str("error"), c.says) {
				t.Errorf("error %q does not say %q", a.str("error"), c.says)
			}
		})
	}
	if l, err := r.svc.List(context.Background(), lease.Query{}); err != nil || len(l.Keys) != 0 {
		t.Errorf("refused requests left %v, %v", l.Keys, err)
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%q", fmt.Sprint("k", i))
	}
	return "[" + strings.Join(keys, ",") + "]"
}

func TestManyKeys(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/acquire-many", `{"keys":["z","a","m","a"]}`).
		want(t, 200, "acquired", true, "keys", []string{"a", "m", "z"}, "ttl", 5000)
	tokens := a.body["fencingTokens"].(map[string]any)
	if len(tokens) != 3 || tokens["a"] == tokens["z"] {
		t.Errorf("tokens %v", tokens)
	}
	if _, is := a.body["fencingToken"]; is {
		t.Errorf("one token for many keys: %s", a.text)
	}
	b := r.post("/v1/acquire-many", `{"keys":["b","m"]}`).want(t, 409, "acquired", false, "contendedKey", "m", "code", "busy")
	if len(b.body["holders"].([]any)) != 1 {
		t.Errorf("holders: %s", b.text)
	}
	if r.holding("b") != 0 {
		t.Error("a refused request holds a part")
	}
	r.post("/v1/acquire-many", `{"keys":["b","m"],"wait":20}`).want(t, 409, "code", "timeout", "contendedKey", "m")
	id := a.str("lockUuid")
	r.post("/v1/renew", fmt.Sprintf(`{"lockUuid":%q,"ttl":9000}`, id)).
		want(t, 200, "renewed", true, "ttl", 9000, "keys", []string{"a", "m", "z"})
	r.post("/v1/release-many", fmt.Sprintf(`{"lockUuid":%q}`, id)).want(t, 200, "released", true, "keys", []string{"a", "m", "z"})
	r.post("/v1/release-many", fmt.Sprintf(`{"lockUuid":%q}`, id)).want(t, 404, "released", false)
	r.post("/v1/acquire-many", `{"keys":`+manyKeys(64)+`}`).want(t, 200, "acquired", true)
}

func TestRenewAndForever(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","ttl":1000}`).want(t, 200, "acquired", true)
	renewed := r.post("/v1/renew", fmt.Sprintf(`{"lockUuid":%q,"ttl":60000}`, a.str("lockUuid"))).
		want(t, 200, "renewed", true, "key", "a", "ttl", 60000, "fencingToken", a.num("fencingToken"))
	if renewed.num("remaining") < 50_000 {
		t.Errorf("renewal: %s", renewed.text)
	}
	r.post("/v1/renew", fmt.Sprintf(`{"lockUuid":%q}`, a.str("lockUuid"))).want(t, 200, "ttl", 60000)
	r.post("/v1/renew", `{"lockUuid":"nobody's"}`).want(t, 404, "code", "not_held")
	f := r.post("/v1/lock", `{"key":"f","forever":true}`).want(t, 200, "forever", true)
	for _, absent := range []string{"ttl", "remaining"} {
		if _, is := f.body[absent]; is {
			t.Errorf("%s of a lock that never expires: %s", absent, f.text)
		}
	}
	k := r.get("/v1/locks/f").want(t, 200)
	holder := k.body["holders"].([]any)[0].(map[string]any)
	if holder["forever"] != true || holder["remaining"] != nil {
		t.Errorf("holder: %v", holder)
	}
}

func TestExpiry(t *testing.T) {
	r := start(t, Options{})
	r.post("/v1/lock", `{"key":"a","ttl":30}`).want(t, 200, "acquired", true)
	r.post("/v1/lock", `{"key":"a","wait":10000}`).want(t, 200, "acquired", true)
}

// TestWait has a request wait for the release of another, and one run out of
// time.
func TestWait(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","ttl":60000}`).want(t, 200, "acquired", true)
	r.post("/v1/lock", `{"key":"a","wait":20}`).want(t, 200, "acquired", false, "code", "timeout")
	got := make(chan answer, 1)
	go func() { got <- r.post("/v1/lock", `{"key":"a","wait":60000}`) }()
	eventually(t, "one waits", func() bool { return r.waiting("a") == 1 })
	r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", false, "lockRequestCount", 1)
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"a","lockUuid":%q}`, a.str("lockUuid"))).want(t, 200, "lockRequestCount", 1)
	b := (<-got).want(t, 200, "acquired", true)
	if b.num("fencingToken") <= a.num("fencingToken") {
		t.Errorf("token %v after %v", b.num("fencingToken"), a.num("fencingToken"))
	}
}

// TestHangUp shows that a caller who goes away leaves neither a waiter nor a
// hold behind.
func TestHangUp(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","ttl":60000}`).want(t, 200, "acquired", true)
	ctx, hangUp := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		resp, err := r.client.Do(r.request(ctx, "POST", "/v1/lock", `{"key":"a","wait":60000}`))
		if err == nil {
			resp.Body.Close()
		}
		gone <- err
	}()
	eventually(t, "one waits", func() bool { return r.waiting("a") == 1 })
	hangUp()
	if err := <-gone; err == nil {
		t.Fatal("the request was answered though its caller hung up")
	}
	eventually(t, "nobody waits", func() bool { return r.waiting("a") == 0 })
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"a","lockUuid":%q}`, a.str("lockUuid"))).want(t, 200)
	if r.holding("a") != 0 {
		t.Error("the lock went to a caller that had hung up")
	}
	eventually(t, "no caller is counted", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return len(r.server.callers) == 0
	})
}

func TestRepeat(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","requestId":"once"}`).want(t, 200, "acquired", true, "lockUuid", "once")
	r.post("/v1/lock", `{"key":"a","requestId":"once"}`).
		want(t, 200, "acquired", true, "fencingToken", a.num("fencingToken"))
	r.post("/v1/lock", `{"key":"b","requestId":"once"}`).want(t, 400, "code", "refused")
	r.post("/v1/lock", `{"key":"a","requestId":"once","max":2}`).want(t, 400, "code", "refused")
	r.post("/v1/unlock", `{"key":"a","lockUuid":"once"}`).want(t, 200, "released", true)
	r.post("/v1/lock", `{"key":"a","requestId":"once"}`).want(t, 409, "acquired", false, "code", "over")
}

// TestRepeatOutlivesHangUp has a caller ask again under its request id before
// the connection of its first try is gone: the place in the queue must stay.
func TestRepeatOutlivesHangUp(t *testing.T) {
	r := start(t, Options{})
	a := r.post("/v1/lock", `{"key":"a","ttl":60000}`).want(t, 200, "acquired", true)
	body := `{"key":"a","wait":60000,"requestId":"again"}`
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if resp, err := r.client.Do(r.request(ctx, "POST", "/v1/lock", body)); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "one waits", func() bool { return r.waiting("a") == 1 })
	got := make(chan answer, 1)
	go func() { got <- r.post("/v1/lock", body) }()
	callers := func() int {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.callers["again"]
	}
	eventually(t, "two callers of one request", func() bool { return callers() == 2 })
	hangUp()
	<-gone
	eventually(t, "one caller is left", func() bool { return callers() == 1 })
	if r.waiting("a") != 1 {
		t.Fatal("the place was lost")
	}
	r.post("/v1/unlock", fmt.Sprintf(`{"key":"a","lockUuid":%q}`, a.str("lockUuid"))).want(t, 200)
	(<-got).want(t, 200, "acquired", true, "lockUuid", "again")
}

// TestRestart shows that holds outlive the broker when it has a directory, and
// that a repeat after the restart gets the grant from before.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	open := func() (*leaselocal.Service, *rig) {
		svc, err := leaselocal.Open(leaselocal.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return svc, startOn(t, svc, Options{})
	}
	svc, r := open()
	a := r.post("/v1/lock", `{"key":"a","requestId":"keep","ttl":60000,"max":2}`).want(t, 200, "acquired", true)
	r.stop()
	if err := svc.Close(); err != nil {
		t.Fatal(err)
	}
	svc, r = open()
	defer svc.Close()
	defer r.stop()
	r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", false)
	r.post("/v1/lock", `{"key":"a","requestId":"keep","ttl":60000,"max":2}`).
		want(t, 200, "acquired", true, "fencingToken", a.num("fencingToken"))
	if r.holding("a") != 1 {
		t.Errorf("%d holders after a repeat, want 1", r.holding("a"))
	}
	r.post("/v1/renew", `{"lockUuid":"keep","ttl":61000}`).want(t, 200, "renewed", true)
	r.post("/v1/unlock", `{"key":"a","lockUuid":"keep"}`).want(t, 200, "released", true)
	r.post("/v1/lock", `{"key":"a"}`).want(t, 200, "acquired", true)
}

// TestClose shows that a waiting caller is answered, streams end, and later
// requests are refused, all promptly.
func TestClose(t *testing.T) {
	r := start(t, Options{})
	r.post("/v1/lock", `{"key":"a","ttl":60000}`).want(t, 200, "acquired", true)
	got := make(chan answer, 2)
	go func() { got <- r.post("/v1/lock", `{"key":"a","wait":60000}`) }()
	go func() { got <- r.get("/v1/watch") }()
	go func() { got <- r.get("/v1/status/stream") }()
	eventually(t, "one waits", func() bool { return r.waiting("a") == 1 })
	eventually(t, "the streams are open", func() bool {
		st, err := r.svc.Stats(context.Background())
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return err == nil && st.Watches == 1 && r.server.streams == 1
	})
	begin := time.Now()
	if err := r.server.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("close took %v", took)
	}
	closed := 0
	for range 3 {
		if a := <-got; a.status == 503 {
			a.want(t, 503, "acquired", false, "code", "closed")
			closed++
		}
	}
	if closed != 1 {
		t.Errorf("%d answers say closed, want the waiter's", closed)
	}
	if r.holding("a") != 1 {
		t.Error("a hold ended with the front end")
	}
	if err := r.server.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestServiceGoesFirst closes the service under the front end, as a broker does
// that is in a hurry: everybody is still answered.
func TestServiceGoesFirst(t *testing.T) {
	r := start(t, Options{})
	r.post("/v1/lock", `{"key":"a","ttl":60000}`).want(t, 200, "acquired", true)
	got := make(chan answer, 1)
	go func() { got <- r.post("/v1/lock", `{"key":"a","wait":60000}`) }()
	eventually(t, "one waits", func() bool { return r.waiting("a") == 1 })
	if err := r.svc.Close(); err != nil {
		t.Fatal(err)
	}
	(<-got).want(t, 503, "acquired", false, "code", "closed")
	r.post("/v1/lock", `{"key":"b"}`).want(t, 503, "code", "closed")
	r.get("/readyz").want(t, 503, "code", "closed")
	if page := r.get("/").want(t, 200); !strings.Contains(page.text, "does not answer") {
		t.Error("the page does not say that the service is gone")
	}
}
