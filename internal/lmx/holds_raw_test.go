package lmx_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
)

// Tokens of a key rise over whatever ends a hold, and stay exact in clients that
// have only floating point.
func TestTokensRise(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		last := int64(0)
		rises := func(how string, token int64) {
			t.Helper()
			if token <= last || token >= 1<<53 {
				t.Errorf("%s: the token is %d, after %d", how, token, last)
			}
			last = token
		}
		hold := func(how string, more frame) (id string) {
			t.Helper()
			id, f := r.Hold(c, "k", more)
			rises(how, f.Int("fencingToken"))
			return id
		}
		r.Release(c, "k", hold("first", nil))
		hold("release", frame{"ttl": 300})
		r.Pause(time.Second)
		hold("expiry", nil)
		r.Force(c, "k")
		r.Release(c, "k", hold("force", nil))
		r.Pause(time.Hour)
		r.Release(c, "k", hold("idle time", nil))
		hold("another max", frame{"max": 5})
		hold("a second holder", frame{"max": 5})
		r.Force(c, "k")
		_, f := many(r, c, nil, "k", "l")
		rises("many keys", f.Tokens("fencingTokens")["k"])
		releaseMany(r, c, f.Text("lockUuid"))
		other := r.Client()
		id, f := r.Hold(other, "k", nil)
		rises("another connection", f.Int("fencingToken"))
		waits := r.Queue(c, "k", nil)
		other.Close()
		rises("the end of a connection", r.Granted(c, waits).Int("fencingToken"))
		r.Release(c, "k", waits)
		_, answer := r.post("/v1/lock", `{"key":"k"}`)
		rises("HTTP", answer.Int("fencingToken"))
		_ = id
	})
}

// A ttl is kept to: absent or 0 is 5 s, null is for ever.
func TestTTL(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		for key, ttl := range map[string]any{"zero": 0, "never": nil, "short": 100, "long": 8000} {
			r.Hold(c, key, frame{"ttl": ttl})
		}
		none := r.ID()
		c.Send(lmxtest.Lock(none, "none", nil).Without("ttl"))
		r.Granted(c, none)
		r.wantKeys(c, "long", "never", "none", "short", "zero")
		r.Pause(150 * time.Millisecond)
		r.wantKeys(c, "long", "never", "none", "zero")
		r.Pause(4750 * time.Millisecond)
		r.wantKeys(c, "long", "never", "none", "zero")
		r.Pause(150 * time.Millisecond)
		r.wantKeys(c, "long", "never")
		r.Pause(3 * time.Second)
		r.wantKeys(c, "never")
		r.Pause(10_000 * time.Hour)
		r.wantKeys(c, "never")
		r.Quiet(c) // nobody is told of an expiry who did not ask
	})
}

// A hold that was to outlive its connection does, until its ttl, and can be
// released by id or by force.
func TestKeepLocksAfterDeath(t *testing.T) {
	bubble(t, func(r *rig) {
		other := r.Client()
		kept := func(key string, ttl any) (id string) {
			c := r.Client()
			id, _ = r.Hold(c, key, frame{"ttl": ttl, "keepLocksAfterDeath": true})
			c.Close()
			r.Quiet(other)
			return id
		}
		byID := kept("id", nil)
		kept("force", nil)
		kept("expires", 1000)
		r.wantKeys(other, "expires", "force", "id")
		r.Release(other, "id", byID)
		r.Force(other, "force")
		r.wantKeys(other, "expires")
		r.Pause(time.Second)
		r.wantKeys(other)
		// One that waited when it said so, and was granted.
		id, _ := r.Hold(other, "k", nil)
		c := r.Client()
		waits := r.Queue(c, "k", frame{"keepLocksAfterDeath": true})
		r.Release(other, "k", id)
		r.Granted(c, waits)
		c.Close()
		r.Queue(other, "k", nil)
		r.Quiet(other)
		// One that still waits goes with its connection: nobody would know of it.
		d := r.Client()
		r.Queue(d, "k", frame{"keepLocksAfterDeath": true})
		d.Close()
		r.Quiet(other)
		if n := r.Note("waiters"); n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
	})
}

// A hold is renewed by who asks for it, and evictions are told to who asks for them.
func TestRenewAndEvictions(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		renew := func(c *lmxtest.Client, id, key string, more frame) frame {
			uuid := r.ID()
			c.Send(frame{"type": "renew", "uuid": uuid, "_uuid": id, "key": key}.With(more))
			return c.Expect(uuid)
		}
		id, grant := r.Hold(a, "k", frame{"ttl": 1000})
		for range 5 {
			r.Pause(800 * time.Millisecond)
			if f := renew(a, id, "k", nil); !f.True("renewed") || f.Text("fencingToken") != grant.Text("fencingToken") {
				t.Fatalf("got %v, want it renewed", f)
			}
		}
		a.Send(frame{"type": "renew", "uuid": "1", "_uuid": id, "key": "k", "ttl": 3000})
		a.Want(`{"type":"renew","uuid":"1","key":"k","renewed":true,"fencingToken":` + grant.Text("fencingToken") + `}`)
		r.Pause(2500 * time.Millisecond)
		r.wantKeys(b, "k")
		a.Send(frame{"type": "subscribe-evictions", "uuid": "2"})
		a.Want(`{"type":"subscribe-evictions-success","uuid":"2"}`)
		r.Quiet(a)
		r.Pause(time.Second)
		a.Want(`{"type":"lock-evicted","uuid":"` + id + `","key":"k","fencingToken":` + grant.Text("fencingToken") + `,"reason":"expired"}`)
		if f := renew(a, id, "k", nil); !f.False("renewed") || f.Text("error") == "" {
			t.Errorf("of a hold that is over: got %v", f)
		}
		for _, f := range []frame{renew(a, "nobody", "k", nil), renew(a, id, "k", frame{"ttl": -1}), renew(a, id, "k", frame{"ttl": "x"}),
			renew(a, "", "k", nil), renew(a, id, "", nil)} {
			if !f.False("renewed") || f.Text("error") == "" {
				t.Errorf("got %v, want it refused", f)
			}
		}
		// A ttl for ever, and back.
		id, grant = r.Hold(a, "k", frame{"ttl": 1000})
		renew(a, id, "k", frame{"ttl": nil})
		r.Pause(time.Hour)
		r.wantKeys(b, "k")
		renew(b, id, "k", frame{"ttl": 60_000}) // any connection, by id
		r.Pause(30 * time.Second)
		r.Force(b, "k")
		a.Want(`{"type":"lock-evicted","uuid":"` + id + `","key":"k","fencingToken":` + grant.Text("fencingToken") + `,"reason":"forced"}`)
		// Released by its id from another protocol, it is lost to its connection.
		id, grant = r.Hold(a, "k", nil)
		if status, f := r.post("/v1/unlock", `{"key":"k","lockUuid":"`+id+`"}`); status != 200 {
			t.Errorf("HTTP: got %d %v", status, f)
		}
		a.Want(`{"type":"lock-evicted","uuid":"` + id + `","key":"k","fencingToken":` + grant.Text("fencingToken") + `,"reason":"released"}`)
		// What this protocol released is not evicted, by whoever it was.
		id, _ = r.Hold(a, "k", nil)
		r.Release(a, "k", id)
		id, _ = r.Hold(a, "k", nil)
		r.Release(b, "k", id)
		// Of many keys, each for itself.
		_, f := many(r, a, frame{"ttl": 1000}, "x", "y")
		r.Force(b, "y")
		a.Want(fmt.Sprintf(`{"type":"lock-evicted","uuid":%q,"key":"y","fencingToken":%d,"reason":"forced"}`, f.Text("lockUuid"), f.Tokens("fencingTokens")["y"]))
		r.Pause(time.Second)
		a.Want(fmt.Sprintf(`{"type":"lock-evicted","uuid":%q,"key":"x","fencingToken":%d,"reason":"expired"}`, f.Text("lockUuid"), f.Tokens("fencingTokens")["x"]))
		// One who did not ask is never told.
		r.Hold(b, "k", frame{"ttl": 500})
		r.Hold(b, "l", nil)
		r.Force(a, "l")
		r.Pause(time.Second)
		r.Quiet(a, b)
	})
}

// Clients of every protocol exclude one another, and see one another.
func TestAllProtocolsExclude(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		native := dialNative(r)
		native.ask(`{"n":1,"do":"open","name":"native"}`)
		// A hold of this dialect keeps the others out.
		id, _ := r.Hold(c, "k", nil)
		if status, f := r.post("/v1/lock", `{"key":"k"}`); status != 200 || !f.False("acquired") {
			t.Errorf("HTTP: got %d %v, want it contended", status, f)
		}
		if status, f := r.post("/v1/acquire-many", `{"keys":["a","k"]}`); status != 409 || f.Text("contendedKey") != "k" {
			t.Errorf("HTTP: got %d %v, want it contended by k", status, f)
		}
		if line := native.ask(`{"n":2,"do":"acquire","id":"x","key":"k","try":true}`); !strings.Contains(line, `"busy"`) {
			t.Errorf("native: got %s, want it busy", line)
		}
		// They wait for it, and it waits for them.
		if line := native.ask(`{"n":3,"do":"acquire","id":"y","key":"k"}`); !strings.Contains(line, `"queued"`) {
			t.Errorf("native: got %s, want it queued", line)
		}
		waits := r.Queue(c, "k", nil)
		r.Release(c, "k", id)
		if line := native.line(); !strings.Contains(line, `"ok":true`) {
			t.Errorf("native: got %s, want the grant", line)
		}
		r.Quiet(c)
		c.Send(lmxtest.Unlock("z", "z", "k", nil))
		if f := c.Expect("z"); !f.False("unlocked") {
			t.Errorf("unlock of a native hold with a wrong id: got %v", f)
		}
		c.Send(frame{"type": "lock-info-request", "uuid": "i", "key": "k"})
		if f := c.Expect("i"); !f.True("isLocked") || f.Int("lockRequestCount") != 1 {
			t.Errorf("lock info of a native hold: got %v", f)
		}
		native.ask(`{"n":4,"do":"release","id":"y"}`)
		r.Granted(c, waits)
		r.Release(c, "k", waits)
		_, f := r.post("/v1/lock", `{"key":"k","ttl":1000}`)
		if !f.True("acquired") {
			t.Errorf("HTTP: got %v, want it acquired", f)
		}
		// The id of a hold of HTTP releases it, as in live-mutex.
		waits = r.Queue(c, "k", nil)
		r.Release(c, "k", f.Text("lockUuid"))
		r.Granted(c, waits)
		if status, f := r.post("/v1/unlock", `{"key":"k","lockUuid":"`+waits+`"}`); status != 200 || !f.True("released") {
			t.Errorf("HTTP releases a hold of the dialect: got %d %v", status, f)
		}
		// A counted hold of one and a shared one of another exclude each other.
		r.Hold(c, "s", frame{"max": 5})
		if line := native.ask(`{"n":5,"do":"acquire","id":"s","key":"s","mode":"shared","try":true}`); !strings.Contains(line, `"busy"`) {
			t.Errorf("native shared hold beside a counted one: got %s, want it busy", line)
		}
		if line := native.ask(`{"n":6,"do":"acquire","id":"c","key":"s","mode":"counted","max":5,"try":true}`); !strings.Contains(line, `"ok":true`) {
			t.Errorf("native counted hold beside a counted one: got %s, want it granted", line)
		}
	})
}

// native is a client of the native protocol.
type native struct {
	r  *rig
	nc net.Conn
	in *bufio.Reader
}

func dialNative(r *rig) *native {
	r.t.Helper()
	nc, err := r.Connect()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { nc.Close() })
	n := &native{r, nc, bufio.NewReader(nc)}
	n.ask(`{"latchkey":1,"features":[]}`)
	return n
}

func (n *native) ask(line string) string {
	n.r.t.Helper()
	if !json.Valid([]byte(line)) {
		n.r.t.Fatalf("not JSON: %s", line)
	}
	if _, err := n.nc.Write([]byte(line + "\n")); err != nil {
		n.r.t.Fatalf("native: %v", err)
	}
	return n.line()
}

func (n *native) line() string {
	n.r.t.Helper()
	line, err := n.in.ReadString('\n')
	if err != nil {
		n.r.t.Fatalf("native: %v", err)
	}
	return strings.TrimSpace(line)
}

// The metrics of live-mutex have true values.
func TestMetrics(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		r.Hold(a, "k", frame{"max": 3000})
		r.Hold(a, "k", frame{"max": 3})
		r.Hold(a, "k", nil)
		r.Queue(b, "k", nil)
		r.Hold(a, "expires", frame{"ttl": 100})
		many(r, b, nil, "x", "y")
		for _, c := range []*lmxtest.Client{a, b} {
			id := r.ID()
			c.Send(frame{"type": "increment-readers", "uuid": id, "key": "r"})
			c.Expect(id)
		}
		r.Client()
		r.Pause(time.Second)
		for name, want := range map[string]string{
			"lmx_keys": "3", "lmx_holders": "5", "lmx_readers": "2", "lmx_waiters": "1",
			"lmx_clients":           "4", // the HTTP front end is one
			"lmx_pending_deadlines": "5", "lmx_ttl_evictions_total": "1", "lmx_max_concurrency_cap": "1000",
			"lmx_concurrency_cap_clamps_total": "1", "lmx_composite_locks_held": "1",
		} {
			if got := r.metric(name); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
	})
}

// When the broker ends, those that wait are told nothing: their clients connect
// again by themselves and ask again.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tcpserve.Options{})
		a, b := r.Client(), r.Client()
		r.Hold(a, "k", nil)
		r.Queue(b, "k", nil)
		many(r, b, nil, "k", "l")
		r.Quiet(a, b)
		if err := r.svc.Close(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- r.tcp.Shutdown(t.Context()) }()
		a.Ended(10 * time.Second)
		b.Ended(10 * time.Second)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c := r.lmx.Counts(); c.Clients != 0 || c.Sessionless != 0 {
			t.Errorf("the counts are %+v when all is over", c)
		}
	})
}
