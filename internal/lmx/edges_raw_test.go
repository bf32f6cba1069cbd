package lmx_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// Two connections may use one uuid, for one key and for two; each is released by
// itself.
func TestSameIDOnTwoConnections(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b, c := r.Client(), r.Client(), r.Client()
		for key, client := range map[string]*lmxtest.Client{"k": a, "l": b} {
			client.Send(lmxtest.Lock("same", key, nil))
			r.Granted(client, "same")
		}
		r.Release(a, "l", "same") // b's, since the key is named
		r.wantKeys(c, "k")
		b.Send(lmxtest.Lock("same", "l", nil))
		r.Granted(b, "same")
		b.Close()
		r.Quiet(a, c)
		r.wantKeys(c, "k")
		r.Release(c, "k", "same")
		r.wantKeys(c)
		// On one semaphore: the holder's own comes first.
		d := r.Client()
		for _, client := range []*lmxtest.Client{a, d} {
			client.Send(lmxtest.Lock("twin", "s", frame{"max": 2}))
			r.Granted(client, "twin")
		}
		r.Release(d, "s", "twin")
		a.Send(lmxtest.Lock("twin", "s", frame{"max": 2}))
		if f := a.Expect("twin"); !f.True("acquired") {
			t.Errorf("a's own hold is gone: %v", f)
		}
		if holders, _ := r.Info(c, "s"); len(holders) != 1 {
			t.Errorf("%q hold the key, want one", holders)
		}
		a.Close()
		d.Close()
		r.Quiet(c)
		r.wantKeys(c)
	})
}

// A uuid that is in use for another key is refused, and the first use stays.
func TestSameIDForTwoKeys(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		c.Send(lmxtest.Lock("id", "k", nil), lmxtest.Lock("id", "l", nil),
			frame{"type": "acquire-many", "uuid": "id", "keys": []string{"m", "n"}})
		r.Granted(c, "id")
		for range 2 {
			if f := c.Expect("id"); !f.False("acquired") || f.Text("error") == "" {
				t.Errorf("got %v, want it refused", f)
			}
		}
		r.wantKeys(c, "k")
	})
}

// A key is text that is valid, or it is refused rather than changed: two keys must
// never become one.
func TestKeysAreNotChanged(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		for i, key := range []string{"\xff", `\ud800`, `\udc00x`, "a\x00b", `\u0000`, "tab\tin", `\x`, `\u12`, `bell\u0007`} {
			uuid := fmt.Sprintf("u%d", i)
			c.Raw(`{"type":"lock","uuid":"` + uuid + `","key":"` + key + `"}` + "\n")
			ping := r.ID()
			c.Send(frame{"type": "ping", "uuid": ping})
			c.Expect(ping)
			f, answered := c.Poll(uuid)
			switch {
			case answered && f.False("acquired") && strings.Contains(f.Text("error"), "key"):
			case answered && f.True("acquired"):
				c.Send(frame{"type": "ls", "uuid": "ls" + uuid})
				if keys := c.Expect("ls" + uuid).Texts("ls_result"); !slices.Contains(keys, f.Text("key")) {
					t.Errorf("key %q is known as %q, and its client was told %q", key, keys, f.Text("key"))
				}
				r.Release(c, f.Text("key"), uuid)
			case answered:
				t.Errorf("key %q: got %v", key, f)
			}
		}
		r.wantKeys(c)
	})
}

// ls has every key, however many there are.
func TestListIsWhole(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		const locks = 190 // of 64 keys: more than one listing of the service has
		want := 0
		for i := range locks {
			keys := make([]string, 64)
			for j := range keys {
				keys[j] = fmt.Sprintf("%04d", 64*i+j)
			}
			id := r.ID()
			c.Send(frame{"type": "acquire-many", "uuid": id, "keys": keys, "ttl": nil})
			c.Expect(id)
			want += len(keys)
		}
		c.Send(frame{"type": "ls", "uuid": "ls"})
		got := c.Expect("ls").Texts("ls_result")
		if len(got) != want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != want {
			t.Errorf("got %d keys, want %d, each once and in order", len(got), want)
		}
		c.Send(frame{"inspectCommand": "lockcount"})
		if f := c.Next(); f.Int("inspectResult") != int64(want) {
			t.Errorf("inspect: got %v, want %d", f, want)
		}
	})
}

// A durable broker that starts again has the holds that were to outlive their
// connections, and no others: their clients have connected anew and hold nothing.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	var kept, keptToken string
	open := func(t *testing.T) *rig {
		svc, err := leaselocal.Open(leaselocal.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return rigOn(t, svc, tcpserve.Options{})
	}
	t.Run("before", func(t *testing.T) {
		r := open(t)
		a, b := r.Client(), r.Client()
		id, f := r.Hold(a, "kept", frame{"ttl": 60_000, "keepLocksAfterDeath": true})
		kept, keptToken = id, f.Text("fencingToken")
		r.Hold(a, "never", frame{"ttl": nil})
		r.Hold(a, "held", nil)
		r.Queue(b, "held", nil)
		many(r, b, frame{"ttl": nil}, "x", "y")
		r.post("/v1/lock", `{"key":"http","ttl":60000}`)
	})
	t.Run("after", func(t *testing.T) {
		r := open(t)
		c := r.Client()
		r.wantKeys(c, "http", "kept")
		r.Hold(c, "never", nil)
		_, f := r.Hold(c, "held", nil)
		if f.Text("fencingToken") <= keptToken {
			t.Errorf("the token is %s after the restart, and was %s before", f.Text("fencingToken"), keptToken)
		}
		waits := r.Queue(c, "kept", nil)
		r.Release(c, "kept", kept)
		r.Granted(c, waits)
	})
}

// Sessions and their holds end with connections however these end, the client's way
// or the broker's.
func TestEveryEndFreesAll(t *testing.T) {
	bubble(t, func(r *rig) {
		other := r.Client()
		for name, end := range map[string]func(*lmxtest.Client){
			"close":    func(c *lmxtest.Client) { c.Close() },
			"end hook": func(c *lmxtest.Client) { c.Send(frame{"type": "end-connection-from-broker-for-testing-purposes"}) },
			"destroy hook": func(c *lmxtest.Client) {
				c.Send(frame{"type": "destroy-connection-from-broker-for-testing-purposes"})
			},
			"too long a line":    func(c *lmxtest.Client) { c.Push(strings.Repeat("x", 70_000)) },
			"another version":    func(c *lmxtest.Client) { c.Version("9.0.0") },
			"simulated mismatch": func(c *lmxtest.Client) { c.Send(frame{"type": "simulate-version-mismatch"}) },
			"half a line":        func(c *lmxtest.Client) { c.Raw(`{"type":"lo`); c.Close() },
		} {
			c := r.Client()
			r.Hold(c, "k", nil)
			r.Hold(c, "s", frame{"max": 3})
			many(r, c, nil, "x", "y")
			mine, _ := r.Hold(other, "w", nil)
			r.Queue(c, "w", nil)
			r.Queue(c, "k", nil)
			reads := r.ID()
			c.Send(frame{"type": "increment-readers", "uuid": reads, "key": "rw"})
			c.Expect(reads)
			end(c)
			r.Pause(3 * time.Second)
			r.Quiet(other)
			r.wantKeys(other, "w")
			r.Release(other, "w", mine)
			if n := r.Note("clients"); n != 1 {
				t.Errorf("%s: %d clients are counted, want 1", name, n)
			}
			keepsNothing(r.World)
		}
	})
}

// Connections come and go without a trace, whether they said something or not.
func TestConnectionsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tcpserve.Options{})
		before := r.metric("lmx_clients")
		for i := range 50 {
			c := r.Dial()
			switch i % 4 {
			case 1:
				c.Version("0.2.25")
			case 2:
				c.Send(frame{"type": "ping", "uuid": "p"})
			case 3:
				r.Hold(c, "k", nil)
			}
			c.Close()
			r.Pause(time.Millisecond)
		}
		r.Quiet()
		if c := r.lmx.Counts(); c.Clients != 0 || c.Sessionless != 0 || r.metric("lmx_clients") != before {
			t.Errorf("the counts are %+v when all is over, lmx_clients is %s", c, r.metric("lmx_clients"))
		}
		keepsNothing(r.World)
	})
}
