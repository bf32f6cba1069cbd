package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A bench is one server with one map on one link, in a bubble, for tests that make one fault at a time.
type bench struct {
	*testing.T
	s *server
	l *link
	m *rmap.Map[string, int]
}

const beat = 200 * time.Millisecond // heartbeat of the maps in these tests

func onBench(t *testing.T, opts rmap.Options[string, int], fn func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, s: newServer()}
		if opts.TTL > 0 {
			b.s.life = &rmap.Lifetime{TTL: opts.TTL, Sliding: opts.Sliding}
		}
		opts.Heartbeat = beat
		b.l, b.m = b.join(opts)
		fn(b)
	})
}

func (b *bench) join(opts rmap.Options[string, int]) (*link, *rmap.Map[string, int]) {
	b.Helper()
	l := newLink(b.s)
	m, err := rmap.Join(b.Context(), l, "test", opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	return l, m
}

func set(key string, v int) rmap.Op {
	return rmap.Op{Do: rmap.DoSet, Key: key, Value: rmap.Value{Kind: rmap.Integer, Data: itoa(v)}}
}

// lose makes a change that is lost on the way, in a synctest bubble.
func (b *bench) lose(ops ...rmap.Op) rmap.Revision {
	b.l.set(faults{change: func(rmap.Change) []time.Duration { return nil }})
	defer b.l.set(faults{})
	return b.s.mustWrite(ops...)
}

// want checks what a map shows now.
func (b *bench) want(want map[string]int) {
	b.Helper()
	synctest.Wait()
	for key, v := range want {
		if got, ok := b.m.Get(key); !ok || got != v {
			b.Errorf("Get(%q) = %d, %t, want %d", key, got, ok, v)
		}
	}
	if n := b.m.Len(); n != len(want) {
		b.Errorf("Len = %d, want %d", n, len(want))
	}
}

func (b *bench) state(want rmap.State) {
	b.Helper()
	synctest.Wait()
	if lag := b.m.Lag(); lag.State != want {
		b.Errorf("it is %v (%v), want %v", lag.State, lag.Err, want)
	}
}

// reloads returns how often the map was read as a whole.
func (b *bench) reloads() (n uint64) {
	for _, r := range b.m.Stats().Reloads {
		n += r
	}
	return n
}

// causes collects what a watcher is told, until the test has it stop.
func (b *bench) causes() (stop func() []rmap.Cause) {
	ctx, cancel := context.WithCancel(b.Context())
	events, told, done := b.m.Watch(ctx, rmap.WatchOptions{}), []rmap.Cause(nil), make(chan struct{})
	go func() {
		defer close(done)
		for e := range events {
			told = append(told, e.Cause)
		}
	}()
	return func() []rmap.Cause {
		synctest.Wait()
		cancel()
		<-done
		return told
	}
}

// A change that does not follow is not applied: the log gives what is missing, and nothing is read as a whole.
func TestGapIsCaughtUp(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		b.want(map[string]int{"a": 1})
		b.lose(set("b", 2))
		b.s.mustWrite(set("c", 3))
		b.want(map[string]int{"a": 1, "b": 2, "c": 3})
		if st := b.m.Stats(); st.CaughtUp != 2 || st.Strange != 2 || b.reloads() != 0 {
			b.Errorf("stats: %+v", st)
		}
	})
}

// Without a change after it, a loss is found by the heartbeat, also that of the first change there ever was; and
// subscribers are told of the change as if it had come.
func TestSilentLossIsFound(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		stop := b.causes()
		time.Sleep(beat / 3)
		b.lose(set("a", 1))
		b.want(nil)
		time.Sleep(beat)
		b.want(map[string]int{"a": 1})
		if told := stop(); len(told) != 1 || told[0] != rmap.CauseSet || b.reloads() != 0 {
			b.Errorf("told %v with %d reloads", told, b.reloads())
		}
	})
}

// A stray message costs one question and no reading, and a change that is held already costs nothing.
func TestStrayAndDuplicate(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		synctest.Wait()
		stop := b.causes()
		heads := b.m.Stats().Heads
		b.l.replay(b.s.at.log[0])
		synctest.Wait()
		if st := b.m.Stats(); st.Heads != heads || st.Duplicates != 1 {
			b.Errorf("a duplicate: %+v", st)
		}
		b.l.replay(rmap.Change{Revision: rmap.Revision{Generation: 7, Number: 1, Nonce: 8}, Steps: []rmap.Step{{Do: rmap.DoClear}}})
		b.want(map[string]int{"a": 1})
		if st := b.m.Stats(); st.Heads != heads+1 || b.reloads() != 0 || st.CaughtUp != 1 { // with the first change of all
			b.Errorf("a stray message: %+v", st)
		}
		if told := stop(); len(told) != 0 {
			b.Errorf("told %v", told)
		}
	})
}

// A generation that is not held is never adopted, not even by a copy that holds nothing.
func TestLateLifeIsNotAdopted(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		ch := b.s.at.log[0]
		b.s.rollback(rmap.Revision{}, false)
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.l.replay(ch)
		b.want(nil)
		b.state(rmap.Live)
	})
}

// A new connection on which nothing was missed costs one question.
func TestResubscriptionWithoutLoss(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		synctest.Wait()
		before := b.l.counts
		b.l.cut()
		b.state(rmap.CutOff)
		b.l.connect()
		b.state(rmap.Live)
		if after := b.l.counts; after.heads != before.heads+1 || after.scans != before.scans || after.sinces != before.sinces {
			b.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// While the map is read it changes, and the old copy serves. What is installed is exactly the map at the end.
func TestReloadIsExact(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		for i := range 9 {
			b.s.mustWrite(set("k"+itoa(i), i))
		}
		b.want(map[string]int{"k0": 0, "k1": 1, "k2": 2, "k3": 3, "k4": 4, "k5": 5, "k6": 6, "k7": 7, "k8": 8})
		b.lose(rmap.Op{Do: rmap.DoDelete, Key: "k8"})
		j := &judge{t: t, s: b.s, l: b.l, m: b.m, who: "the map", beat: beat}
		b.l.set(faults{
			since: func(context.Context, []rmap.Change) ([]rmap.Change, error) { return nil, nil },
			chunk: func(_ context.Context, i int) error {
				time.Sleep(time.Millisecond)
				if b.m.Len() != 9 {
					b.Errorf("the old copy has %d entries while the new one is read", b.m.Len())
				}
				b.s.mustWrite(set("k"+itoa(i), 100+i), rmap.Op{Do: rmap.DoDelete, Key: "k" + itoa(7-i)}, set("n", i))
				return nil
			},
		})
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		j.settled()
		if b.m.Stats().Reloads[rmap.ReloadGap] != 1 {
			b.Errorf("stats: %+v", b.m.Stats())
		}
	})
}

// A store that fails over to an older state while it is read, and loses what it said last, leaves no mixture.
func TestReloadOverAFailover(t *testing.T) {
	onBench(t, rmap.Options[string, int]{ReloadJitter: -1}, func(b *bench) {
		for i := range 9 {
			b.s.mustWrite(set("k"+itoa(i), i))
		}
		synctest.Wait()
		at := b.lose(set("k0", 50))
		done := false
		b.l.set(faults{
			since: func(context.Context, []rmap.Change) ([]rmap.Change, error) { return nil, nil },
			chunk: func(_ context.Context, i int) error {
				switch {
				case i == 1 && !done:
					b.l.set(faults{chunk: b.l.faults.chunk, change: func(rmap.Change) []time.Duration { return nil }})
					var gone []rmap.Op
					for i := range 9 {
						gone = append(gone, rmap.Op{Do: rmap.DoDelete, Key: "k" + itoa(i)})
					}
					b.s.mustWrite(gone...)
				case i == 2 && !done:
					done = true
					b.s.rollback(at, true)
					b.l.connect()
				}
				return nil
			},
		})
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.want(map[string]int{"k0": 50, "k1": 1, "k2": 2, "k3": 3, "k4": 4, "k5": 5, "k6": 6, "k7": 7, "k8": 8})
	})
}

// A store that is emptied while it is read, begins anew, and goes back to what it was leaves no mixture either.
func TestReloadThereAndBack(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		for i := range 9 {
			b.s.mustWrite(set("k"+itoa(i), i))
		}
		synctest.Wait()
		at, done := b.lose(set("k0", 50)), false
		b.l.set(faults{
			since: func(context.Context, []rmap.Change) ([]rmap.Change, error) { return nil, nil },
			chunk: func(_ context.Context, i int) error {
				switch {
				case i == 1 && !done:
					b.s.rollback(rmap.Revision{}, false)
					b.s.mustWrite(set("k1", 100))
				case i == 2 && !done:
					done = true
					b.s.rollback(at, false)
				}
				return nil
			},
		})
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.want(map[string]int{"k0": 50, "k1": 1, "k2": 2, "k3": 3, "k4": 4, "k5": 5, "k6": 6, "k7": 7, "k8": 8})
	})
}

// Changes that do not lead to the head are not applied: they can lead to a state that is older than the last proof.
func TestHalfALog(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		var r rmap.Revision
		for i := range 9 {
			r = b.s.mustWrite(set("k"+itoa(i), i))
		}
		b.s.rollback(rmap.Revision{}, false)
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.want(nil)
		b.l.set(faults{
			since: func(_ context.Context, all []rmap.Change) ([]rmap.Change, error) {
				b.l.set(faults{head: func(context.Context, bool) error { return unavailable("a fault") }})
				return all[:3], nil
			},
		})
		b.s.rollback(r, false)
		time.Sleep(2 * beat)
		b.want(nil)
		b.l.set(faults{})
		if err := b.m.Sync(b.Context()); err != nil || b.m.Len() != 9 {
			b.Errorf("Sync: %v, and there are %d entries", err, b.m.Len())
		}
	})
}

// A map that becomes another one each time it is read is not installed, and is as soon as it rests.
func TestMovingMapIsNotInstalled(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		b.want(map[string]int{"a": 1})
		b.l.set(faults{chunk: func(context.Context, int) error {
			time.Sleep(time.Millisecond)
			b.s.rollback(rmap.Revision{}, false)
			b.s.mustWrite(set("b", 2))
			return nil
		}})
		b.s.rollback(rmap.Revision{}, false)
		b.s.mustWrite(set("b", 2))
		time.Sleep(beat)
		b.want(map[string]int{"a": 1})
		b.state(rmap.CatchingUp)
		b.l.set(faults{})
		time.Sleep(3 * time.Second)
		b.want(map[string]int{"b": 2})
		b.state(rmap.Live)
	})
}

// After a lost connection a reading waits a while, so that not all processes read at once, but not when somebody asks.
func TestJitterIsSkipped(t *testing.T) {
	onBench(t, rmap.Options[string, int]{ReloadJitter: time.Hour}, func(b *bench) {
		b.l.cut()
		b.s.mustWrite(set("a", 1))
		b.l.connect()
		time.Sleep(10 * time.Second)
		b.want(nil)
		b.state(rmap.CatchingUp)
		called := time.Now()
		if err := b.m.Sync(b.Context()); err != nil || time.Since(called) > 0 {
			b.Errorf("Sync: %v after %v", err, time.Since(called))
		}
		b.want(map[string]int{"a": 1})
	})
}

// What comes late to a map whose time was over here cannot be read, so nobody is told of it.
func TestLateChangeOfAnEndedMap(t *testing.T) {
	onBench(t, rmap.Options[string, int]{TTL: 100 * time.Millisecond}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		synctest.Wait()
		stop := b.causes()
		time.Sleep(95 * time.Millisecond)
		b.l.set(faults{change: func(rmap.Change) []time.Duration { return []time.Duration{10 * time.Millisecond} }})
		b.s.mustWrite(set("b", 2))
		time.Sleep(time.Second)
		b.want(nil)
		if told := stop(); len(told) != 1 || told[0] != rmap.CauseReset {
			b.Errorf("told %v", told)
		}
	})
}

// A change that gives a sliding map more time can arrive after its old deadline: what was hidden is there again.
func TestLateExtension(t *testing.T) {
	onBench(t, rmap.Options[string, int]{TTL: 100 * time.Millisecond, Sliding: true}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		synctest.Wait()
		stop := b.causes()
		time.Sleep(95 * time.Millisecond)
		b.l.set(faults{change: func(rmap.Change) []time.Duration { return []time.Duration{10 * time.Millisecond} }})
		b.s.mustWrite(set("b", 2))
		time.Sleep(7 * time.Millisecond)
		if n := b.m.Len(); n != 0 {
			b.Errorf("%d entries past the deadline", n)
		}
		time.Sleep(10 * time.Millisecond)
		b.want(map[string]int{"a": 1, "b": 2})
		told := stop()
		if len(told) < 2 || told[0] != rmap.CauseReset || told[1] != rmap.CauseReload {
			b.Errorf("told %v", told)
		}
	})
}

// A map that ends while it is cut off does not say that it is being mended.
func TestEndWhileCutOff(t *testing.T) {
	onBench(t, rmap.Options[string, int]{TTL: 100 * time.Millisecond}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		b.want(map[string]int{"a": 1})
		b.l.cut()
		time.Sleep(time.Second)
		b.want(nil)
		b.state(rmap.CutOff)
		if err := b.m.Lag().Err; !errors.Is(err, rmap.ErrUnavailable) {
			b.Errorf("Err = %v", err)
		}
	})
}

// Of many processes that see a deadline pass, one removes the entry. A removal that gets no answer does not keep the
// heartbeat waiting.
func TestPurge(t *testing.T) {
	onBench(t, rmap.Options[string, int]{Timeout: time.Hour}, func(b *bench) {
		_, other := b.join(rmap.Options[string, int]{})
		_, third := b.join(rmap.Options[string, int]{})
		op := set("a", 1)
		op.TTL = 50 * time.Millisecond
		b.s.mustWrite(op)
		time.Sleep(time.Second)
		if r := other.Lag().Revision; r.Number != 2 || len(b.s.at.entries) != 0 {
			b.Errorf("the removal led to %v", r)
		}
		other.Close()
		third.Close()
		b.l.set(faults{write: func(ctx context.Context, _ bool) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", rmap.ErrUnknown, ctx.Err())
		}})
		b.s.mustWrite(op)
		for range 20 {
			time.Sleep(beat / 2)
			if age := b.m.Lag().Age; age > beat {
				b.Fatalf("the last proof is %v old", age)
			}
		}
	})
}

// What the store holds but must not be read refuses, and comes back.
func TestRefusedAndBack(t *testing.T) {
	onBench(t, rmap.Options[string, int]{MaxStale: rmap.LiveOnly}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		synctest.Wait()
		b.s.refuse(fmt.Errorf("%w: version 9", rmap.ErrFormat))
		b.l.unreadable(fmt.Errorf("%w: version 9", rmap.ErrFormat))
		b.state(rmap.Refused)
		if _, err := b.m.Lookup("a"); !errors.Is(err, rmap.ErrStale) {
			b.Errorf("Lookup: %v", err)
		}
		if err := b.m.Sync(b.Context()); !errors.Is(err, rmap.ErrFormat) {
			b.Errorf("Sync: %v", err)
		}
		b.s.refuse(nil)
		time.Sleep(3 * time.Second)
		b.state(rmap.Live)
		if v, err := b.m.Lookup("a"); v != 1 || err != nil {
			b.Errorf("Lookup: %d, %v", v, err)
		}
	})
}

// A store whose clock is behind what the copy believes shows entries for longer from the next heartbeat on.
func TestClockSetBack(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.setClock(-3_600_000)
		time.Sleep(2 * beat)
		op := set("a", 1)
		op.TTL = time.Second
		b.s.mustWrite(op)
		time.Sleep(900 * time.Millisecond)
		b.want(map[string]int{"a": 1})
		time.Sleep(101 * time.Millisecond)
		b.want(nil)
	})
}

// A deadline so far away that no clock reaches it is one that never comes.
func TestDeadlineBeyondAllClocks(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.s.mustWrite(set("a", 1))
		b.s.mu.Lock()
		e := b.s.at.entries["a"]
		e.Deadline = math.MaxInt64
		b.s.at.entries["a"] = e
		b.s.at.log = nil
		b.s.mu.Unlock()
		_, m := b.join(rmap.Options[string, int]{})
		before := m.Stats().Heads
		time.Sleep(10 * beat)
		if v, ok := m.Get("a"); v != 1 || !ok {
			b.Errorf("Get = %d, %t", v, ok)
		}
		if n := m.Stats().Heads - before; n > 12 {
			b.Errorf("%d comparisons in ten heartbeats", n)
		}
	})
}

// A head that the copy passed before it asked proves that the store went back.
func TestSilentRollback(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		to := b.s.mustWrite(set("a", 1))
		r := b.s.mustWrite(set("a", 2))
		b.want(map[string]int{"a": 2})
		b.s.rollback(to, false)
		if err := b.m.WaitFor(b.Context(), r); err != nil {
			b.Errorf("WaitFor what is held: %v", err)
		}
		time.Sleep(beat)
		b.want(map[string]int{"a": 1})
		if err := b.m.WaitFor(b.Context(), r); !errors.Is(err, rmap.ErrGone) {
			b.Errorf("WaitFor what is gone: %v", err)
		}
	})
}

// Who is told of a change reads it, or something newer.
func TestToldAfterShown(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		events, done := b.m.Watch(ctx, rmap.WatchOptions{}), make(chan struct{})
		go func() {
			defer close(done)
			for e := range events {
				if shown := b.m.Snapshot().Revision(); shown.Number < e.Revision.Number {
					b.Errorf("told of %v while readers see %v", e, shown)
				}
			}
		}()
		for i := range 300 {
			b.s.mustWrite(set("a", i), set("b", i), set("c", i), set("d", i))
			synctest.Wait()
		}
		cancel()
		<-done
	})
}

// Close ends whatever is under way, and who waits.
func TestCloseAnywhere(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, f := range map[string]faults{
		"head":  {head: func(ctx context.Context, _ bool) error { return hang(ctx) }},
		"chunk": {chunk: func(ctx context.Context, _ int) error { return hang(ctx) }},
		"since": {since: func(ctx context.Context, _ []rmap.Change) ([]rmap.Change, error) { return nil, hang(ctx) }},
		"write": {write: func(ctx context.Context, _ bool) error { return hang(ctx) }},
		"idle":  {},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, rmap.Options[string, int]{Timeout: time.Hour, ReloadJitter: time.Hour}, func(b *bench) {
				op := set("a", 1)
				op.TTL = 10 * time.Millisecond
				b.s.mustWrite(op)
				synctest.Wait()
				if name == "chunk" {
					b.s.rollback(rmap.Revision{}, false)
				}
				b.lose(set("b", 1))
				b.l.set(f)
				synced := make(chan error, 1)
				go func() { synced <- b.m.Sync(context.Background()) }()
				time.Sleep(50 * time.Millisecond)
				called := time.Now()
				b.m.Close()
				if took := time.Since(called); took > 0 {
					b.Errorf("Close took %v", took)
				}
				if err := <-synced; err != nil && !errors.Is(err, rmap.ErrClosed) {
					b.Errorf("Sync: %v", err)
				}
				b.state(rmap.Closed)
			})
		})
	}
}

// A write that the store lost by going back is not reported as seen, although the map was read anew meanwhile and its
// number is one that others have by now.
func TestSetAndWaitOfALostWrite(t *testing.T) {
	for name, later := range map[string][]rmap.Op{"replaced": {set("a", 7)}, "absent": {{Do: rmap.DoDelete, Key: "a"}}} {
		t.Run(name, func(t *testing.T) {
			onBench(t, rmap.Options[string, int]{}, func(b *bench) {
				b.s.mustWrite(set("a", 0))
				to := b.s.mustWrite(later...)
				b.l.set(faults{
					change: func(rmap.Change) []time.Duration { return nil },
					since:  func(context.Context, []rmap.Change) ([]rmap.Change, error) { return nil, nil },
					write: func(_ context.Context, done bool) error {
						if done { // lost, and then others make as many changes and more
							b.s.rollback(to, false)
							for i := range 3 {
								b.s.mustWrite(set("b", i))
							}
						}
						return nil
					},
				})
				r, err := b.m.SetAndWait(b.Context(), "a", 1)
				if !errors.Is(err, rmap.ErrNotSeen) || rmap.OutcomeOf(err) != rmap.AppliedNotSeen {
					b.Errorf("SetAndWait: %v, %v, want ErrNotSeen", r, err)
				}
				if gone := errors.Is(err, rmap.ErrGone); gone != (name == "replaced") {
					b.Errorf("SetAndWait: %v; what is not there may have been removed, what is older may not", err)
				}
			})
		})
	}
}

// Callers who gave up are forgotten, however long the store fails.
func TestWaitersAreForgotten(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		b.l.set(faults{head: func(context.Context, bool) error { return unavailable("a fault") }})
		for range 100 {
			ctx, cancel := context.WithTimeout(b.Context(), 5*time.Millisecond)
			if err := b.m.Sync(ctx); !errors.Is(err, rmap.ErrUnavailable) {
				b.Fatalf("Sync: %v", err)
			}
			cancel()
		}
		synctest.Wait()
		if n := rmap.Waiting(b.m); n > 2 {
			b.Errorf("%d rounds are kept for callers who are gone", n)
		}
		b.l.set(faults{})
		if err := b.m.Sync(b.Context()); err != nil {
			b.Errorf("Sync: %v", err)
		}
	})
}

// A change that was kept while the map was read, and that the store has undone by the time it is asked again, is not
// applied behind that answer: the copy would show what the answer has just shown to be no more.
func TestKeptChangeIsUndone(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		at := b.s.mustWrite(set("a", 1))
		synctest.Wait()
		b.lose(set("a", 2))
		done := false
		b.l.set(faults{
			since: func(context.Context, []rmap.Change) ([]rmap.Change, error) { return nil, nil },
			chunk: func(context.Context, int) error {
				if !done {
					done = true
					b.s.rollback(at, false)
					b.s.mustWrite(set("a", 3))
					time.Sleep(10 * time.Millisecond) // it arrives, and is kept
					b.s.rollback(at, false)
				}
				return nil
			},
		})
		if err := b.m.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.want(map[string]int{"a": 1})
	})
}

// What a copy hid by a clock that turns out to have been ahead comes back: the store never removed it, and the revision
// says nothing of it.
func TestClockThereAndBack(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		op := set("a", 1)
		op.TTL = time.Minute
		b.s.mustWrite(op, set("b", 2))
		b.l.set(faults{write: func(context.Context, bool) error { // its user may only read, so nothing is removed
			return fmt.Errorf("%w: no permission", rmap.ErrUnavailable)
		}})
		b.s.setClock(3_600_000)
		time.Sleep(2 * beat)
		b.want(map[string]int{"b": 2})
		b.s.setClock(-3_600_000)
		time.Sleep(2 * beat)
		b.want(map[string]int{"a": 1, "b": 2})
		time.Sleep(time.Minute)
		b.want(map[string]int{"b": 2})
		if st := b.m.Stats(); st.Reloaded(rmap.ReloadRollback) != 1 {
			b.Errorf("reloads: %v, want one", st.Reloads)
		}
	})
}

// However many entries end at the same moment, they are all removed, without another write of anybody.
func TestPurgeOfMany(t *testing.T) {
	onBench(t, rmap.Options[string, int]{}, func(b *bench) {
		const many = 3 * 64 * rmap.PurgeBatch // more than are removed in one go
		ops := make([]rmap.Op, 0, many)
		for i := range many {
			op := set(fmt.Sprint(i), i)
			op.TTL = time.Minute
			ops = append(ops, op)
		}
		b.s.mustWrite(ops...)
		time.Sleep(time.Minute + 5*time.Second)
		b.want(nil)
		if n := len(b.s.at.entries); n != 0 {
			b.Errorf("%d of %d entries are in the store still", n, many)
		}
	})
}
