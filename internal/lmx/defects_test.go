package lmx_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

type frame = lmxtest.Frame

// defect is one of the known defects of the live-mutex brokers, as a test that a
// broker without it passes.
type defect struct {
	number  int
	what    string
	run     func(*lmxtest.World)
	npm     string         // what the test says of the npm broker, if that one has the defect
	options map[string]any // of the npm broker
}

var defects = []defect{
	{number: 1, run: defect01, npm: `want it queued`,
		what: "any client's orderly disconnect releases every key of every client"},
	{number: 2, run: defect02, npm: `nothing came within`,
		what: "one ttl timer a key: a new grant cancels an earlier holder's deadline, one expiry clears all holders"},
	{number: 3, run: defect03, npm: `want it queued`, options: map[string]any{"timeoutToFindNewLockholder": 300},
		what: "a grant from the queue is taken from a living holder that does not acknowledge"},
	{number: 4, run: defect04, npm: `want nothing`,
		what: "readers/writers: writer beside a reader, flag and counts outlive their connection, deadlock"},
	{number: 5, run: defect05,
		what: "the first max of a key sticks, and readers exclude one another"},
	{number: 6, run: defect06,
		what: "the fencing token of an idle key starts anew from the clock, and may go down"},
	{number: 7, run: defect07, npm: `nothing came within`,
		what: "a connection that the broker destroys itself is never cleaned up"},
	{number: 8, run: defect08,
		what: "many-key locks obey the last semaphore width: two can hold the same key"},
	{number: 9, run: defect09, npm: `want it refused`,
		what: "force with the id of nobody evicts the holder"},
	{number: 10, run: defect10, npm: `want the same`,
		what: "characters that are cut at the border of a chunk are mangled"},
	{number: 11, run: defect11,
		what: "records of many-key locks and reader counts only grow"},
	{number: 14, run: defect14, npm: `want the grant again`,
		what: "a holder that repeats its request queues behind itself"},
	{number: 15, run: defect15, npm: `want it granted`,
		what: "lock-received-rejected does not free the lock"},
	{number: 16, run: defect16, npm: `want it queued`,
		what: "keepLocksAfterDeath has no effect"},
	{number: 17, run: defect17,
		what: "idle keys are kept, and collecting them walks over all keys"},
	{number: 18, run: defect18,
		what: "ids of ended and rejected requests are kept for ever"},
	{number: 19, run: defect19, npm: `waiting for a frame with uuid`,
		what: "a line with null ends a connection's parser in silence"},
	{number: 20, run: defect20, npm: `want it queued`,
		what: "max is not clamped"},
	{number: 22, run: defect22, npm: `ls`,
		what: "ls is empty, lock info is not about holders, inspect answers constants"},
	{number: 26, run: defect26, npm: `want it refused`,
		what: "nothing has a limit"},
	{number: 27, run: defect27, npm: `want it refused`,
		what: "odd input is accepted"},
}

// Defect 1: in the npm broker the orderly disconnect of any client releases every
// key of every client.
func TestDefect01Disconnect(t *testing.T) { ours(t, defect01) }

func defect01(w *lmxtest.World) {
	a, b, other := w.Client(), w.Client(), w.Client()
	w.Hold(a, "a", nil)
	w.Hold(a, "many", frame{"max": 2})
	id, _ := w.Hold(b, "b", nil)
	w.Hold(b, "leaves", nil)
	w.Release(b, "b", id)
	next := w.Queue(other, "leaves", nil)
	b.End()
	w.Granted(other, next) // the broker has seen the end
	w.Queue(other, "a", nil)
	w.Hold(other, "many", frame{"max": 2})
	w.Queue(other, "many", frame{"max": 2})
	w.Quiet(a, other)
}

// Defect 2: one ttl timer a key. In a semaphore a new grant cancels the deadline of
// an earlier holder, and one expiry clears all holders.
func TestDefect02Deadlines(t *testing.T) { ours(t, defect02) }

func defect02(w *lmxtest.World) {
	a, b := w.Client(), w.Client()
	max2 := frame{"max": 2}
	w.Hold(a, "k", frame{"max": 2, "ttl": 400})
	w.Hold(a, "k", frame{"max": 2, "ttl": nil}) // must not cancel the deadline of the other
	first, second := w.Queue(b, "k", max2), w.Queue(b, "k", max2)
	w.Granted(b, first)
	w.Quiet(b) // one of two has expired
	w.Hold(a, "l", frame{"max": 2, "ttl": nil})
	w.Hold(a, "l", frame{"max": 2, "ttl": 400}) // its end must not be that of the other
	third, fourth := w.Queue(b, "l", max2), w.Queue(b, "l", max2)
	w.Granted(b, third)
	w.Pause(time.Second)
	w.Quiet(a, b)
	w.Release(b, "k", first)
	w.Granted(b, second)
	w.Release(b, "l", third)
	w.Granted(b, fourth)
}

// Defect 3: a grant from the queue that is not acknowledged is taken away after
// 4.5 s while its holder is alive and has ttl to spare; two holders result. Clients
// in other languages never acknowledge.
func TestDefect03Unacknowledged(t *testing.T) { ours(t, defect03) }

func defect03(w *lmxtest.World) {
	a, b, c := w.Client(), w.Client(), w.Client()
	mine, _ := w.Hold(a, "k", nil)
	w.Hold(a, "s", frame{"max": 2})
	acked, _ := w.Hold(a, "s", frame{"max": 2})
	// One client has never acknowledged anything, the other has; that one may be
	// sent a grant twice, and loses it as little.
	never, once := w.Queue(b, "k", nil), w.Queue(c, "s", frame{"max": 2})
	c.Send(frame{"type": "lock-received", "uuid": w.ID(), "key": "elsewhere"})
	w.Release(a, "k", mine)
	w.Granted(b, never)
	w.Release(a, "s", acked)
	w.Granted(c, once)
	w.Pause(w.Long(10 * time.Second))
	late := w.Client()
	w.Queue(late, "k", nil)
	w.Queue(late, "s", frame{"max": 2})
	w.Quiet(a, b)
	w.Release(b, "k", never)
	w.Release(c, "s", once)
}

// Defect 4: the readers/writers monitor admits a writer beside one reader and a
// reader beside a writer, counts readers twice, lets flag and counts outlive their
// connection, and has readers and writers wait for one another. What all the
// interleavings do is tested with models of the clients.
func TestDefect04Monitor(t *testing.T) { ours(t, defect04) }

func defect04(w *lmxtest.World) {
	ask := func(c *lmxtest.Client, kind string) (id string) {
		id = w.ID()
		c.Send(frame{"type": kind, "uuid": id, "key": "k"})
		return id
	}
	base := func(c *lmxtest.Client, what func()) {
		id, _ := w.Hold(c, "k", frame{"max": 1})
		what()
		w.Release(c, "k", id)
	}
	reader, writer, late := w.Client(), w.Client(), w.Client()
	base(reader, func() { reader.Expect(ask(reader, "register-write-flag-check")) })
	lock, _ := w.Hold(writer, "k", frame{"max": 1})
	question := ask(writer, "register-write-flag-and-readers-check")
	w.Quiet(writer) // one reader is one too many
	// The base lock is free although the writer waits, or the reader could not leave.
	base(reader, func() { reader.Expect(ask(reader, "decrement-readers")) })
	writer.Expect(question)
	w.Release(writer, "k", lock)
	// While the flag is set no reader enters.
	waits, _ := w.Hold(late, "k", frame{"max": 1})
	question = ask(late, "register-write-flag-check")
	w.Quiet(late)
	// The writer's flag goes with its connection, and so does a reader's count.
	writer.End()
	late.Expect(question)
	w.Release(late, "k", waits)
	late.End()
	base(reader, func() { reader.Expect(ask(reader, "register-write-flag-and-readers-check")) })
	base(reader, func() { reader.Expect(ask(reader, "set-write-flag-false-and-broadcast")) })
	w.Quiet(reader)
}

// Defect 5: every ordinary lock is handled as one of a writer: the first max of a
// key sticks, later changes are ignored, and readers are limited to one.
func TestDefect05StickyMax(t *testing.T) { ours(t, defect05) }

func defect05(w *lmxtest.World) {
	c := w.Client()
	one, _ := w.Hold(c, "k", frame{"max": 1})
	five := w.Queue(c, "k", frame{"max": 5})
	w.Release(c, "k", one)
	w.Granted(c, five)
	also, _ := w.Hold(c, "k", frame{"max": 5})
	more, _ := w.Hold(c, "k", frame{"max": nil}) // the last one of the key
	w.Queue(c, "k", frame{"max": 2})
	for _, id := range []string{five, also, more} {
		w.Release(c, "k", id)
	}
	r1, r2 := w.Dial().Version("0.2.27"), w.Dial().Version("0.2.27")
	for _, r := range []*lmxtest.Client{r1, r2} {
		id := w.ID()
		r.Send(frame{"type": "register-write-flag-check", "uuid": id, "key": "rw"})
		r.Expect(id)
		w.Hold(r, "rw", frame{"max": 10, "rwStatus": nil})
		r.Send(frame{"type": "increment-readers", "uuid": id, "key": "rw"})
		r.Expect(id)
	}
}

// Defect 6: the fencing token of a key that was idle for 2 s starts anew from the
// clock, and so goes down after more than one grant a millisecond.
func TestDefect06Tokens(t *testing.T) { ours(t, defect06) }

func defect06(w *lmxtest.World) {
	c := w.Client()
	last := int64(0)
	const burst = 50
	for round := range 2 {
		for i := 0; i < 3000; i += burst { // all in the same instant, where time is fake
			var frames []frame
			for j := range burst {
				id := fmt.Sprintf("t%d-%d", round, i+j)
				frames = append(frames, lmxtest.Lock(id, "k", nil), lmxtest.Unlock("u"+id, id, "k", nil))
			}
			c.Send(frames...)
			for range frames {
				f := c.Next()
				if f.Text("type") != "lock" {
					continue
				}
				token := f.Int("fencingToken")
				if token <= last || token >= 1<<53 {
					w.T.Fatalf("round %d: the token is %d, after %d", round, token, last)
				}
				last = token
			}
		}
		w.Pause(2100 * time.Millisecond)
	}
}

// Defect 7: a connection that the broker destroys itself is never cleaned up.
func TestDefect07Destroyed(t *testing.T) { ours(t, defect07) }

func defect07(w *lmxtest.World) {
	next := w.Client()
	for _, how := range []string{"destroy", "end"} {
		c := w.Client()
		w.Hold(c, "k", nil)
		waiting := w.Queue(next, "k", nil)
		c.Send(frame{"type": how + "-connection-from-broker-for-testing-purposes"})
		c.Ended(w.Long(5 * time.Second))
		w.Granted(next, waiting)
		w.Release(next, "k", waiting)
	}
}

// Defect 8: a many-key lock obeys the width that a key had last as a semaphore, so
// that two hold the same key.
func TestDefect08ManyKeysExclude(t *testing.T) { ours(t, defect08) }

func defect08(w *lmxtest.World) {
	a, b := w.Client(), w.Client()
	many := func(c *lmxtest.Client, wait bool, keys ...string) frame {
		id := w.ID()
		c.Send(frame{"type": "acquire-many", "uuid": id, "keys": keys, "ttl": 60000, "wait": wait})
		return c.Expect(id)
	}
	sem, _ := w.Hold(a, "k", frame{"max": 5})
	if f := many(b, false, "k", "z"); !f.False("acquired") || f.Text("contendedKey") != "k" {
		w.T.Errorf("beside a semaphore: got %v, want it contended by k", f)
	}
	w.Release(a, "k", sem)
	if f := many(a, false, "k", "z"); !f.True("acquired") {
		w.T.Fatalf("got %v, want it acquired", f)
	}
	if f := many(b, false, "a", "k"); !f.False("acquired") || f.Text("contendedKey") != "k" {
		w.T.Errorf("beside many keys: got %v, want it contended by k", f)
	}
	w.Queue(b, "k", frame{"max": 5})
	w.Hold(b, "a", nil) // nothing was kept of what was refused
}

// Defect 9: a forced unlock with the id of nobody evicts the holder.
func TestDefect09ForceWithForeignID(t *testing.T) { ours(t, defect09) }

func defect09(w *lmxtest.World) {
	a, b := w.Client(), w.Client()
	id, _ := w.Hold(a, "k", nil)
	uuid := w.ID()
	b.Send(lmxtest.Unlock(uuid, "nobody", "k", frame{"force": true}))
	if f := b.Expect(uuid); !f.False("unlocked") || f.Text("error") == "" {
		w.T.Errorf("force with an id that holds nothing: got %v, want it refused", f)
	}
	w.Queue(b, "k", nil)
	w.Quiet(b)
	w.Release(a, "k", id)
}

// Defect 10: characters of several bytes that are cut at the border of a chunk get
// mangled, so that two clients may lock different keys.
func TestDefect10CutCharacters(t *testing.T) { ours(t, defect10) }

func defect10(w *lmxtest.World) {
	c := w.Client()
	const key = "ключ-🔑-鍵"
	id := w.ID()
	text := lmxtest.Lock(id, key, nil).String() + "\n"
	at := strings.Index(text, "🔑")
	for _, part := range []string{text[:at+2], text[at+2 : at+3], text[at+3:]} {
		c.Raw(part)
		w.Pause(30 * time.Millisecond) // a chunk of its own, also where the kernel gathers
	}
	if f := c.Expect(id); f.Text("key") != key || !f.True("acquired") {
		w.T.Fatalf("got the key %q, want the same as was sent: %q", f.Text("key"), key)
	}
	w.Queue(c, key, nil)
}

// Defect 11: the records of many-key locks are dropped by release-many alone, not
// when they expire or their connection ends; the gauges only grow.
func TestDefect11Gauges(t *testing.T) { ours(t, defect11) }

func defect11(w *lmxtest.World) {
	watcher := w.Client()
	for _, end := range []string{"expiry", "connection", "force", "release"} {
		c := w.Client()
		id, ttl := w.ID(), 600_000
		if end == "expiry" {
			ttl = 3000 // longer than it takes to look at what is held
		}
		c.Send(frame{"type": "acquire-many", "uuid": id, "keys": []string{"a", "b"}, "ttl": ttl})
		grant := c.Expect(id)
		reads := w.ID()
		c.Send(frame{"type": "increment-readers", "uuid": reads, "key": "r"})
		c.Expect(reads)
		for name, want := range map[string]int64{"composites": 1, "readers": 1, "holds": 2, "keys": 2} {
			if n := w.Note(name); n != want {
				w.T.Errorf("%s: %d %s while they are held, want %d", end, n, name, want)
			}
		}
		switch end {
		case "expiry":
			w.Pause(3500 * time.Millisecond)
		case "connection":
			c.Close()
		case "force":
			w.Force(watcher, "a")
			w.Force(watcher, "b")
		case "release":
			many := w.ID()
			c.Send(frame{"type": "release-many", "uuid": many, "lockUuid": grant.Text("lockUuid")})
			c.Expect(many)
		}
		c.Close()
		w.Quiet(watcher)
		keepsNothing(w)
	}
}

// Defect 12: a refused lock of HTTP stays in the queue of a connection that nobody
// has, and is later granted to nobody. A refused acquire-many of HTTP likewise.
func TestDefect12RefusedHTTP(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		id, _ := r.Hold(c, "k", nil)
		for range 3 {
			if status, f := r.post("/v1/lock", `{"key":"k"}`); status != 200 || !f.False("acquired") {
				t.Errorf("lock: got %d %v, want 200 and acquired:false", status, f)
			}
			if status, f := r.post("/v1/acquire-many", `{"keys":["j","k"]}`); status != 409 || !f.False("acquired") {
				t.Errorf("acquire-many: got %d %v, want 409 and acquired:false", status, f)
			}
		}
		if _, waiting := r.Info(c, "k"); waiting != 0 {
			t.Errorf("%d wait after all were refused", waiting)
		}
		r.Release(c, "k", id)
		r.wantKeys(c)
		r.Hold(c, "k", nil)
		r.Hold(c, "j", nil)
	})
}

// Defect 13: acquire-many over HTTP without ttl never expires; the name ttlMs of
// the readme's example is not read.
func TestDefect13HTTPExpires(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		if status, f := r.post("/v1/acquire-many", `{"keys":["a","b"]}`); status != 200 || !f.True("acquired") {
			t.Fatalf("got %d %v, want it acquired", status, f)
		}
		r.Pause(4900 * time.Millisecond)
		r.wantKeys(c, "a", "b")
		r.Pause(200 * time.Millisecond)
		r.wantKeys(c)
		// A name that is not known is refused, rather than a ttl be ignored in silence.
		if status, f := r.post("/v1/acquire-many", `{"keys":["a","b"],"ttlMs":100}`); status != 400 || !strings.Contains(f.Text("error"), "ttlMs") {
			t.Errorf("ttlMs: got %d %v, want 400 and an error that names it", status, f)
		}
		r.wantKeys(c)
	})
}

// Defect 14: a holder that repeats its request, because grant and retry crossed,
// queues behind itself.
func TestDefect14Repeat(t *testing.T) { ours(t, defect14) }

func defect14(w *lmxtest.World) {
	a, b := w.Client(), w.Client()
	id, grant := w.Hold(a, "k", nil)
	a.Send(lmxtest.Lock(id, "k", frame{"retryCount": 1}))
	if f := a.Expect(id); !f.True("acquired") || f.Text("fencingToken") != grant.Text("fencingToken") {
		w.T.Errorf("got %v, want the grant again: %v", f, grant)
	}
	next := w.Queue(b, "k", nil)
	w.Release(a, "k", id)
	w.Granted(b, next)
	w.Release(b, "k", next)
	w.Hold(b, "k", nil)
	w.Quiet(a, b)
}

// Defect 15: lock-received-rejected does not free the lock.
func TestDefect15Rejected(t *testing.T) { ours(t, defect15) }

func defect15(w *lmxtest.World) {
	a, b, c := w.Client(), w.Client(), w.Client()
	id, _ := w.Hold(a, "k", nil)
	gone := w.Queue(b, "k", nil)
	w.Release(a, "k", id)
	w.Granted(b, gone)
	b.Send(frame{"type": "lock-received-rejected", "uuid": gone, "key": "k"})
	w.Quiet(b)
	w.Hold(c, "k", nil)
}

// Defect 16: keepLocksAfterDeath has no effect, neither in the lock frame nor in
// the acknowledgement, where the option of the constructor appears.
func TestDefect16KeepLocks(t *testing.T) { ours(t, defect16) }

func defect16(w *lmxtest.World) {
	other := w.Client()
	for _, where := range []string{"lock", "lock-received"} {
		c := w.Client()
		key := "kept-" + where
		id, _ := w.Hold(c, key, frame{"ttl": 1500, "keepLocksAfterDeath": where == "lock"})
		if where == "lock-received" {
			c.Send(frame{"type": "lock-received", "uuid": id, "key": key, "keepLocksAfterDeath": true})
		}
		goes, _ := w.Hold(c, "goes", nil)
		waiting := w.Queue(other, "goes", nil)
		c.End()
		w.Granted(other, waiting) // the end was seen
		w.Release(other, "goes", waiting)
		next := w.Queue(other, key, nil)
		w.Quiet(other)
		w.Granted(other, next) // the ttl holds on
		_ = goes
	}
}

// Defect 17: idle keys are kept, and every fourth request walks over all keys to
// collect them. Ours has nothing to collect: what is free is gone.
func TestDefect17NothingToCollect(t *testing.T) { ours(t, defect17) }

func defect17(w *lmxtest.World) {
	c := w.Client()
	const keys, burst = 4000, 50
	for i := 0; i < keys; i += burst {
		var locks, unlocks []frame
		for j := range burst {
			id, key := fmt.Sprintf("r-%d", i+j), fmt.Sprintf("key-%d", i+j)
			locks = append(locks, lmxtest.Lock(id, key, nil))
			unlocks = append(unlocks, lmxtest.Unlock("u"+id, id, key, nil))
		}
		c.Send(locks...)
		for _, f := range locks {
			w.Granted(c, f["uuid"].(string))
		}
		c.Send(unlocks...)
		for _, f := range unlocks {
			c.Expect(f["uuid"].(string))
		}
	}
	keepsNothing(w)
}

// keepsNothing checks that the broker keeps nothing of what is over.
func keepsNothing(w *lmxtest.World) {
	w.T.Helper()
	for _, name := range []string{"keys", "holds", "waiters", "composites", "timers", "readers", "kept keys", "kept ids", "unacked"} {
		n := w.Note(name)
		// Over a real connection the broker may be busy yet.
		for began := time.Now(); n != 0 && time.Since(began) < w.Patience; n = w.Note(name) {
			w.Pause(10 * time.Millisecond)
		}
		if n != 0 {
			w.T.Errorf("%s: %d are kept when all is over", name, n)
		}
	}
	if n := w.Note("kept ended"); n > 16384 {
		w.T.Errorf("%d ended holds are remembered, want at most 16384", n)
	}
}

// fillEnded has so many holds expire that the memory of late unlocks is full.
func fillEnded(w *lmxtest.World, c *lmxtest.Client) {
	w.T.Helper()
	keys := make([]string, 64)
	for i := range 300 {
		for j := range keys {
			keys[j] = fmt.Sprintf("ended-%d", j)
		}
		id := fmt.Sprintf("ended-%d", i)
		c.Send(frame{"type": "acquire-many", "uuid": id, "keys": keys, "ttl": 1})
		if f := c.Expect(id); !f.True("acquired") {
			w.T.Fatalf("got %v, want it granted", f)
		}
		w.Pause(5 * time.Millisecond)
	}
}

// Defect 18: ids of released holds, of rejected grants, and listeners of readers
// and writers are kept for ever.
func TestDefect18NothingForEver(t *testing.T) { ours(t, defect18) }

func defect18(w *lmxtest.World) {
	c, d := w.Client(), w.Client()
	cycle := func(round, n int) {
		for i := range n {
			id := fmt.Sprintf("r%d-%d", round, i)
			c.Send(lmxtest.Lock(id, "k", nil))
			w.Granted(c, id)
			d.Send(lmxtest.Unlock("u"+id, "", "k", frame{"force": true}).Without("_uuid"),
				frame{"type": "lock-received-rejected", "uuid": "x" + id, "key": "k"},
				frame{"type": "lock-client-timeout", "uuid": "y" + id, "key": "k"},
				frame{"type": "register-write-flag-check", "uuid": "f" + id, "key": "rw-" + id},
				frame{"type": "decrement-readers", "uuid": "g" + id, "key": "rw-" + id},
				frame{"type": "register-write-flag-and-readers-check", "uuid": "h" + id, "key": "rw-" + id},
				frame{"type": "set-write-flag-false-and-broadcast", "uuid": "i" + id, "key": "rw-" + id})
			for _, u := range []string{"u", "f", "g", "h", "i"} {
				d.Expect(u + id)
			}
		}
	}
	fillEnded(w, c)
	cycle(0, 800)
	before := w.Note("objects")
	fillEnded(w, c)
	cycle(1, 800)
	if grown := w.Note("objects") - before; grown > 700 {
		w.T.Errorf("%d objects more are kept after 20000 holds more that were lost", grown)
	}
	keepsNothing(w)
}

// Defect 19: a line with null ends the parser of its connection in silence.
func TestDefect19Null(t *testing.T) { ours(t, defect19) }

func defect19(w *lmxtest.World) {
	c := w.Client()
	w.Hold(c, "k", nil)
	for _, line := range []string{"null", "null null", `{"type":null}`, "[null]", "true", "", "{", `"text"`, "17"} {
		c.Raw(line + "\n")
		if line == `{"type":null}` {
			continue
		}
		id := w.ID()
		c.Send(lmxtest.Lock(id, "after "+line, nil))
		w.Granted(c, id)
	}
}

// Defect 20: max is not clamped to 1000, and the counter of clamps stays 0.
func TestDefect20Clamp(t *testing.T) { ours(t, defect20) }

func defect20(w *lmxtest.World) {
	c := w.Client()
	for range 1000 {
		w.Hold(c, "k", frame{"max": 5000})
	}
	w.Queue(c, "k", frame{"max": 5000})
	if n := w.Note("clamps"); n != 1001 {
		w.T.Errorf("%d clamps are counted, want 1001", n)
	}
}

// Defect 22: ls is always empty, lock info tells names of the implementation, and
// inspect answers constants.
func TestDefect22TrueAnswers(t *testing.T) { ours(t, defect22) }

func defect22(w *lmxtest.World) {
	a, b := w.Client(), w.Client()
	id, _ := w.Hold(a, "b", nil)
	w.Hold(a, "a", nil)
	waits := w.Queue(b, "b", nil)
	uuid := w.ID()
	b.Send(frame{"type": "ls", "uuid": uuid})
	got := b.Expect(uuid).Texts("ls_result")
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
		w.T.Errorf("ls: got %q, want a and b", got)
	}
	if holders, waiting := w.Info(b, "b"); !slices.Equal(holders, []string{id}) || waiting != 1 {
		w.T.Errorf("lock info: got %q and %d waiting, want %q and 1", holders, waiting, id)
	}
	inspect := func(command string) int64 {
		b.Send(frame{"inspectCommand": command})
		return b.Next().Int("inspectResult")
	}
	locks, clients := inspect("lockcount"), inspect("clientcount")
	w.Hold(w.Client(), "c", nil)
	if n := inspect("lockcount"); locks != 2 || n != 3 {
		w.T.Errorf("inspect says %d locks and then %d, want 2 and 3", locks, n)
	}
	if n := inspect("clientcount"); clients < 2 || n != clients+1 {
		w.T.Errorf("inspect says %d clients, and %d after one more", clients, n)
	}
	w.Release(a, "b", id)
	w.Granted(b, waits)
	if holders, waiting := w.Info(b, "b"); !slices.Equal(holders, []string{waits}) || waiting != 0 {
		w.T.Errorf("lock info: got %q and %d waiting, want %q and 0", holders, waiting, waits)
	}
}

// refused sends a request that must be answered by an error which names what is
// wrong with it.
func refused(w *lmxtest.World, c *lmxtest.Client, f frame, name string) {
	w.T.Helper()
	c.Send(f)
	var got frame
	if uuid, ok := f["uuid"].(string); ok {
		got = c.Expect(uuid)
	} else {
		got = c.Next()
	}
	if text := got.Text("error"); got.True("acquired") || text == "" || !strings.Contains(text, name) {
		w.T.Errorf("%.120v: got %.300v, want it refused by an error that names %q", f, got, name)
	}
}

// Defect 26: there is no limit on lines, keys, waiters and connections.
func TestDefect26Limits(t *testing.T) { ours(t, defect26) }

func defect26(w *lmxtest.World) {
	c := w.Client()
	long := strings.Repeat("k", 513)
	w.Hold(c, long[:512], nil)
	refused(w, c, lmxtest.Lock(w.ID(), long, nil), "MaxKeyLength")
	refused(w, c, frame{"type": "acquire-many", "uuid": w.ID(), "keys": []string{"k", long}}, "MaxKeyLength")
	refused(w, c, lmxtest.Lock(strings.Repeat("u", 129), "k", nil), "MaxIDLength")
	c.Push(`{"type":"lock","uuid":"` + w.ID() + `","key":"k","more":"` + strings.Repeat("x", 70_000) + `"}` + "\n")
	if f := c.Next(); !strings.Contains(f.Text("error"), "MaxFrame") {
		w.T.Errorf("a frame of 70 kB: got %.300v, want an error that names MaxFrame", f)
	}
	c.Ended(w.Long(5 * time.Second))
}

// Defect 27: odd input is accepted.
func TestDefect27OddInput(t *testing.T) { ours(t, defect27) }

func defect27(w *lmxtest.World) {
	c := w.Client()
	lock := func(more frame) frame { return lmxtest.Lock(w.ID(), "k", more) }
	refused(w, c, lock(frame{"key": 17}), "key")
	refused(w, c, lock(nil).Without("key"), "key")
	refused(w, c, lock(frame{"key": nil}), "key")
	refused(w, c, lock(frame{"key": ""}), "key")
	refused(w, c, lock(frame{"key": []string{"k"}}), "key")
	refused(w, c, lock(nil).Without("uuid"), "uuid")
	for _, ttl := range []any{-1, 1.5, "text", "1000", true, frame{}, 1e300} {
		refused(w, c, lock(frame{"ttl": ttl}), "ttl")
	}
	w.Hold(c, "k", nil) // nothing of all this holds it
}
