package lmx_test

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// durableRig is a broker whose answers come only after a sync: what a client sends
// behind a frame arrives before that frame is answered.
func durableRig(t *testing.T) *rig {
	t.Helper()
	svc, err := leaselocal.Open(leaselocal.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return rigOn(t, svc, tcpserve.Options{})
}

// A uuid that is used again right behind its unlock is a new request, and not a
// repeat of the one that ends: that would be told it holds what it is about to lose.
func TestLockBehindItsUnlock(t *testing.T) {
	r := durableRig(t)
	c, other := r.Client(), r.Client()
	_, first := r.Hold(c, "k", nil)
	token := first.Int("fencingToken")
	id := first.Text("uuid")
	for i := range 20 {
		unlock := fmt.Sprintf("x%d", i)
		c.Send(lmxtest.Unlock(unlock, id, "k", nil), lmxtest.Lock(id, "k", frame{"retryCount": 1}))
		if f := c.Expect(unlock); !f.True("unlocked") {
			t.Fatalf("the unlock got %v", f)
		}
		f := r.Granted(c, id)
		if f.Int("fencingToken") <= token {
			t.Fatalf("the lock behind the unlock got %v, whose token was that of the hold that ended", f)
		}
		token = f.Int("fencingToken")
		if holders, _ := r.Info(other, "k"); len(holders) != 1 {
			t.Fatalf("%q hold the key, want one", holders)
		}
	}
	r.Release(other, "k", id)
	r.wantKeys(other)
	r.Quiet(c, other)
}

// An unlock that does not wait for the grant ends the lock all the same, and leaves
// nothing.
func TestUnlockBehindItsLock(t *testing.T) {
	r := durableRig(t)
	c, other := r.Client(), r.Client()
	for i := range 20 {
		unlock := fmt.Sprintf("x%d", i)
		c.Send(lmxtest.Lock("u", "k", nil), lmxtest.Unlock(unlock, "u", "k", nil), lmxtest.Lock("u", "k", frame{"retryCount": 1}))
		first := r.Granted(c, "u")
		if f := c.Expect(unlock); !f.True("unlocked") {
			t.Fatalf("the unlock got %v", f)
		}
		if f := r.Granted(c, "u"); f.Int("fencingToken") <= first.Int("fencingToken") {
			t.Fatalf("the second lock got %v after %v", f, first)
		}
		if holders, _ := r.Info(other, "k"); len(holders) != 1 {
			t.Fatalf("%q hold the key, want one", holders)
		}
		r.Release(c, "k", "u")
		if n := r.Note("kept ids") + r.Note("kept keys"); n != 0 {
			t.Fatalf("%d records are left of locks that ended", n)
		}
	}
	r.Quiet(c, other)
}

// The same for a uuid of several keys.
func TestManyBehindItsRelease(t *testing.T) {
	r := durableRig(t)
	c := r.Client()
	uuid, first := many(r, c, nil, "a", "b")
	c.Send(frame{"type": "release-many", "uuid": "x", "lockUuid": first.Text("lockUuid")},
		frame{"type": "acquire-many", "uuid": uuid, "keys": []string{"a", "b"}, "ttl": 60000})
	if f := c.Expect("x"); !f.True("released") {
		t.Errorf("the release got %v", f)
	}
	again := c.Expect(uuid)
	if again.Text("lockUuid") == first.Text("lockUuid") || !again.True("acquired") {
		t.Errorf("the request behind the release got %v, after %v", again, first)
	}
	r.wantKeys(c, "a", "b")
	releaseMany(r, c, again.Text("lockUuid"))
	r.wantKeys(c)
}

// A repeat for several keys is told what it holds: not keys that it lost meanwhile,
// and not those of another request.
func TestManyAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		c, other := r.Client(), r.Client()
		uuid, first := many(r, c, nil, "a", "b", "c")
		again := func(keys ...string) frame {
			c.Send(frame{"type": "acquire-many", "uuid": uuid, "keys": keys, "ttl": 60000})
			return c.Expect(uuid)
		}
		if f := again("c", "b", "a"); f.String() != first.String() {
			t.Errorf("the repeat got %v, want %v", f, first)
		}
		if f := again("x", "y"); !f.False("acquired") || f.Text("error") == "" {
			t.Errorf("the uuid with other keys got %v, want it refused", f)
		}
		r.Force(other, "b")
		if f := again("a", "b", "c"); len(f.Texts("keys")) != 2 || len(f.Tokens("fencingTokens")) != 2 || f.Has("error") {
			t.Errorf("the repeat got %v after b was lost, want what is left", f)
		}
		releaseMany(r, c, first.Text("lockUuid"))
		r.wantKeys(other)
		// While it waits, too.
		r.Hold(other, "w", nil)
		c.Send(frame{"type": "acquire-many", "uuid": "later", "keys": []string{"v", "w"}})
		c.Expect("later")
		c.Send(frame{"type": "acquire-many", "uuid": "later", "keys": []string{"w"}})
		if f := c.Expect("later"); f.Text("error") == "" {
			t.Errorf("the waiting uuid with other keys got %v, want it refused", f)
		}
	})
}

// A connection can read and write only so many keys at a time: nothing else bounds
// what monitors keep.
func TestMonitorsAreBounded(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		ask := func(f frame) frame {
			uuid := r.ID()
			c.Send(f.With(frame{"uuid": uuid}))
			return c.Expect(uuid)
		}
		kinds := []string{"increment-readers", "register-write-flag-and-readers-check"}
		for i := range lease.MaxInFlight {
			if f := ask(frame{"type": kinds[i%2], "key": fmt.Sprint("k", i)}); f.Has("error") {
				t.Fatalf("key %d got %v", i, f)
			}
		}
		for _, f := range []frame{
			{"type": "increment-readers", "key": "more"},
			{"type": "register-write-flag-and-readers-check", "key": "more"},
			{"type": "register-write-flag-check", "key": "more"},
			{"type": "lock", "key": "more", "rwStatus": "begin_read"},
		} {
			if f := ask(f); !strings.Contains(f.Text("error"), "MaxInFlight") {
				t.Errorf("one key more got %v, want the limit", f)
			}
		}
		// Those that are there go on, and one that goes makes room.
		ask(frame{"type": "increment-readers", "key": "k0"})
		ask(frame{"type": "set-write-flag-false-and-broadcast", "key": "k1"})
		if f := ask(frame{"type": "increment-readers", "key": "more"}); f.Has("error") {
			t.Errorf("with room again, got %v", f)
		}
		c.Close()
		r.Quiet()
		keepsNothing(r.World)
	})
}

// What a client says beside what is needed is not kept for as long as its locks, or
// its connection, last.
func TestLongTextIsNotKept(t *testing.T) {
	r := newRig(t, tcpserve.Options{})
	long := strings.Repeat("x", 60_000)
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	c := r.Client()
	const holds = 300
	for i := range holds {
		r.Hold(c, fmt.Sprint("k", i), frame{"rwStatus": long})
	}
	var open []net.Conn
	for range 100 {
		nc, err := r.Connect()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		open = append(open, nc)
		version := frame{"type": "version", "value": "0.2.25" + long}
		if _, err := nc.Write([]byte(version.String() + "\n" + `{"type":"ping","uuid":"1"}` + "\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
	}
	// The read buffers of the connections are bounded by themselves.
	if grown := heap() - before - int64(len(open)+1)*64<<10; grown > holds*60_000/4 {
		t.Errorf("%d bytes are kept for %d holds and %d connections", grown, holds, len(open))
	}
}
