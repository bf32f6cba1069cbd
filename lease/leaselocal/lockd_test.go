package leaselocal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// What an earlier lock engine got wrong where the engine meets its journal, its
// clock and many goroutines. The rest of its gaps are named in leasetest and in
// the engine's own tests.

// answer is what a request was told.
type answer struct {
	lease lease.Lease
	err   error
	times int
}

// reply collects the answer of one request.
type reply struct {
	mu  sync.Mutex
	got answer
}

func (r *reply) Queued(lease.Queued) {}

func (r *reply) Done(l lease.Lease, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = answer{l, err, r.got.times + 1}
}

// now is the answer so far.
func (r *reply) now() answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

func ask(s lease.Session, id string, keys ...string) *reply {
	r := &reply{}
	s.Acquire(lease.Request{ID: id, Keys: keys, TTL: time.Minute}, r)
	return r
}

func mustOpen(t *testing.T, o Options) *Service {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSession(t *testing.T, s *Service, o lease.SessionOptions) lease.Session {
	t.Helper()
	c, err := s.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// slowSync is a disk whose syncs wait, from when it is shut, until it is opened.
type slowSync struct {
	journal.FS
	mu    sync.Mutex
	gate  chan struct{} // nil: syncs pass
	syncs atomic.Int64
}

type slowFile struct {
	journal.File
	disk *slowSync
}

func (d *slowSync) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gate = make(chan struct{})
}

func (d *slowSync) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.gate)
	d.gate = nil
}

func (d *slowSync) Create(path string) (journal.File, error) {
	f, err := d.FS.Create(path)
	return slowFile{f, d}, err
}

func (d *slowSync) Open(path string) (journal.File, error) {
	f, err := d.FS.Open(path)
	return slowFile{f, d}, err
}

func (f slowFile) Sync() error {
	f.disk.mu.Lock()
	gate := f.disk.gate
	f.disk.mu.Unlock()
	if gate != nil {
		<-gate
	}
	f.disk.syncs.Add(1)
	return f.File.Sync()
}

// Nobody is told of a grant, a release or the grant that it causes before they
// are on the disk, and all that comes while a sync is under way shares the next
// one: one log is enough for any number of keys (lockd gaps 4 and 18).
func TestToldAfterOneSharedSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowSync{FS: crashfs.New(nil)}
		s := mustOpen(t, Options{Dir: "d", fs: disk})
		defer s.Close()
		c := mustSession(t, s, lease.SessionOptions{})
		first := ask(c, "first", "k")
		synctest.Wait()
		second := ask(c, "second", "k")
		synctest.Wait()
		if a, b := first.now(), second.now(); a.times != 1 || a.err != nil || b.times != 0 {
			t.Fatalf("first %+v, second %+v; want one grant and one waiter", a, b)
		}

		disk.shut()
		release := &reply{}
		c.Do(lease.Command{Verb: lease.Release, ID: "first"}, release.Done)
		synctest.Wait() // the owner is in the sync of this release
		before := disk.syncs.Load()
		var crowd []*reply
		for i := range 500 {
			crowd = append(crowd, ask(c, fmt.Sprint("crowd", i), fmt.Sprint("key", i)))
		}
		synctest.Wait()
		if a, b := release.now(), second.now(); a.times != 0 || b.times != 0 {
			t.Fatalf("told before the sync: release %+v, second %+v", a, b)
		}
		for i, r := range crowd {
			if a := r.now(); a.times != 0 {
				t.Fatalf("request %d was answered while the disk stood still: %+v", i, a)
			}
		}
		disk.open()
		synctest.Wait()
		for i, r := range append(crowd, release, second) {
			if a := r.now(); a.times != 1 || a.err != nil {
				t.Fatalf("answer %d after the sync: %+v, want one success", i, a)
			}
		}
		if got := disk.syncs.Load() - before; got != 2 {
			t.Errorf("%d syncs, want 2: one for the release with its grant, one for the 500 others", got)
		}
	})
}

// A sync or a write that fails ends all granting: the answer that was on its way
// is unknown, what comes after is refused, releases too, and what was
// acknowledged before is there after a restart (lockd gap 4: hooks that returned
// nothing acknowledged what was not kept).
func TestFailingDiskGrantsNothing(t *testing.T) {
	full := errors.New("no space left on device")
	for _, op := range []crashfs.Op{crashfs.OpSync, crashfs.OpWrite} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := crashfs.New(nil)
				s := mustOpen(t, Options{Dir: "d", fs: disk})
				c := mustSession(t, s, lease.SessionOptions{Grace: time.Minute})
				kept := ask(c, "kept", "kept")
				synctest.Wait()
				waiter := ask(c, "waiter", "kept")
				synctest.Wait()

				disk.SetPlan(crashfs.FailOp(op, 1, full))
				doubtful := ask(c, "doubtful", "doubtful")
				synctest.Wait()
				if a := doubtful.now(); a.times != 1 || !errors.Is(a.err, lease.ErrUnknown) || !errors.Is(a.err, full) {
					t.Errorf("in flight: %+v, want unknown because of %v", a, full)
				}
				after, release := ask(c, "after", "after"), &reply{}
				c.Do(lease.Command{Verb: lease.Release, ID: "kept"}, release.Done)
				synctest.Wait()
				for name, r := range map[string]*reply{"waiter": waiter, "request after": after, "release after": release} {
					if a := r.now(); a.times != 1 || !errors.Is(a.err, lease.ErrUnavailable) {
						t.Errorf("%s: %+v, want unavailable", name, a)
					}
				}
				if st, err := s.Stats(t.Context()); err != nil || st.Failed == "" {
					t.Errorf("stats %q, %v; want the failure named", st.Failed, err)
				}
				s.Close()

				again := mustOpen(t, Options{Dir: "d", fs: disk.Reopen(crashfs.Lose, 1, nil)})
				defer again.Close()
				l, err := again.List(t.Context(), lease.Query{})
				if err != nil || len(l.Keys) != 1 || l.Keys[0].Key != "kept" || l.Keys[0].Holders[0].Token != kept.now().lease.Token() {
					t.Errorf("after a restart %+v, %v; want the one lease that was acknowledged", l, err)
				}
				d := mustSession(t, again, lease.SessionOptions{})
				free := ask(d, "free", "free")
				synctest.Wait()
				if a := free.now(); a.times != 1 || a.err != nil || a.lease.Token() <= kept.now().lease.Token() {
					t.Errorf("after a restart: %+v, want a grant above %d", a, kept.now().lease.Token())
				}
			})
		})
	}
}

// The record of a key is freed when nobody needs it and made again by the next
// request. Many goroutines that make and free the same few records never meet a
// dead one: every request is answered, one at a time holds, and nothing is left
// (lockd gap 11; gap 9 on the way: an answer that never comes would hang here).
func TestKeysComeAndGo(t *testing.T) {
	for name, o := range map[string]Options{
		"memory": {}, "durable": {Dir: t.TempDir(), Fsync: Never},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustOpen(t, o)
			defer s.Close()
			_, rounds := seeds(300, 20_000) // the dose of a soak is larger
			var holders [3]atomic.Int32
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					client, err := lease.Connect(t.Context(), s, lease.ClientOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					for i := range int(rounds) {
						n := (g + i) % len(holders)
						err := client.Do(t.Context(), lease.Request{Keys: []string{fmt.Sprint("key", n)}}, inside(&holders[n]))
						if err != nil {
							t.Errorf("goroutine %d, round %d: %v", g, i, err)
							return
						}
					}
					if err := client.Close(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			l, err := s.List(t.Context(), lease.Query{})
			st, serr := s.Stats(t.Context())
			if err != nil || serr != nil || len(l.Keys) != 0 || st.Keys != 0 || st.Holds != 0 || st.Waiters != 0 {
				t.Errorf("left behind: %+v, %v; stats %+v, %v", l.Keys, err, st, serr)
			}
		})
	}
}

// inside is a critical section that notices company.
func inside(n *atomic.Int32) func(context.Context, *lease.Held) error {
	return func(context.Context, *lease.Held) error {
		defer n.Add(-1)
		if n.Add(1) != 1 {
			return errors.New("two holders at once")
		}
		return nil
	}
}

// The wall clock may be set back or forward while a service is down, and tokens
// rise and leases last all the same: each bubble begins at the same time of day,
// so the second life starts before the first one ended, and the third, which has
// some hours behind it, after it (lockd gaps 2, 14 and 15).
func TestClockIsSet(t *testing.T) {
	dir := t.TempDir()
	var tokens [3]lease.Token
	synctest.Test(t, func(t *testing.T) { tokens[0] = life(t, dir, time.Hour, 0) })
	synctest.Test(t, func(t *testing.T) { tokens[1] = life(t, dir, 0, tokens[0]) })
	if tokens[1]-tokens[0] > 100_000 {
		t.Errorf("tokens %d: the second life did not start where the journal ends", tokens)
	}
	synctest.Test(t, func(t *testing.T) { life(t, dir, 3*time.Hour, tokens[1]) })
}

// life is one run of a service, in a synctest bubble of its own. It finds what
// the one before left, with that token, to last one whole ttl from its start; it
// leaves another, and returns its token.
func life(t *testing.T, dir string, idle time.Duration, left lease.Token) lease.Token {
	time.Sleep(idle)
	s := mustOpen(t, Options{Dir: dir})
	defer s.Close()
	c := mustSession(t, s, lease.SessionOptions{})
	if left > 0 {
		w := ask(c, "w", "left")
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if a := w.now(); a.times != 0 {
			t.Fatalf("a lease of a minute ended within 59 s: %+v", a)
		}
		time.Sleep(time.Second + 50*time.Millisecond)
		synctest.Wait()
		if a := w.now(); a.times != 1 || a.err != nil || a.lease.Token() <= left {
			t.Fatalf("after its ttl: %+v, want a grant with a token above %d", a, left)
		}
		c.Do(lease.Command{Verb: lease.Release, ID: "w"}, nil)
	}
	l := &reply{}
	c.Acquire(lease.Request{ID: "l", Keys: []string{"left"}, TTL: time.Minute, Detach: true}, l)
	synctest.Wait()
	a := l.now()
	if a.times != 1 || a.err != nil || a.lease.Token() <= left {
		t.Fatalf("%+v, want a grant with a token above %d", a, left)
	}
	return a.lease.Token()
}
