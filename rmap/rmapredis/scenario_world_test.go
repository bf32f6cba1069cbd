package rmapredis_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

type (
	text    = rmap.Map[string, string]
	options = rmap.Options[string, string]
	event   = rmap.Event[string, string]
)

// deaf copies compare themselves with the store only when something makes them: what a test with them sees is not the
// work of the heartbeat.
func deaf() options { return options{Heartbeat: time.Hour, Timeout: patience} }

// eager copies compare themselves with the store all the time.
func eager() options { return options{Heartbeat: 50 * time.Millisecond, Timeout: patience} }

// patience is how long anything may take on a busy machine. Where a defect was planted something will be waited for in
// vain.
var patience = map[bool]time.Duration{false: time.Minute, true: 4 * time.Second}[os.Getenv(envPlanted) != ""]

// envPlanted says that the program has a planted defect.
const envPlanted = "LATCHKEY_PLANTED"

// Of the scenarios of a replicated map, S22 is checked by the tests of the module's style too, and S25 is the race
// detector over all of them.

// A world is a server with one map on it, and processes that have copies of it, each over connections of its own.
type world struct {
	*redistest.Server
	t    testing.TB
	name string
	dir  string // for what processes write down
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return &world{Server: redistest.Start(t, redistest.Options{}), t: t, name: "flags", dir: t.TempDir()}
}

// What the map is in Redis, as documented.
func (w *world) hash() string { return "latchkey:map:{" + w.name + "}" }
func (w *world) log() string  { return w.hash() + ":log" }
func (w *world) news() string { return w.hash() + ":changes" }

func (w *world) open(addr string, o rmapredis.Options) *rmapredis.Store {
	w.t.Helper()
	s, err := rmapredis.Open(w.t.Context(), "redis://"+addr, o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(s.Close)
	return s
}

// A replica is a copy and all that its subscriber was told.
type replica struct {
	*text
	t     testing.TB
	store *rmapredis.Store

	mu   sync.Mutex // guards told
	told []event
}

// join makes a copy.
func (w *world) join(o options) *replica {
	w.t.Helper()
	return w.joinOver(w.Addr(), rmapredis.Options{}, o)
}

// joinOver makes a copy that reaches the server by an address of its own.
func (w *world) joinOver(addr string, so rmapredis.Options, o options) *replica {
	w.t.Helper()
	store := w.open(addr, so)
	m, err := rmap.Join(w.t.Context(), store, w.name, o)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &replica{text: m, t: w.t, store: store}
	events := m.Watch(w.t.Context(), rmap.WatchOptions{Events: 10_000})
	var listening sync.WaitGroup
	listening.Go(func() {
		for e := range events {
			r.mu.Lock()
			r.told = append(r.told, e)
			r.mu.Unlock()
		}
	})
	w.t.Cleanup(func() { m.Close(); listening.Wait() })
	return r
}

// joinMany makes copies in as many processes.
func (w *world) joinMany(n int, o options) []*replica {
	w.t.Helper()
	out := make([]*replica, n)
	for i := range out {
		out[i] = w.join(o)
	}
	return out
}

func (r *replica) set(key, value string) rmap.Revision {
	r.t.Helper()
	rev, err := r.SetAndWait(r.t.Context(), key, value)
	if err != nil {
		r.t.Fatal(err)
	}
	return rev
}

func (r *replica) sync() {
	r.t.Helper()
	if err := r.Sync(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// news returns in words what the subscriber has been told so far, such as "reset" or "set k".
func (r *replica) news() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.told {
		word := e.Cause.String()
		if e.Key != "" {
			word += " " + e.Key
		}
		out = append(out, word)
	}
	return strings.Join(out, ", ")
}

func (r *replica) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = nil
}

// hears waits until the subscriber was told this, and no more.
func (r *replica) hears(want string) {
	r.t.Helper()
	for began := time.Now(); r.news() != want; pause() {
		if time.Since(began) > patience {
			r.t.Fatalf("the subscriber was told %q, want %q", r.news(), want)
		}
	}
}

// hearsResets waits until the subscriber was told of so many resets, among other things.
func (r *replica) hearsResets(want int) {
	r.t.Helper()
	for began := time.Now(); strings.Count(r.news(), "reset") != want; pause() {
		if time.Since(began) > patience {
			r.t.Fatalf("the subscriber was told %q, want %d resets", r.news(), want)
		}
	}
}

// reloads counts the readings of the whole map after the first, by cause.
func (r *replica) reloads() string {
	s := r.Stats()
	var out []string
	for _, c := range []rmap.ReloadCause{rmap.ReloadGap, rmap.ReloadGeneration, rmap.ReloadRollback} {
		if n := s.Reloaded(c); n > 0 {
			out = append(out, fmt.Sprintf("%v %d", c, n))
		}
	}
	return strings.Join(out, ", ")
}

// shows fails the test unless the copy is this, by all ways of reading.
func (r *replica) shows(want map[string]string) {
	r.t.Helper()
	if got := maps.Collect(r.All()); !maps.Equal(got, want) {
		r.t.Fatalf("the copy at %v is %q, want %q", r.Lag().Revision, got, want)
	}
	if r.Len() != len(want) {
		r.t.Fatalf("the copy has %d entries, want %d", r.Len(), len(want))
	}
	for k, v := range want {
		if got, ok := r.Get(k); !ok || got != v {
			r.t.Fatalf("%q is %q, %t, want %q", k, got, ok, v)
		}
	}
}

// until waits for a condition that nobody is told of.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for began := time.Now(); !cond(); pause() {
		if time.Since(began) > patience {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func pause() { <-time.After(time.Millisecond) }

// is waits until the copy is in a state.
func (r *replica) is(s rmap.State) {
	r.t.Helper()
	until(r.t, "the copy is "+s.String(), func() bool { return r.Lag().State == s })
}

// An entry as the layout describes it, read without the help of the package.
var (
	entryText  = regexp.MustCompile(`(?s)^([1-9][0-9]*)\.([0-9a-f]{16}):([0-9]*):([pil])(.*)$`)
	headerText = regexp.MustCompile(`^1 ([0-9a-f]{16}) ([1-9][0-9]*) ([0-9a-f]{16}) [0-9]+ [0-9]+ [01] [0-9]+ [01]$`)
)

// stored reads the map as it is in Redis: the entries and the revision.
func (w *world) stored() (map[string]string, rmap.Revision) {
	w.t.Helper()
	all := w.Do("HGETALL", w.hash()).([]any)
	out, at := make(map[string]string), rmap.Revision{}
	for i := 0; i < len(all); i += 2 {
		field, value := all[i].(string), all[i+1].(string)
		if field == "" {
			f := headerText.FindStringSubmatch(value)
			if f == nil {
				w.t.Fatalf("the header is %q", value)
			}
			at = rmap.Revision{Generation: hexed(w.t, f[1]), Number: number(w.t, f[2]), Nonce: hexed(w.t, f[3])}
			continue
		}
		f := entryText.FindStringSubmatch(value)
		if f == nil {
			w.t.Fatalf("the entry %q is %q", field, value)
		}
		out[field] = f[5]
	}
	return out, at
}

func hexed(t testing.TB, s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func number(t testing.TB, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settled waits until all copies are live and what is stored.
func (w *world) settled(replicas ...*replica) {
	w.t.Helper()
	for _, r := range replicas {
		for began := time.Now(); ; pause() {
			want, at := w.stored()
			got, lag := maps.Collect(r.All()), r.Lag()
			if lag.State == rmap.Live && lag.Revision == at && maps.Equal(got, want) {
				break
			}
			if time.Since(began) > patience {
				w.t.Fatalf("the copy is %v at %v: %q; stored is at %v: %q", lag.State, lag.Revision, got, at, want)
			}
		}
	}
}

// unannounced does a write that nobody is told of.
func (w *world) unannounced(r *replica, key, value string) {
	w.t.Helper()
	w.Do(r.store.Command(w.name, "elsewhere", put(key, value))...)
}

func put(key, value string) rmap.Write {
	return rmap.Write{Ops: []rmap.Op{{Do: rmap.DoSet, Key: key, Value: rmap.Value{Kind: rmap.Plain, Data: value}}}}
}

// messages returns what was announced of the changes that the log of the map has, oldest first.
func (w *world) messages() []string {
	w.t.Helper()
	var out []string
	for _, e := range w.Do("XRANGE", w.log(), "-", "+").([]any) {
		fields := e.([]any)[1].([]any)
		out = append(out, fields[1].(string))
	}
	return out
}

// announce publishes a message by hand, and waits until all copies have seen it.
func (w *world) announce(message string, replicas ...*replica) {
	w.t.Helper()
	if n := w.Int("PUBLISH", w.news(), message); int(n) != len(replicas) {
		w.t.Fatalf("%d copies are subscribed, want %d", n, len(replicas))
	}
	for _, r := range replicas {
		r.sync() // an answer comes after what was published before it
	}
}
