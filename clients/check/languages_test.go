package check

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Limits of the parts of a client's own script. The first set-up of a machine has everything to download.
const (
	partLimit   = 5 * time.Minute
	sampleLimit = time.Minute
)

// A sample is a program that each client has under the same name.
type sample struct {
	name  string
	says  string               // a pattern of what it prints
	shows func(seen) (ok bool) // what the broker saw of it
	what  string               // that, for people
}

// seen is what a watcher of the broker saw.
type seen []lease.Event

// count is how many events are of one of these kinds.
func (s seen) count(kinds ...lease.EventKind) int {
	n := 0
	for _, e := range s {
		if slices.Contains(kinds, e.Kind) {
			n++
		}
	}
	return n
}

// keys is how many keys were granted.
func (s seen) keys() int {
	keys := make(map[string]bool)
	for _, e := range s {
		keys[e.Key] = keys[e.Key] || e.Kind == lease.EventGranted
	}
	return len(keys)
}

// successions is how often a key was granted again.
func (s seen) successions() int { return s.count(lease.EventGranted) - s.keys() }

var samples = []sample{
	{"basic", `(?i)token`, func(s seen) bool { return s.count(lease.EventGranted) > 0 && s.count(lease.EventReleased) > 0 },
		"a grant and a release"},
	{"many-keys", `(?i)token`, func(s seen) bool { return s.keys() > 1 && s.count(lease.EventReleased) > 1 },
		"grants of several keys, and their releases"},
	{"hold-and-renew", `(?i)renew`, func(s seen) bool { return s.count(lease.EventReleased) > 0 && s.count(lease.EventExpired) == 0 },
		"a hold that was renewed, released and did not expire"},
	{"lost-lease", `(?i)los[ts]`, func(s seen) bool {
		return s.count(lease.EventExpired, lease.EventForced, lease.EventEnded) > 0
	}, "a hold that was lost"},
	{"fenced-write", `(?i)refuse|reject|stale`, func(s seen) bool { return s.successions() > 0 }, "a key that was granted again"},
}

// TestLanguages runs what each client brings along. The broker of its tests is the one that is built here.
func TestLanguages(t *testing.T) {
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		if l.name == "go" {
			continue // its tests are those of the module
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			if !l.here(t) {
				missing, _ := l.ready()
				t.Skipf("the toolchain of %s is missing: %s", l.name, missing)
			}
			b := startBroker(t)
			for _, part := range []string{"lint", "test", "package"} {
				t.Run(part, func(t *testing.T) {
					began := time.Now()
					out, err := l.run(partLimit, []string{"LATCHKEY_BINARY=" + bin.broker}, part)
					if err != nil {
						t.Fatalf("run %s: %v\n%s", part, err, tail(out, 200))
					}
					if part == "test" && !ranTests.MatchString(out) {
						t.Errorf("run test does not say that any test passed:\n%s", tail(out, 20))
					}
					t.Logf("%s: run %s took %.1f s: %s", l.name, part, time.Since(began).Seconds(), tail(out, 1))
					if part == "package" {
						l.packaged(t, b, tail(out, 1))
					}
				})
			}
			for _, s := range samples {
				t.Run("sample "+s.name, func(t *testing.T) {
					b.sees(t, s, func() (string, error) {
						return l.run(sampleLimit, []string{"LATCHKEY_SERVER=" + b.addr}, "sample", s.name)
					})
				})
			}
		})
	}
}

// ranTests matches how the languages' own tools count: an empty run is never green.
var ranTests = regexp.MustCompile(`(?m)^# pass [1-9]|^ℹ pass [1-9]|\b[1-9]\d* passed|Tests run: [1-9]`)

// sees runs a program that does what a sample does, and looks at what it did and left.
func (b *broker) sees(t *testing.T, s sample, run func() (string, error)) {
	t.Helper()
	var mu sync.Mutex
	var events seen
	stop, err := b.sight.Watch(t.Context(), lease.Query{}, func(e lease.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	before, err := b.stats()
	if err != nil {
		t.Fatal(err)
	}
	out, err := run()
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(out, 100))
	}
	t.Logf("it printed:\n%s", tail(out, 20))
	if !regexp.MustCompile(s.says).MatchString(out) {
		t.Errorf("it does not say %s", s.says)
	}
	if err := b.idle(patience, 0); err != nil {
		t.Errorf("it has ended: %v", err)
	}
	err = until(patience, "the broker saw "+s.what, func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return s.shows(events), nil
	})
	if err != nil {
		t.Error(err)
	}
	after, err := b.stats()
	if err != nil {
		t.Fatal(err)
	}
	if s.name == "hold-and-renew" && after.Renewals == before.Renewals {
		t.Error("the broker saw no renewal")
	}
}

// tail is the end of what a program printed.
func tail(out string, lines int) string {
	all := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
