package lmx_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// many asks for several keys and returns the answer.
func many(r *rig, c *lmxtest.Client, more frame, keys ...string) (uuid string, f frame) {
	r.t.Helper()
	uuid = r.ID()
	c.Send(frame{"type": "acquire-many", "uuid": uuid, "keys": keys, "ttl": 60000}.With(more))
	return uuid, c.Expect(uuid)
}

// releaseMany gives back what is left of a lock of many keys, and returns the answer.
func releaseMany(r *rig, c *lmxtest.Client, lockUUID string) frame {
	r.t.Helper()
	uuid := r.ID()
	c.Send(frame{"type": "release-many", "uuid": uuid, "lockUuid": lockUUID})
	return c.Expect(uuid)
}

// held checks who holds and how many keys there are.
func (r *rig) wantKeys(c *lmxtest.Client, want ...string) {
	r.t.Helper()
	uuid := r.ID()
	c.Send(frame{"type": "ls", "uuid": uuid})
	if got := c.Expect(uuid).Texts("ls_result"); !slices.Equal(got, want) {
		r.t.Errorf("the keys are %q, want %q", got, want)
	}
}

// Keys are sorted, each once, and each has its own token; the answers have the
// fields that clients know.
func TestManyFrames(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		a.Send(frame{"type": "acquire-many", "uuid": "1", "keys": []string{"z", "a", "m", "a"}, "ttl": 60000})
		grant := a.Want(`{"type":"acquire-many","uuid":"1","keys":["a","m","z"],"acquired":true,"lockUuid":"<text>",
			"fencingTokens":{"a":"<token>","m":"<token>","z":"<token>"}}`)
		b.Send(frame{"type": "acquire-many", "uuid": "2", "keys": []string{"q", "m", "b"}, "wait": false})
		b.Want(`{"type":"acquire-many","uuid":"2","keys":["b","m","q"],"acquired":false,"contendedKey":"m","lockRequestCount":"<number>"}`)
		b.Send(frame{"type": "acquire-many", "uuid": "3", "keys": []string{"q", "m", "b"}})
		b.Want(`{"type":"acquire-many","uuid":"3","keys":["b","m","q"],"acquired":false,"contendedKey":"m","lockRequestCount":1}`)
		a.Send(frame{"type": "release-many", "uuid": "4", "lockUuid": grant.Text("lockUuid")})
		a.Want(`{"type":"release-many","uuid":"4","lockUuid":"` + grant.Text("lockUuid") + `","keys":["a","m","z"],"released":true}`)
		second := b.Want(`{"type":"acquire-many","uuid":"3","keys":["b","m","q"],"acquired":true,"lockUuid":"<text>",
			"fencingTokens":{"b":"<token>","m":"<token>","q":"<token>"}}`)
		if second.Tokens("fencingTokens")["m"] <= grant.Tokens("fencingTokens")["m"] {
			t.Errorf("the token of m is %d, after %d", second.Tokens("fencingTokens")["m"], grant.Tokens("fencingTokens")["m"])
		}
		a.Send(frame{"type": "release-many", "uuid": "5", "lockUuid": "nobody's"})
		a.Want(`{"type":"release-many","uuid":"5","released":false,"error":"<text>"}`)
		// Any connection may release.
		a.Send(frame{"type": "release-many", "uuid": "6", "lockUuid": second.Text("lockUuid")})
		a.Want(`{"type":"release-many","uuid":"6","lockUuid":"` + second.Text("lockUuid") + `","keys":["b","m","q"],"released":true}`)
		r.wantKeys(a)
		r.Quiet(a, b)
	})
}

// What is not 1 to 64 keys is refused, and nothing of it is held.
func TestManyIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		var most []string
		for i := range 64 {
			most = append(most, fmt.Sprintf("k%02d", i))
		}
		_, grant := many(r, c, nil, most...)
		if n := len(grant.Tokens("fencingTokens")); !grant.True("acquired") || n != 64 {
			t.Fatalf("64 keys: got %v", grant)
		}
		if f := releaseMany(r, c, grant.Text("lockUuid")); len(f.Texts("keys")) != 64 {
			t.Errorf("got %v, want 64 keys released", f)
		}
		if _, f := many(r, c, nil, append(most, "k64")...); !f.False("acquired") || !strings.Contains(f.Text("error"), "64") {
			t.Errorf("65 keys: got %v, want a refusal that names the limit", f)
		}
		for _, keys := range []string{`[]`, `null`, `"k"`, `{}`, `[""]`, `["a",17]`, `["a",null]`, `["a",["b"]]`, `17`} {
			uuid := r.ID()
			c.Raw(`{"type":"acquire-many","uuid":"` + uuid + `","keys":` + keys + "}\n")
			if f := c.Expect(uuid); !f.False("acquired") || !strings.Contains(f.Text("error"), "key") {
				t.Errorf("keys %s: got %v, want a refusal that names them", keys, f)
			}
		}
		for _, ttl := range []any{-1, 1.5, "text"} {
			if _, f := many(r, c, frame{"ttl": ttl}, "a", "b"); !f.False("acquired") || !strings.Contains(f.Text("error"), "ttl") {
				t.Errorf("ttl %v: got %v, want a refusal that names it", ttl, f)
			}
		}
		for _, lockUUID := range []any{nil, "", 17, []any{}} {
			uuid := r.ID()
			c.Send(frame{"type": "release-many", "uuid": uuid, "lockUuid": lockUUID})
			if f := c.Expect(uuid); !f.False("released") || f.Text("error") == "" {
				t.Errorf("release-many of %v: got %v, want a refusal", lockUUID, f)
			}
		}
		r.wantKeys(c)
		r.Quiet(c)
	})
}

// A request that waits holds nothing meanwhile; with wait:false it is over.
func TestManyWaits(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b, c := r.Client(), r.Client(), r.Client()
		id, _ := r.Hold(a, "m", nil)
		if _, f := many(r, b, frame{"wait": false}, "a", "m", "z"); !f.False("acquired") || f.Text("contendedKey") != "m" {
			t.Errorf("got %v, want it contended by m", f)
		}
		free, _ := r.Hold(c, "a", nil)
		r.Release(c, "a", free)
		waits, f := many(r, b, nil, "a", "m", "z")
		if !f.False("acquired") || f.Has("error") {
			t.Fatalf("got %v, want it queued", f)
		}
		// Nothing overtakes it on a key that is free: it may come to wait for long.
		queued := r.Queue(c, "a", nil)
		r.Release(a, "m", id)
		grant := b.Expect(waits)
		if got := slices.Sorted(maps.Keys(grant.Tokens("fencingTokens"))); !grant.True("acquired") || len(got) != 3 {
			t.Fatalf("got %v, want the grant of three keys", grant)
		}
		r.Quiet(a, b, c)
		releaseMany(r, b, grant.Text("lockUuid"))
		r.Granted(c, queued)
		// A repeat of a request that waits, and of one that holds, changes nothing.
		first, _ := many(r, b, nil, "a", "z")
		b.Send(frame{"type": "acquire-many", "uuid": first, "keys": []string{"a", "z"}, "ttl": 60000})
		if f := b.Expect(first); !f.False("acquired") || f.Has("error") {
			t.Errorf("a repeat while it waits: got %v", f)
		}
		r.Release(c, "a", queued)
		grant = b.Expect(first)
		b.Send(frame{"type": "acquire-many", "uuid": first, "keys": []string{"a", "z"}, "ttl": 60000})
		if f := b.Expect(first); !f.True("acquired") || f.Text("lockUuid") != grant.Text("lockUuid") {
			t.Errorf("a repeat while it holds: got %v, want %v", f, grant)
		}
		r.Quiet(a, b, c)
		// A waiter goes with its connection.
		many(r, c, nil, "z", "y")
		c.Close()
		r.Quiet(a, b)
		releaseMany(r, b, grant.Text("lockUuid"))
		r.Quiet(a, b)
		r.wantKeys(a)
	})
}

// Each key is a hold of its own: one that is forced or expires leaves the others,
// and release-many frees what is left.
func TestManyMembers(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		_, grant := many(r, a, nil, "a", "b", "c")
		lock := grant.Text("lockUuid")
		r.Force(b, "b")
		r.wantKeys(b, "a", "c")
		r.Hold(b, "b", nil)
		a.Send(lmxtest.Unlock("one", lock, "c", nil)) // one of them, by the id of all
		if f := a.Expect("one"); !f.True("unlocked") {
			t.Errorf("unlock of one key: got %v", f)
		}
		r.wantKeys(b, "a", "b")
		if f := releaseMany(r, b, lock); !f.True("released") || !slices.Equal(f.Texts("keys"), []string{"a"}) {
			t.Errorf("got %v, want a released, which was left", f)
		}
		r.wantKeys(b, "b")
		if f := releaseMany(r, a, lock); !f.False("released") {
			t.Errorf("a second release: got %v, want it refused", f)
		}
	})
}

// A release that comes after all keys were lost is answered with success once: the
// client did nothing wrong.
func TestManyLateRelease(t *testing.T) {
	for _, how := range []string{"expiry", "force"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(r *rig) {
				a, b := r.Client(), r.Client()
				_, grant := many(r, a, frame{"ttl": 500}, "a", "b")
				if how == "force" {
					r.Force(b, "a")
					r.Force(b, "b")
				}
				r.Pause(time.Second)
				r.Hold(b, "a", nil)
				if f := releaseMany(r, a, grant.Text("lockUuid")); !f.True("released") || len(f.Texts("keys")) != 0 {
					t.Errorf("got %v, want released:true with no key", f)
				}
				if f := releaseMany(r, a, grant.Text("lockUuid")); !f.False("released") {
					t.Errorf("a second time: got %v, want it refused", f)
				}
				r.wantKeys(b, "a")
			})
		})
	}
}

// Without a ttl it has the broker's default; null is for ever.
func TestManyTTL(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		none, zero, never := r.ID(), r.ID(), r.ID()
		c.Send(frame{"type": "acquire-many", "uuid": none, "keys": []string{"a"}},
			frame{"type": "acquire-many", "uuid": zero, "keys": []string{"b"}, "ttl": 0},
			frame{"type": "acquire-many", "uuid": never, "keys": []string{"c"}, "ttl": nil})
		for _, id := range []string{none, zero, never} {
			if f := c.Expect(id); !f.True("acquired") {
				t.Errorf("got %v, want it granted", f)
			}
		}
		r.Pause(4900 * time.Millisecond)
		r.wantKeys(c, "a", "b", "c")
		r.Pause(200 * time.Millisecond)
		r.wantKeys(c, "c")
		r.Pause(1000 * time.Hour)
		r.wantKeys(c, "c")
	})
}

// Requests for some of few keys in any order, held for a while, are all granted and
// never share a key: none waits for what another holds that waits for it.
func TestManyInEveryOrder(t *testing.T) {
	bubble(t, func(r *rig) {
		type request struct {
			c          *lmxtest.Client
			uuid, lock string
			keys       []string
		}
		rng := rand.New(rand.NewPCG(7, 11))
		all := []string{"a", "b", "c", "d", "e"}
		clients := []*lmxtest.Client{r.Client(), r.Client(), r.Client()}
		holders := map[string]int{}
		var waiting, holding []request
		granted, mostWaiting := 0, 0
		hold := func(q request, f frame) {
			granted++
			q.lock = f.Text("lockUuid")
			for _, k := range q.keys {
				if holders[k]++; holders[k] > 1 {
					t.Fatalf("%s has %d holders", k, holders[k])
				}
			}
			holding = append(holding, q)
		}
		release := func() {
			i := rng.IntN(len(holding))
			q := holding[i]
			holding = slices.Delete(holding, i, i+1)
			for _, k := range q.keys {
				holders[k]--
			}
			releaseMany(r, clients[rng.IntN(3)], q.lock)
			r.Quiet() // time for those that wait
			waiting = slices.DeleteFunc(waiting, func(w request) bool {
				f, ok := w.c.Poll(w.uuid)
				if ok {
					hold(w, f)
				}
				return ok
			})
		}
		const requests = 500
		for range requests {
			for len(holding) > 0 && (len(waiting) > 8 || rng.IntN(3) == 0) {
				release()
			}
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			q := request{c: clients[rng.IntN(3)], keys: slices.Clone(all[:1+rng.IntN(4)])}
			var f frame
			if q.uuid, f = many(r, q.c, nil, q.keys...); f.True("acquired") {
				hold(q, f)
			} else {
				waiting = append(waiting, q)
			}
			mostWaiting = max(mostWaiting, len(waiting))
		}
		for len(holding) > 0 {
			release()
		}
		if granted != requests || len(waiting) > 0 || mostWaiting < 5 {
			t.Errorf("%d of %d were granted, %d wait for ever; at most %d waited", granted, requests, len(waiting), mostWaiting)
		}
		r.wantKeys(clients[0])
	})
}
