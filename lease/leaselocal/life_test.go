package leaselocal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// lastMoment is a callback that lasts until its lease is over: so the timer is set
// for an instant that has passed, and fires while the caller still owns the engine.
type lastMoment struct{}

func (lastMoment) Queued(lease.Queued) {}
func (lastMoment) Done(l lease.Lease, err error) {
	for err == nil && time.Now().Before(l.Deadline.Add(time.Millisecond)) {
		continue
	}
}

// An expiry that comes while a submitting goroutine is about to give the engine
// back is not lost.
func TestTimerIsNotMissed(t *testing.T) {
	s := mustOpen(t, Options{})
	defer s.Close()
	lost := make(chan lease.Notice, 1)
	sess := mustSession(t, s, lease.SessionOptions{Notify: func(n lease.Notice) { lost <- n }})
	for i := range 300 {
		sess.Acquire(lease.Request{Keys: []string{"k"}, TTL: time.Millisecond}, lastMoment{})
		select {
		case <-lost:
		case <-time.After(time.Minute):
			t.Fatalf("round %d: the end of the lease was not told", i)
		}
	}
}

// A watch whose caller gave up while it was on its way does not begin; a force is
// then unknown, because it may have happened.
func TestGivingUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowSync{FS: crashfs.New(nil)}
		s := mustOpen(t, Options{Dir: "d", fs: disk})
		defer s.Close()
		c := mustSession(t, s, lease.SessionOptions{})
		disk.shut()
		ask(c, "busy", "k")
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		go func() {
			_, err := s.Watch(ctx, lease.Query{}, func(lease.Event) { t.Error("a watch that nobody has was told") })
			errs <- err
		}()
		go func() { _, err := s.Open(ctx, lease.SessionOptions{}); errs <- err }()
		synctest.Wait()
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want it cancelled", err)
			}
		}
		ctx, cancel = context.WithCancel(t.Context())
		go func() { _, err := s.Force(ctx, lease.ForceRequest{Key: "k"}); errs <- err }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("force: %v, want unknown", err)
		}
		disk.open()
		synctest.Wait()
		ask(c, "event", "e")
		st, err := s.Stats(t.Context())
		if err != nil || st.Watches != 0 || st.Sessions != 1 {
			t.Errorf("%d watches and %d sessions, %v; want none and one", st.Watches, st.Sessions, err)
		}
	})
}

// A resume whose batch the journal did not take must not say what is held: a grant
// of that batch may be on the disk or not.
func TestResumeWhileTheDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := crashfs.New(nil)
		disk := &slowSync{FS: fs}
		s := mustOpen(t, Options{Dir: "d", fs: disk})
		defer s.Close()
		c := mustSession(t, s, lease.SessionOptions{})
		disk.shut()
		ask(c, "busy", "k")
		synctest.Wait()
		doubtful := ask(c, "doubtful", "l")
		done := make(chan error, 1)
		go func() { _, err := s.Open(t.Context(), lease.SessionOptions{Resume: c.ID()}); done <- err }()
		synctest.Wait()
		calls := 0
		fs.SetPlan(func(crashfs.Call) crashfs.Action {
			if calls++; calls < 2 { // the sync under way
				return crashfs.Action{}
			}
			return crashfs.Action{Err: errors.New("no space left on device")}
		})
		disk.open()
		if err := <-done; !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("resume: %v, want unknown", err)
		}
		if got := doubtful.now(); !errors.Is(got.err, lease.ErrUnknown) {
			t.Errorf("the grant beside it: %v, want unknown", got.err)
		}
	})
}

// What is written behind a snapshot that kept the timer busy is synced in time all
// the same.
func TestIntervalAfterSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Options{Dir: "d", fs: crashfs.New(nil), Fsync: Interval, SyncEvery: 100 * time.Millisecond})
		defer s.Close()
		c := mustSession(t, s, lease.SessionOptions{})
		for _, id := range []string{"synced", "first"} { // the first mark of a life is synced under every policy
			ask(c, id, id)
			synctest.Wait()
		}
		// As a snapshot does whose writer is behind, until it ends.
		err := s.call(t.Context(), func() func(error) {
			s.disk.timer.Reset(time.Millisecond)
			s.disk.polling = true
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		_ = s.call(t.Context(), func() func(error) {
			if !s.disk.unsynced.IsZero() {
				t.Errorf("not synced for %v", time.Since(s.disk.unsynced))
			}
			return nil
		})
	})
}

// A batch whose records are more than the journal takes at once is written in
// pieces: here two, in a soak more than the journal would take together.
func TestHugeBatch(t *testing.T) {
	s := mustOpen(t, Options{Dir: "d", fs: crashfs.New(nil)})
	defer s.Close()
	c := mustSession(t, s, lease.SessionOptions{Grace: lease.NoGrace})
	long := strings.Repeat("k", lease.MaxKeyLength-10)
	var wg sync.WaitGroup
	_, n := seeds(300, 1600) // times 64 keys of 512 bytes: 10 or 85 MB of ends in one batch
	wg.Add(int(n))
	for i := range n {
		keys := make([]string, lease.MaxKeys)
		for j := range keys {
			keys[j] = fmt.Sprintf("%s%06d%02d", long, i, j)
		}
		c.Acquire(lease.Request{Keys: keys, TTL: time.Hour, LockDelay: time.Minute}, heard(func(err error) {
			if err != nil {
				t.Error(err)
			}
			wg.Done()
		}))
	}
	wg.Wait()
	var before lease.Stats
	err := s.call(t.Context(), func() func(error) {
		s.disk.stats(s.o, &before)
		return nil
	})
	c.Suspend()                               // ends the session, and leaves a lock-delay on each key
	mustSession(t, s, lease.SessionOptions{}) // comes back when that is on the disk
	st, serr := s.Stats(t.Context())
	if err != nil || serr != nil || st.Failed != "" || st.Ended != n*lease.MaxKeys {
		t.Fatalf("%d ended, failed %q, %v, %v; want %d", st.Ended, st.Failed, err, serr, n*lease.MaxKeys)
	}
	if st.JournalSyncs < before.JournalSyncs+2 {
		t.Errorf("%d syncs, want one for each piece", st.JournalSyncs-before.JournalSyncs)
	}
}

// heard is a lease.Caller of one function.
type heard func(error)

func (heard) Queued(lease.Queued)             {}
func (f heard) Done(_ lease.Lease, err error) { f(err) }

// once counts the answers of one call.
type once struct {
	n    atomic.Int32
	what string
}

// storm is everything at once: goroutines on sessions of their own and shared ones
// that ask, cancel, renew, release, are cut off, resume each other, watch, list and
// force, with contexts that end at any moment and callbacks that call again, until
// the service is closed in the middle of it.
type storm struct {
	s       *Service
	mu      sync.Mutex
	calls   []*once
	shared  []string // sessions that several resume
	pending sync.WaitGroup
}

func (m *storm) call(what string, args ...any) *once {
	c := &once{what: fmt.Sprintf(what, args...)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, c)
	return c
}

func (c *once) Queued(lease.Queued)            {}
func (c *once) Done(_ lease.Lease, _ error)    { c.n.Add(1) }
func (c *once) replied(_ lease.Lease, _ error) { c.n.Add(1) }
func (c *once) closed(error)                   { c.n.Add(1) }

// again is a caller that asks for the same session's next request from within.
type again struct {
	*once
	m    *storm
	sess lease.Session
	left int
}

func (a again) Done(l lease.Lease, err error) {
	a.once.Done(l, err)
	if a.left == 0 || errors.Is(err, lease.ErrClosed) {
		return
	}
	a.sess.Do(lease.Command{Verb: lease.Release, ID: l.ID}, a.m.call("release in a callback").replied)
	next := again{a.m.call("acquire in a callback"), a.m, a.sess, a.left - 1}
	a.sess.Acquire(lease.Request{Keys: []string{"inner"}, TTL: 5 * time.Millisecond, Wait: 5 * time.Millisecond}, next)
}

// run is one goroutine of the storm. Its own session is never cut off, so each of
// its calls is answered once.
func (m *storm) run(seed uint64) {
	defer m.pending.Done()
	rng := rand.New(rand.NewPCG(seed, 3))
	sess, err := m.s.Open(context.Background(), lease.SessionOptions{Grace: time.Hour})
	for i := 0; err == nil && i < 100_000; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(3000))*time.Microsecond)
		err = m.step(ctx, rng, sess, fmt.Sprint("g", seed, "-", i))
		cancel()
		if !errors.Is(err, lease.ErrClosed) {
			err = nil
		}
	}
	if sess != nil {
		sess.Close(m.call("goodbye").closed)
	}
}

func (m *storm) step(ctx context.Context, rng *rand.Rand, sess lease.Session, id string) error {
	key := fmt.Sprint("k", rng.IntN(5))
	switch rng.IntN(12) {
	case 0, 1, 2:
		sess.Acquire(lease.Request{ID: id, Keys: []string{key}, TTL: time.Duration(1+rng.IntN(4)) * time.Millisecond, Mode: lease.Mode(rng.IntN(2)),
			Wait: time.Duration(1+rng.IntN(5)) * time.Millisecond}, m.call("acquire %s", id))
		if rng.IntN(2) == 0 {
			sess.Do(lease.Command{Verb: lease.Cancel, ID: id}, m.call("cancel %s", id).replied)
		}
	case 3:
		sess.Acquire(lease.Request{Keys: []string{key}, TTL: time.Millisecond}, again{m.call("acquire that goes on"), m, sess, 3})
	case 4:
		sess.Do(lease.Command{Verb: lease.Verb(rng.IntN(5)), ID: "g0-1"}, m.call("command").replied)
	case 5:
		_, err := m.s.List(ctx, lease.Query{})
		return err
	case 6:
		_, err := m.s.Force(ctx, lease.ForceRequest{Key: key})
		return err
	case 7:
		return m.watch(ctx)
	case 8, 9:
		return m.share(ctx, rng)
	case 10:
		_, err := m.s.Stats(ctx)
		return err
	case 11:
		s, err := m.s.Open(ctx, lease.SessionOptions{Grace: time.Duration(rng.IntN(3)-1) * time.Millisecond})
		if err == nil {
			s.Acquire(lease.Request{Keys: []string{key}, TTL: time.Minute, Wait: time.Second}, m.call("acquire by a guest"))
			s.Close(m.call("goodbye of a guest").closed)
		}
		return err
	}
	return nil
}

// watch stops itself in its own callback.
func (m *storm) watch(ctx context.Context) error {
	var stop atomic.Pointer[func()]
	fn, err := m.s.Watch(ctx, lease.Query{}, func(lease.Event) {
		if f := stop.Load(); f != nil {
			(*f)()
		}
	})
	if err == nil {
		stop.Store(&fn)
		defer fn()
	}
	return err
}

// share takes a session over that others may have, or leaves it behind.
func (m *storm) share(ctx context.Context, rng *rand.Rand) error {
	m.mu.Lock()
	id := ""
	if len(m.shared) > 3 {
		id = m.shared[rng.IntN(len(m.shared))]
	}
	m.mu.Unlock()
	s, err := m.s.Open(ctx, lease.SessionOptions{Resume: id, Grace: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	s.Acquire(lease.Request{Keys: []string{"shared"}, TTL: 2 * time.Millisecond}, heard(func(error) {}))
	if rng.IntN(2) == 0 {
		s.Suspend()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shared = append(m.shared, s.ID())
	if len(m.shared) > 8 {
		m.shared = m.shared[1:]
	}
	return nil
}

// Everybody gets exactly one answer, whatever else goes on and whenever the
// service is closed or its disk fails; a second close is harmless, later calls are
// refused, and no goroutine is left.
func TestStorm(t *testing.T) {
	for name, o := range map[string]func(*crashfs.FS) Options{
		"memory": func(*crashfs.FS) Options { return Options{} },
		"always": func(fs *crashfs.FS) Options { return Options{Dir: "d", fs: fs, segmentSize: 8 << 10} },
		"interval": func(fs *crashfs.FS) Options {
			return Options{Dir: "d", fs: fs, segmentSize: 8 << 10, Fsync: Interval, SyncEvery: time.Millisecond}
		},
		"failing": func(fs *crashfs.FS) Options {
			fs.SetPlan(func(c crashfs.Call) crashfs.Action {
				if c.N < 200 {
					return crashfs.Action{}
				}
				return crashfs.Action{Err: errors.New("no space left on device")}
			})
			return Options{Dir: "d", fs: fs, segmentSize: 8 << 10}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			from, to := seeds(2, 50)
			for seed := from; seed < to; seed++ {
				raise(t, mustOpen(t, o(crashfs.New(nil))), seed, name == "failing")
			}
		})
	}
}

func raise(t *testing.T, s *Service, seed uint64, failing bool) {
	m := &storm{s: s}
	const goroutines = 6
	m.pending.Add(goroutines)
	for i := range uint64(goroutines) {
		go m.run(seed*goroutines + i)
	}
	time.AfterFunc(200*time.Millisecond, func() {
		for range 2 {
			go s.Close()
		}
	})
	m.pending.Wait()
	// On a busy machine the end may come before the failure.
	if err := s.Close(); err != nil && (!failing || !errors.Is(err, journal.ErrFailed)) {
		t.Errorf("seed %d: close: %v", seed, err)
	}
	mustRefuse(t, s)
	for _, c := range m.calls {
		if n := c.n.Load(); n != 1 {
			t.Fatalf("seed %d: %s: answered %d times, want once", seed, c.what, n)
		}
	}
	t.Logf("seed %d: %d calls", seed, len(m.calls))
}

func mustRefuse(t *testing.T, s *Service) {
	t.Helper()
	if _, err := s.Open(t.Context(), lease.SessionOptions{}); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("open after the close: %v", err)
	}
	if _, err := s.List(t.Context(), lease.Query{}); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("list after the close: %v", err)
	}
}

// With segments so small that one snapshot follows the other while goroutines go
// on, a restart gives back what was listed before it.
func TestRestartAfterSnapshotsUnderLoad(t *testing.T) {
	fs := crashfs.New(nil)
	o := Options{Dir: "d", fs: fs, segmentSize: 8 << 10, Fsync: Never}
	s := mustOpen(t, o)
	var wg sync.WaitGroup
	for g := range 4 {
		c := mustSession(t, s, lease.SessionOptions{Name: fmt.Sprint("g", g), Grace: time.Hour})
		rng := rand.New(rand.NewPCG(uint64(g), 17))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 1500 {
				id := fmt.Sprint(g, "-", i)
				done := make(chan error, 1)
				c.Acquire(lease.Request{ID: id, Keys: []string{"k" + id, "l" + id}, TTL: time.Hour, Label: id, Detach: i%7 == 0}, heard(func(err error) { done <- err }))
				if err := <-done; err != nil {
					t.Error(err)
				}
				switch rng.IntN(8) {
				case 0: // it stays
				case 1:
					c.Do(lease.Command{Verb: lease.Renew, ID: id, TTL: 2 * time.Hour}, nil)
				case 2:
					c.Do(lease.Command{Verb: lease.Release, ID: id, Key: "l" + id}, nil)
				default:
					c.Do(lease.Command{Verb: lease.Release, ID: id}, nil)
				}
			}
		}()
	}
	wg.Wait()
	before := listed(t, s)
	st, err := s.Stats(t.Context())
	if err != nil || st.Snapshots < 3 {
		t.Errorf("%d snapshots, %v; want some", st.Snapshots, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	defer s.Close()
	if after := listed(t, s); after != before {
		t.Errorf("before:\n%.2000s\nafter:\n%.2000s", before, after)
	}
}

// listed shows every hold, but for what a restart may change.
func listed(t *testing.T, s *Service) string {
	t.Helper()
	l, err := s.List(t.Context(), lease.Query{Limit: lease.MaxListed})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, k := range l.Keys {
		for _, h := range k.Holders {
			fmt.Fprintln(&out, k.Key, h.Session, h.Label, h.Token, h.TTL, h.Detached)
		}
	}
	return out.String()
}
