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
	"github.com/latchkey-go/latchkey/lease"
)

// Each answer has the fields that clients know, no more and no fewer.
func TestLockFrames(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		a.Send(lmxtest.Lock("1", "k", nil))
		a.Want(`{"type":"lock","uuid":"1","key":"k","acquired":true,"fencingToken":"<token>","readersCount":0,"lockRequestCount":0}`)
		b.Send(lmxtest.Lock("2", "k", nil))
		b.Want(`{"type":"lock","uuid":"2","key":"k","acquired":false,"readersCount":0,"lockRequestCount":0}`)
		b.Send(lmxtest.Lock("3", "k", nil))
		b.Want(`{"type":"lock","uuid":"3","key":"k","acquired":false,"readersCount":0,"lockRequestCount":1}`)
		b.Send(frame{"type": "lock-info-request", "uuid": "4", "key": "k"})
		b.Want(`{"type":"lock-info-response","uuid":"4","key":"k","lockInfo":true,"isLocked":true,"lockholderUUIDs":["1"],"lockholderCount":1,"readersCount":0,"lockRequestCount":2}`)
		a.Send(lmxtest.Unlock("5", "1", "k", nil))
		a.Want(`{"type":"unlock","uuid":"5","key":"k","lockRequestCount":2,"unlocked":true}`)
		b.Want(`{"type":"lock","uuid":"2","key":"k","acquired":true,"fencingToken":"<token>","readersCount":0,"lockRequestCount":1}`)
		a.Send(lmxtest.Lock("6", "k", frame{"max": 0}))
		a.Want(`{"type":"lock","uuid":"6","key":"k","acquired":false,"readersCount":0,"lockRequestCount":0,"error":"max must be a positive integer, got 0"}`)
		b.Send(lmxtest.Unlock("7", "2", "k", nil))
		b.Want(`{"type":"unlock","uuid":"7","key":"k","lockRequestCount":1,"unlocked":true}`)
		b.Want(`{"type":"lock","uuid":"3","key":"k","acquired":true,"fencingToken":"<token>","readersCount":0,"lockRequestCount":0}`)
		r.Quiet(a, b)
	})
}

// A release says whether it did something, and why not.
func TestUnlockFrames(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		id, _ := r.Hold(a, "k", nil)
		a.Send(lmxtest.Unlock("1", "other", "k", nil))
		a.Want(`{"type":"unlock","uuid":"1","key":"k","lockRequestCount":0,"unlocked":false,"error":"<text>"}`)
		a.Send(lmxtest.Unlock("2", "", "k", nil).Without("_uuid"))
		a.Want(`{"type":"unlock","uuid":"2","key":"k","lockRequestCount":0,"unlocked":false,"error":"<text>"}`)
		b.Send(lmxtest.Unlock("3", id, "k", nil)) // any connection may, with the id
		b.Want(`{"type":"unlock","uuid":"3","key":"k","lockRequestCount":0,"unlocked":true}`)
		a.Send(lmxtest.Unlock("4", "other", "free", nil))
		a.Want(`{"type":"unlock","uuid":"4","key":"free","lockRequestCount":0,"unlocked":true,"warning":"<text>"}`)
		a.Send(frame{"type": "unlock", "uuid": "5", "key": "free", "force": true})
		a.Want(`{"type":"unlock","uuid":"5","key":"free","lockRequestCount":0,"unlocked":true,"warning":"<text>"}`)
		r.Hold(a, "s", frame{"max": 3})
		r.Hold(b, "s", frame{"max": 3})
		b.Send(frame{"type": "unlock", "uuid": "6", "key": "s", "force": true})
		b.Want(`{"type":"unlock","uuid":"6","key":"s","lockRequestCount":0,"unlocked":true}`)
		if holders, _ := r.Info(b, "s"); len(holders) != 0 {
			t.Errorf("%q hold the key after it was forced", holders)
		}
		r.Quiet(a, b)
	})
}

// A hold that was evicted, forced or released is unlocked once more with success,
// whoever holds the key meanwhile stays, and the second time is refused.
func TestLateUnlock(t *testing.T) {
	for _, how := range []string{"expiry", "force", "release"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(r *rig) {
				a, b := r.Client(), r.Client()
				id, _ := r.Hold(a, "k", frame{"ttl": 500})
				next := r.Queue(b, "k", nil)
				switch how {
				case "force":
					r.Force(b, "k")
				case "release":
					r.Release(a, "k", id)
				}
				r.Granted(b, next)
				r.Release(a, "k", id)
				a.Send(lmxtest.Unlock("again", id, "k", nil))
				if f := a.Expect("again"); !f.False("unlocked") || f.Text("error") == "" {
					t.Errorf("the second late unlock: got %v, want it refused", f)
				}
				if holders, _ := r.Info(b, "k"); !slices.Equal(holders, []string{next}) {
					t.Errorf("the key is held by %q, want %q", holders, next)
				}
				r.Quiet(a, b)
			})
		})
	}
}

// Frames that ask about the broker.
func TestQuestions(t *testing.T) {
	bubble(t, func(r *rig) {
		a := r.Client()
		a.Send(frame{"type": "ls", "uuid": "1"})
		a.Want(`{"uuid":"1","ls_result":[]}`)
		r.Hold(a, "b", nil)
		r.Hold(a, "a", nil)
		a.Send(frame{"type": "ls", "uuid": "2"})
		a.Want(`{"uuid":"2","ls_result":["a","b"]}`)
		a.Send(frame{"type": "lock-info-request", "uuid": "3", "key": "free"})
		a.Want(`{"type":"lock-info-response","uuid":"3","key":"free","lockInfo":true,"isLocked":false,"lockholderUUIDs":[],"lockholderCount":0,"readersCount":0,"lockRequestCount":0}`)
		a.Send(frame{"type": "ping", "uuid": "4", "timestamp": 123})
		a.Want(`{"type":"pong","uuid":"4","timestamp":123,"serverTimestamp":"<number>","ping":true}`)
		a.Send(frame{"type": "system-stats-request", "uuid": "5"})
		f := a.Expect("5")
		stats, _ := f["stats"].(map[string]any)
		if f.Text("type") != "system-stats-response" || frame(stats).Int("totalLocks") != 2 || frame(stats).Int("totalHolders") != 2 ||
			frame(stats).Int("connectedClients") != 2 { // the HTTP front end is one
			t.Errorf("system stats: got %v", f)
		}
		a.Send(frame{"inspectCommand": "lockcount"})
		a.Want(`{"inspectResult":2}`)
		b := r.Client()
		r.Hold(b, "c", nil)
		for _, command := range []string{"lock-count", "lock_count", "lockcount"} {
			b.Send(frame{"inspectCommand": command})
			b.Want(`{"inspectResult":3}`)
		}
		for _, command := range []string{"client-count", "client_count", "clientcount"} {
			b.Send(frame{"inspectCommand": command})
			b.Want(`{"inspectResult":2}`)
		}
		b.Send(frame{"type": "no-such-thing", "uuid": "6", "key": "k"})
		if f := b.Expect("6"); f.Text("error") == "" {
			t.Errorf("a frame of an unknown type: got %v, want an error", f)
		}
		b.Send(frame{"uuid": "7"})
		if f := b.Expect("7"); f.Text("error") == "" {
			t.Errorf("a frame without a type: got %v, want an error", f)
		}
		r.Quiet(a, b)
	})
}

// Nobody has to say hello, unknown fields are ignored, and frames come as the
// network cuts them.
func TestReading(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Dial() // without a version frame
		c.Send(lmxtest.Lock("1", "k", frame{"unknown": frame{"deep": []any{1, nil, "x"}}, "fencingToken": 3, "another": nil}))
		r.Granted(c, "1")
		c.Raw("\n\r\n  \nnot json\n{\"type\":\n[1,2]\n\"text\"\nnull\n{}}\n\x00\xff\n") // skipped, all of it
		c.Send(frame{"type": "lock-info-request", "uuid": "2", "key": "k"})
		c.Expect("2")
		r.Quiet(c)
		var all strings.Builder
		for i := range 20 {
			all.WriteString(lmxtest.Lock(fmt.Sprintf("m%d", i), fmt.Sprintf("ключ🔑%d", i), nil).String() + "\r\n")
		}
		text := all.String()
		for len(text) > 0 { // pieces that cut characters and frames anywhere
			n := min(len(text), 7)
			c.Raw(text[:n])
			text = text[n:]
		}
		for i := range 20 {
			if f := r.Granted(c, fmt.Sprintf("m%d", i)); f.Text("key") != fmt.Sprintf("ключ🔑%d", i) {
				t.Errorf("got the key %q", f.Text("key"))
			}
		}
		// Escapes are what they stand for; the key comes back as an equal text.
		c.Raw(`{"type":"lock","uuid":"esc","key":"\u043a\u043b\u044e\u0447\ud83d\udd11\"\\\/\n"}` + "\n")
		if f := r.Granted(c, "esc"); f.Text("key") != "ключ🔑\"\\/\n" {
			t.Errorf("got the key %q", f.Text("key"))
		}
		r.Queue(c, "ключ🔑\"\\/\n", nil)
		c.Send(lmxtest.Lock("a", "p", nil), lmxtest.Unlock("b", "a", "p", nil), lmxtest.Lock("d", "p", nil), lmxtest.Lock("e", "p", nil))
		for _, uuid := range []string{"a", "b", "d", "e"} {
			if f := c.Next(); f.Text("uuid") != uuid {
				t.Errorf("got %v, want the answer to %s: answers come in the order of their questions", f, uuid)
			}
		}
		c.Raw(`{"type":"lock","uuid":17,"key":"n"}` + "\n")
		Match := lmxtest.Match
		Match(t, c.Next(), `{"type":"lock","uuid":17,"key":"n","acquired":true,"fencingToken":"<token>","readersCount":0,"lockRequestCount":0}`)
		c.Raw(`{"type":"unlock","uuid":18,"_uuid":17,"key":"n"}` + "\n")
		Match(t, c.Next(), `{"type":"unlock","uuid":18,"key":"n","lockRequestCount":0,"unlocked":true}`)
		r.Quiet(c)
	})
}

// A first line that is no JSON object ends the connection; what is neither a hello
// nor a frame of the dialect may come later.
func TestFirstLine(t *testing.T) {
	bubble(t, func(r *rig) {
		for _, line := range []string{"GET / HTTP/1.1", "not json", "[1]", "null"} {
			c := r.Dial()
			c.Raw(line + "\r\n\r\n")
			if f := c.Next(); !f.Has("error") && !f.Has("code") {
				t.Errorf("%q: got %v, want an error", line, f)
			}
			c.Ended(5 * time.Second)
		}
		c := r.Dial()
		r.Pause(time.Hour) // connected, and silent for long
		r.Hold(c, "k", nil)
	})
}

// max and its relatives are positive integers; anything else is refused with the
// same text over both ways in, and changes nothing.
func TestMaxIsRefused(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		for _, name := range []string{"max", "maxRead", "maxWrite"} {
			for _, value := range []string{"0", "-3", "1.5", `"2"`, "true", "[]", "{}", "1e400"} {
				c.Raw(`{"type":"lock","uuid":"x","key":"k","` + name + `":` + value + "}\n")
				f := c.Expect("x")
				text := f.Text("error")
				if !f.False("acquired") || !strings.HasPrefix(text, name+" must be a positive integer, got ") {
					t.Errorf("%s %s: got %v", name, value, f)
				}
				status, answer := r.post("/v1/lock", `{"key":"k","`+name+`":`+value+`}`)
				if status != 400 || answer.Text("error") != text {
					t.Errorf("%s %s over HTTP: got %d and %v, want 400 and the text %q", name, value, status, answer, text)
				}
			}
			id := r.ID()
			c.Raw(`{"type":"lock","uuid":"` + id + `","key":"n` + name + `","` + name + `":null}` + "\n")
			r.Granted(c, id) // null is not said
		}
		if holders, waiting := r.Info(c, "k"); len(holders)+int(waiting) != 0 {
			t.Errorf("a refused request left holders %q, and %d waiting", holders, waiting)
		}
		r.Quiet(c)
	})
}

// The last max of a key counts while the key is in use, for those that give none.
func TestMax(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		one, _ := r.Hold(c, "k", frame{"max": 3})
		two, _ := r.Hold(c, "k", frame{"max": nil})
		three, _ := r.Hold(c, "k", frame{"ttl": 1000})
		r.Queue(c, "k", frame{"max": nil})
		for _, id := range []string{one, two, three} {
			r.Release(c, "k", id)
		}
		r.Force(c, "k")
		r.Quiet(dropped(c)...)
		r.Hold(c, "k", nil) // nobody holds or waits: the max is forgotten
		r.Queue(c, "k", nil)
	})
}

// dropped reads what a client was sent and does not want to know.
func dropped(c *lmxtest.Client) []*lmxtest.Client {
	c.Drop()
	return []*lmxtest.Client{c}
}

// wait:false is a try: busy is told at once, and nothing is left behind.
func TestTry(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		id, _ := r.Hold(a, "k", nil)
		try := r.ID()
		b.Send(lmxtest.Lock(try, "k", frame{"wait": false}))
		if f := b.Expect(try); !f.False("acquired") {
			t.Errorf("got %v, want acquired:false", f)
		}
		r.Release(a, "k", id)
		r.Quiet(a, b)
		b.Send(lmxtest.Lock(try, "k", frame{"wait": false}))
		r.Granted(b, try)
	})
}

// A request that is repeated while it waits keeps its place and is told so; it has
// one grant.
func TestRepeatWhileWaiting(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b, c := r.Client(), r.Client(), r.Client()
		id, _ := r.Hold(a, "k", nil)
		first := r.Queue(b, "k", nil)
		second := r.Queue(c, "k", nil)
		for retry := range 3 {
			b.Send(lmxtest.Lock(first, "k", frame{"retryCount": retry + 1}))
			if f := b.Expect(first); !f.False("acquired") || f.Has("error") {
				t.Errorf("repeat %d: got %v, want it to wait on", retry, f)
			}
		}
		if _, waiting := r.Info(a, "k"); waiting != 2 {
			t.Errorf("%d wait, want 2", waiting)
		}
		r.Release(a, "k", id)
		r.Granted(b, first)
		r.Quiet(a, b, c)
		r.Release(b, "k", first)
		r.Granted(c, second)
		// The same id may be used again after its end.
		b.Send(lmxtest.Lock(first, "k", nil))
		if f := b.Expect(first); !f.False("acquired") {
			t.Errorf("got %v, want it to wait", f)
		}
		r.Release(c, "k", second)
		r.Granted(b, first)
		r.Quiet(a, b, c)
	})
}

// lock-received-rejected frees a grant that its client does not want; one that was
// acknowledged, or is another's, stays.
func TestRejected(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		reject := func(c *lmxtest.Client, id string) {
			c.Send(frame{"type": "lock-received-rejected", "uuid": id, "key": "k"})
			r.Quiet(c)
		}
		id, _ := r.Hold(a, "k", nil)
		reject(b, id) // not its own
		next := r.Queue(b, "k", nil)
		a.Send(frame{"type": "lock-received", "uuid": id, "key": "k"})
		reject(a, id) // acknowledged
		r.Quiet(a, b)
		r.Release(a, "k", id)
		r.Granted(b, next)
		waits := r.Queue(a, "k", nil)
		b.Send(frame{"type": "lock-received-rejected", "uuid": next, "key": "k"})
		r.Granted(a, waits)
		reject(b, next)
		reject(b, "never seen")
		r.Queue(b, "k", nil)
	})
}

// lock-client-timeout takes a waiter away, and a grant that crossed it.
func TestClientTimeout(t *testing.T) {
	for _, kind := range []string{"lock-client-timeout", "lock-client-error"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(r *rig) {
				a, b, c := r.Client(), r.Client(), r.Client()
				id, _ := r.Hold(a, "k", nil)
				gone := r.Queue(b, "k", nil)
				next := r.Queue(c, "k", nil)
				b.Send(frame{"type": kind, "uuid": gone, "key": "k"})
				r.Quiet(b)
				r.Release(a, "k", id)
				r.Granted(c, next)
				crossed := r.Queue(b, "k", nil)
				r.Release(c, "k", next)
				r.Granted(b, crossed) // but the client has just given up
				b.Send(frame{"type": kind, "uuid": crossed, "key": "k"})
				r.Quiet(b)
				r.Hold(a, "k", nil)
				r.Quiet(a, b, c)
				if n := r.Note("waiters"); n != 0 {
					t.Errorf("%d waiters are left", n)
				}
			})
		})
	}
}

// A grant from the queue that a client which acknowledges does not acknowledge is
// sent once more after half a second. Whoever gave up rejects the second copy, and
// that frees the key; who lives keeps the hold.
func TestUnacknowledgedGrantIsSentAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Client()
		ack := func(c *lmxtest.Client, id string) {
			ping := r.ID()
			c.Send(frame{"type": "lock-received", "uuid": id, "key": "k"}, frame{"type": "ping", "uuid": ping})
			c.Expect(ping) // the broker has seen both: another connection may go on
		}
		first, _ := r.Hold(a, "k", nil)
		second := r.Queue(b, "k", nil)
		r.Release(a, "k", first)
		r.Granted(b, second)
		r.Pause(10 * time.Second)
		r.Quiet(b) // it never acknowledged anything: it need not begin
		ack(b, second)
		third := r.Queue(a, "k", nil)
		ack(a, first)
		r.Release(b, "k", second)
		grant := r.Granted(a, third)
		r.Pause(300 * time.Millisecond)
		r.Quiet(a)
		again := r.Granted(a, third)
		if again.Text("fencingToken") != grant.Text("fencingToken") {
			t.Errorf("got %v, want the same grant again: %v", again, grant)
		}
		r.Pause(10 * time.Second)
		r.Quiet(a) // once more, not for ever
		ack(a, third)
		a.Send(frame{"type": "lock-received-rejected", "uuid": third, "key": "k"}) // of the second copy
		waits := r.Queue(b, "k", nil)
		r.Quiet(a, b)
		r.Release(a, "k", third)
		r.Granted(b, waits)
		r.Granted(b, waits) // again after half a second
		next := r.Queue(a, "k", nil)
		b.Send(frame{"type": "lock-received-rejected", "uuid": waits, "key": "k"})
		r.Granted(a, next)
		// What is acknowledged in time is not sent again.
		ack(a, next)
		r.Pause(10 * time.Second)
		r.Quiet(a, b)
	})
}

// A client that says its pid with its version is one that acknowledges, from its
// first grant on: the npm clients do both, and one that gave up on its very first
// lock must not keep the key.
func TestFirstGrantIsSentAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		a, b := r.Client(), r.Dial()
		b.Send(frame{"type": "version", "value": "0.2.25", "max": nil, "pid": 4711, "keepLocksAfterDeath": false})
		held, _ := r.Hold(a, "k", nil)
		id := r.Queue(b, "k", nil)
		next := r.Queue(a, "k", nil)
		r.Release(a, "k", held)
		r.Granted(b, id)
		r.Granted(b, id) // again after half a second
		b.Send(frame{"type": "lock-received-rejected", "uuid": id, "key": "k"})
		r.Granted(a, next)
	})
}

// A client of another version is told so; what it holds is dropped, nothing more is
// answered, and it is closed when it confirms, or after 2 s.
func TestVersionMismatch(t *testing.T) {
	for _, version := range []string{"1.0.0", "0.3.0", "0.0.1", "0.1.99"} {
		for _, confirm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s confirmed %v", version, confirm), func(t *testing.T) {
				bubble(t, func(r *rig) {
					a, other := r.Dial(), r.Client()
					r.Hold(a, "k", nil)
					waits := r.Queue(other, "k", nil)
					a.Version(version)
					a.Want(`{"type":"version-mismatch","versions":{"clientVersion":"` + version + `","brokerVersion":"0.2.27"}}`)
					r.Granted(other, waits)
					a.Send(lmxtest.Lock(r.ID(), "free", nil), frame{"type": "ping", "uuid": r.ID()})
					r.Quiet(a)
					if confirm {
						a.Send(frame{"type": "version-mismatch-confirmed"})
						a.Ended(time.Second)
					} else {
						r.Pause(1500 * time.Millisecond)
						r.Quiet(a)
						a.Ended(time.Second)
					}
					r.Hold(other, "free", nil)
				})
			})
		}
	}
	bubble(t, func(r *rig) {
		for _, version := range []string{"0.2.25", "0.2.27", "0.2.0", "0.25.1", "0.2.27-beta.1"} {
			c := r.Dial().Version(version)
			r.Quiet(c)
			r.Hold(c, version, nil)
		}
		c := r.Client()
		c.Send(frame{"type": "simulate-version-mismatch"})
		c.Want(`{"type":"version-mismatch","versions":{"clientVersion":"0.0.1","brokerVersion":"0.2.27"}}`)
		c.Ended(3 * time.Second)
	})
}

// Frames cannot make up more than there is room for; each limit is named.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, tcpserve.Options{MaxConnections: 3})
		a, b := r.Client(), r.Client()
		r.Hold(a, "k", nil)
		const burst = 200
		for i := 0; i < lease.MaxInFlight; i += burst {
			frames := make([]frame, 0, burst)
			for j := range burst {
				frames = append(frames, lmxtest.Lock(fmt.Sprintf("w%d", i+j), "k", nil))
			}
			b.Send(frames...)
			for _, f := range frames {
				if got := b.Expect(f["uuid"].(string)); !got.False("acquired") || got.Has("error") {
					t.Fatalf("got %v, want it to wait", got)
				}
			}
		}
		one := r.ID()
		b.Send(lmxtest.Lock(one, "elsewhere", nil), lmxtest.Lock("over", "k", nil))
		if f := b.Expect("over"); !f.False("acquired") || !strings.Contains(f.Text("error"), "Max") {
			t.Errorf("got %v, want a refusal that names the limit", f)
		}
		b.Expect(one)
		r.Hold(a, "a", nil)
		r.Client()
		c := r.Dial()
		if f := c.Next(); !strings.Contains(f.String(), "MaxConnections") {
			t.Errorf("a connection too many: got %v, want an error that names MaxConnections", f)
		}
		c.Ended(5 * time.Second)
	})
}

// An unlock without _uuid of a hold, and other frames of no use, leave a connection
// as it was.
func TestFramesOfNoUse(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		id, _ := r.Hold(c, "k", nil)
		for _, kind := range []string{"lock-received", "lock-received-rejected", "lock-client-timeout", "lock-client-error"} {
			c.Send(frame{"type": kind}, frame{"type": kind, "uuid": nil}, frame{"type": kind, "uuid": "unknown"},
				frame{"type": kind, "uuid": "unknown", "key": 12}, frame{"type": kind, "uuid": []any{}, "key": "k"})
		}
		c.Send(frame{"type": "version-mismatch-confirmed", "uuid": "x"}.With(frame{"type": "lock-received"}))
		r.Quiet(c)
		for _, kind := range []string{"unlock", "lock-info-request", "register-write-flag-check", "increment-readers",
			"register-write-flag-and-readers-check", "decrement-readers", "set-write-flag-false-and-broadcast", "release-many", "acquire-many"} {
			for _, f := range []frame{{"type": kind, "uuid": r.ID()}, {"type": kind, "uuid": r.ID(), "key": 12, "keys": 12, "lockUuid": 12}} {
				c.Send(f)
				if got := c.Expect(f["uuid"].(string)); got.Text("error") == "" {
					t.Errorf("%v: got %v, want an error", f, got)
				}
			}
		}
		r.Release(c, "k", id)
	})
}
