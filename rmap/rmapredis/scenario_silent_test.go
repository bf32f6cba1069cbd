package rmapredis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// late is how much later than the stated bound something may be seen on a busy machine.
const late = 5 * time.Second

// H2, P5: the sockets stay open and nothing moves, one way or both. It is noticed within a heartbeat and the time limit
// for an answer, without a write; whoever wants to read only what is current is refused; and when the link is well
// again nothing is missing.
func TestP05FrozenLink(t *testing.T) {
	so := rmapredis.Options{Heartbeat: 100 * time.Millisecond, Pong: 200 * time.Millisecond}
	o := live()
	o.Heartbeat = 100 * time.Millisecond
	for _, way := range []struct {
		name string
		redistest.Direction
	}{{"both", redistest.Both}, {"replies", redistest.Replies}, {"requests", redistest.Requests}} {
		t.Run(way.name, func(t *testing.T) {
			w := newWorld(t)
			relay := redistest.NewRelay(t, w.Addr())
			writer, r := w.join(deaf()), w.joinOver(relay.Addr(), so, o)
			writer.set("k", "v")
			w.settled(r)
			if err := r.Fresh(); err != nil {
				t.Error(err)
			}
			relay.Freeze(way.Direction)
			began := time.Now()
			writer.set("k", "w") // its notice never arrives
			until(t, "it is noticed", func() bool { return r.Lag().State == rmap.CutOff })
			if took := time.Since(began); took > so.Heartbeat+so.Pong+late {
				t.Errorf("noticed after %v", took)
			}
			lag := r.Lag()
			if lag.Err == nil || lag.Age > time.Since(began)+so.Heartbeat+so.Pong+late {
				t.Errorf("lag %+v", lag)
			}
			if err := r.Fresh(); !errors.Is(err, rmap.ErrStale) {
				t.Errorf("Fresh: %v, want ErrStale", err)
			}
			if v, ok := r.Get("k"); v == "" || !ok {
				t.Error("Get does not serve")
			}
			// The age goes on growing while nothing can be proved.
			until(t, "the age has grown", func() bool { return r.Lag().Age > lag.Age+200*time.Millisecond })
			relay.Thaw()
			w.settled(r, writer)
			r.shows(map[string]string{"k": "w"})
			if err := r.Fresh(); err != nil {
				t.Error(err)
			}
		})
	}
}

// P5: with a limit on the age instead, reads go on until the copy is that old.
func TestP05AgeLimit(t *testing.T) {
	w := newWorld(t)
	relay := redistest.NewRelay(t, w.Addr())
	o := eager()
	o.MaxStale = time.Second
	r := w.joinOver(relay.Addr(), rmapredis.Options{}, o)
	r.set("k", "v")
	relay.Freeze(redistest.Both)
	until(t, "the copy is too old", func() bool {
		v, err := r.Lookup("k")
		if err == nil && v == "v" {
			return false
		}
		if lag := r.Lag(); !errors.Is(err, rmap.ErrStale) || lag.Age <= o.MaxStale {
			t.Fatalf("%v at %+v", err, lag)
		}
		return true
	})
	relay.Thaw()
	until(t, "reads go on", func() bool { _, err := r.Lookup("k"); return err == nil })
}

// P6: a process does not read what is sent to it until the server gives up on it.
func TestP06SlowSubscriber(t *testing.T) {
	w := newWorld(t)
	w.Do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 4mb 2mb 2")
	relay := redistest.NewRelay(t, w.Addr())
	writer := w.join(deaf())
	writer.set("k", "v")
	// The process itself is patient: it is the server that cuts the connection.
	r := w.joinOver(relay.Addr(), rmapredis.Options{Heartbeat: time.Hour, Pong: time.Hour}, deaf())
	relay.Freeze(redistest.Replies)
	value := strings.Repeat("v", 500_000)
	for i := range 60 {
		if _, err := writer.Set(t.Context(), "large"+strconv.Itoa(i), value); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the server gave up", func() bool { return strings.Contains(w.Log(), "output buffer limits") })
	relay.Thaw()
	writer.sync()
	until(t, "the copy has all", func() bool { return r.Len() == 61 && r.Lag().State == rmap.Live })
	w.settled(writer)
	if got, want := r.Lag().Revision, writer.Lag().Revision; got != want {
		t.Errorf("the copy is at %v, stored is %v", got, want)
	}
	for i := range 60 {
		if v, _ := r.Get("large" + strconv.Itoa(i)); v != value {
			t.Fatalf("value %d has %d bytes", i, len(v))
		}
	}
	if s := r.Stats(); s.Losses == 0 || r.reloads() != "gap 1" {
		t.Errorf("reloads %q, stats %+v", r.reloads(), s)
	}
}

// The server stops for a while: no copy takes the silence for currency.
func TestP05FrozenServer(t *testing.T) {
	w := newWorld(t)
	so := rmapredis.Options{Heartbeat: 100 * time.Millisecond, Pong: 200 * time.Millisecond}
	r := w.joinOver(w.Addr(), so, live())
	r.set("k", "v")
	w.Freeze()
	r.is(rmap.CutOff)
	if err := r.Fresh(); !errors.Is(err, rmap.ErrStale) {
		t.Errorf("Fresh: %v", err)
	}
	w.Thaw()
	w.settled(r)
}
