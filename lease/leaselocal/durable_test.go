package leaselocal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// log collects what a service tells, by kind.
type log struct {
	mu  sync.Mutex
	got []string
}

func (l *log) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, fmt.Sprintf(format, args...))
}

// take returns what was told since the last time.
func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	return got
}

// Expiry and force are on the disk before the old holder, the next one or a
// watcher hears of them. Time passes by the clock of the synctest bubble.
func TestLossesAreToldAfterTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowSync{FS: crashfs.New(nil)}
		s := mustOpen(t, Options{Dir: "d", fs: disk})
		defer s.Close()
		var told log
		stop, err := s.Watch(t.Context(), lease.Query{}, func(e lease.Event) { told.add("event %s", e.Kind) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		c := mustSession(t, s, lease.SessionOptions{Notify: func(n lease.Notice) { told.add("notice %s", n.Code) }})
		for step, end := range []func(){
			func() { time.Sleep(time.Minute + time.Second) },
			func() {
				go func() {
					f, err := s.Force(t.Context(), lease.ForceRequest{Key: "k"})
					told.add("answer %d %v", len(f.Holds), err)
				}()
			},
		} {
			holder, next := ask(c, fmt.Sprint("holder", step), "k"), ask(c, fmt.Sprint("next", step), "k")
			synctest.Wait()
			if a, b := holder.now(), next.now(); a.times != 1 || a.err != nil || b.times != 0 {
				t.Fatalf("step %d: holder %+v, next %+v", step, a, b)
			}
			told.take()
			disk.shut()
			end()
			synctest.Wait()
			if got := told.take(); got != nil || next.now().times != 0 {
				t.Errorf("step %d: told before the sync: %q, next %+v", step, got, next.now())
			}
			disk.open()
			synctest.Wait()
			want := [][]string{
				{"event expired", "event granted", "notice expired"},
				{"answer 1 <nil>", "event forced", "event granted", "notice forced"},
			}[step]
			got := told.take()
			slices.Sort(got)
			if a := next.now(); !slices.Equal(got, want) || a.times != 1 || a.err != nil {
				t.Errorf("step %d: told %q, want %q; next %+v", step, got, want, a)
			}
			c.Do(lease.Command{Verb: lease.Release, ID: fmt.Sprint("next", step)}, nil)
			synctest.Wait()
		}
	})
}

// A renewal is in the journal only when it changes the ttl: a fleet that renews
// every few seconds costs the disk nothing.
func TestPlainRenewalsAreNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowSync{FS: crashfs.New(nil)}
		s := mustOpen(t, Options{Dir: "d", fs: disk})
		defer s.Close()
		c := mustSession(t, s, lease.SessionOptions{})
		ask(c, "a", "k")
		synctest.Wait()
		before, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			ttl  time.Duration
			want uint64 // records so far
		}{{0, 0}, {time.Minute, 0}, {time.Hour, 1}, {time.Hour, 1}} {
			r := &reply{}
			c.Do(lease.Command{Verb: lease.Renew, ID: "a", TTL: step.ttl}, r.Done)
			synctest.Wait()
			st, err := s.Stats(t.Context())
			if err != nil || r.now().err != nil || st.JournalRecords-before.JournalRecords != step.want {
				t.Errorf("renewal to %v: %+v, %v; %d records, want %d", step.ttl, r.now(), err, st.JournalRecords-before.JournalRecords, step.want)
			}
		}
	})
}

// After an unclean end of a journal that may have forgotten grants, nothing is
// granted until the longest ttl that may have been forgotten has passed in the
// synctest bubble; what was known goes on. A clean end owes nothing.
func TestLazyJournalIsQuietAfterACrash(t *testing.T) {
	for name, policy := range map[string]Fsync{"interval": Interval, "never": Never} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := crashfs.New(nil)
				o := Options{Dir: "d", Fsync: policy, fs: disk}
				s := mustOpen(t, o)
				c := mustSession(t, s, lease.SessionOptions{Grace: time.Hour})
				long := &reply{}
				c.Acquire(lease.Request{ID: "long", Keys: []string{"long"}, TTL: time.Hour}, long)
				synctest.Wait()
				// The first lease of this length is synced together with the promise
				// that it makes; the second one is not.
				first, short := &reply{}, &reply{}
				c.Acquire(lease.Request{ID: "first", Keys: []string{"first"}, TTL: 20 * time.Second}, first)
				synctest.Wait()
				c.Acquire(lease.Request{ID: "short", Keys: []string{"short"}, TTL: 20 * time.Second}, short)
				synctest.Wait()
				for _, r := range []*reply{long, first, short} {
					if a := r.now(); a.times != 1 || a.err != nil {
						t.Fatalf("%+v, want a grant", a)
					}
				}
				o.fs = disk.Reopen(crashfs.Lose, 1, nil)
				s.Close()

				s = mustOpen(t, o)
				l, err := s.List(t.Context(), lease.Query{})
				if err != nil || len(l.Keys) != 2 || l.Keys[0].Key != "first" || l.Keys[1].Key != "long" {
					t.Fatalf("after the crash %+v, %v; want the lease of an hour, which is always synced, and the first, but not the short one",
						l.Keys, err)
				}
				d := mustSession(t, s, lease.SessionOptions{})
				next := ask(d, "next", "short")
				time.Sleep(20*time.Second - time.Millisecond)
				synctest.Wait()
				if a := next.now(); a.times != 0 {
					t.Errorf("granted beside a lease that was forgotten: %+v", a)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if a := next.now(); a.times != 1 || a.err != nil || a.lease.Token() <= short.now().lease.Token() {
					t.Errorf("after the quiet time: %+v, want a grant above token %d", a, short.now().lease.Token())
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}

				s = mustOpen(t, o)
				defer s.Close()
				now := ask(mustSession(t, s, lease.SessionOptions{}), "now", "other")
				synctest.Wait()
				if a := now.now(); a.times != 1 || a.err != nil {
					t.Errorf("after a clean end: %+v, want a grant at once", a)
				}
			})
		})
	}
}

// A backup is a copy of the directory. One that was made earlier knows nothing of
// later tokens, and the floor says where they had come to. This one is made while
// the service is open: to the copy that looks like a crash.
func TestBackupAndRestore(t *testing.T) {
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	s := mustOpen(t, Options{Dir: dir})
	client, err := lease.Connect(t.Context(), s, lease.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := client.Acquire(t.Context(), lease.Request{ID: "kept", Keys: []string{"kept"}, TTL: time.Hour, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	later, err := client.Acquire(t.Context(), lease.Request{Keys: []string{"later"}, TTL: time.Hour, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	// Higher than any clock, so that the floor alone can be the reason.
	floor := later.Token() + 1<<52
	r := mustOpen(t, Options{Dir: copied, TokenFloor: floor})
	again, err := lease.Connect(t.Context(), r, lease.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = again.Acquire(t.Context(), lease.Request{Keys: []string{"kept"}, Try: true})
	if !errors.Is(err, lease.ErrBusy) {
		t.Errorf("what was held at the backup: %v, want busy", err)
	}
	if l, err := again.Release(t.Context(), "kept"); err != nil || l.Token() != kept.Token() {
		t.Errorf("release by id: %+v, %v; want token %d", l, err, kept.Token())
	}
	l, err := again.Acquire(t.Context(), lease.Request{Keys: []string{"later"}, Try: true})
	if err != nil || l.Token() <= floor {
		t.Errorf("what was taken after the backup: %+v, %v; want a grant above %d", l, err, floor)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	// The floor is in the journal by now: it needs to be given only once.
	once := mustOpen(t, Options{Dir: copied})
	defer once.Close()
	more, err := lease.Connect(t.Context(), once, lease.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := more.Acquire(t.Context(), lease.Request{Keys: []string{"more"}}); err != nil || l.Token() <= floor {
		t.Errorf("without the floor: %+v, %v; want a grant above %d", l, err, floor)
	}
}
