package core

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// TestLost: from the end of a feed on nothing is trusted.
func TestLost(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	b.want(b.f.Lost(b.now, 0), DoDropNode)
	if b.f.Current(b.now, 0) || b.f.Holds(b.now, 0, "k", Stamp{7, 10}) {
		t.Error("it is trusted")
	}
}

// TestHeadOfAFeedThatIsLost: a head that was asked for before a feed broke, and comes after that, says nothing. What this
// process heard in between it has acknowledged, and forgot with the loss.
func TestHeadOfAFeedThatIsLost(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	asked, head, sent := b.f.Sight(0).At(), b.head, b.now
	b.now += time.Millisecond
	b.want(b.f.Invalidated(b.now, 0, b.next("k", 2)), DoDrop)
	b.want(b.f.Lost(b.now, 0), DoDropNode)
	b.f.Met(b.now, 0, asked, head, sent)
	old := item(1)
	b.want(b.f.Answered(b.now, ask.Op, Answer{State: Hit, Item: &old, Times: good, Stamp: StampOf(head)}, nil), DoServe)
	b.meet()
	if !b.f.Current(b.now, 0) {
		t.Error("after the next head nothing is trusted")
	}
}

// TestRenewal: a lease is renewed while its load lasts, a renewal that fails is made again, and of one that is lost no
// more is made.
func TestRenewal(t *testing.T) {
	b := newBench(t, nil)
	load := b.leased(1, 0, Answer{})
	third := testRules().LeaseTTL / 3
	for _, err := range []error{nil, errTest, nil} {
		b.now += third
		renew := b.want(b.f.Tick(b.now), DoRenew)
		b.want(b.f.Renewed(b.now, renew.Op, err == nil, err))
	}
	b.now += third
	renew := b.want(b.f.Tick(b.now), DoRenew)
	b.want(b.f.Renewed(b.now, renew.Op, false, nil))
	if _, ok := b.f.Next(); ok {
		t.Error("a lost lease is renewed")
	}
	fill := b.want(b.f.Loaded(b.now, load.Op, item(1), good, nil), DoServe, DoFill)
	b.want(b.f.Filled(b.now, fill.Op, Filled{Refusal: LostLease}, nil))
	b.want(b.f.Filled(b.now, fill.Op, Filled{}, nil)) // once is enough
}

// TestKeep: what the home took goes into memory, with what is left of its time.
func TestKeep(t *testing.T) {
	for name, c := range map[string]struct {
		r    Filled
		err  error
		met  bool
		want []Do
	}{
		"stored":   {Filled{Stamp: Stamp{7, 10}}, nil, true, []Do{DoKeep}},
		"refused":  {Filled{Refusal: Outdated, Stamp: Stamp{7, 10}}, nil, true, nil},
		"unknown":  {Filled{Stamp: Stamp{7, 10}}, errTest, true, []Do{DoFail}},
		"unproved": {Filled{Stamp: Stamp{7, 10}}, nil, false, nil},
		"old":      {Filled{Stamp: Stamp{7, 9}}, nil, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			load := b.leased(1, 0, Answer{})
			if c.met {
				b.meet()
			}
			fill := b.want(b.f.Loaded(b.now, load.Op, item(1), good, nil), DoServe, DoFill)
			b.now += time.Millisecond
			if keep := b.want(b.f.Filled(b.now, fill.Op, c.r, c.err), c.want...); keep.Do == DoKeep && keep.Times != good.Minus(time.Millisecond) {
				t.Errorf("%+v", keep)
			}
		})
	}
}

// TestStale: an expired item is served at once while it is loaded, or when its load fails, up to the limits.
func TestStale(t *testing.T) {
	old := func(by time.Duration) Answer {
		return Answer{Item: &Item{Version: 1}, Times: Times{-by, -by, time.Hour}}
	}
	for name, c := range map[string]struct {
		by      time.Duration
		state   State
		outcome Outcome // of the answer to the ask
		failed  Outcome // when the load fails
	}{
		"lease":          {0, Lease, Stale, 0},
		"lease, old":     {time.Second, Lease, 0, StaleOnError},
		"lease, too old": {2 * time.Second, Lease, 0, FailedLoad},
		"busy":           {0, Busy, Stale, 0},
		"failed":         {time.Second, Failed, StaleOnError, 0},
		"failed, old":    {2 * time.Second, Failed, FailedShared, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
			a := old(c.by)
			a.State, a.Why, a.Retry = c.state, "why", time.Second
			if c.state == Lease {
				a.Token = ask.Ask.Token
			}
			did := b.f.Answered(b.now, ask.Op, a, nil)
			var served Outcome
			if len(did) > 0 && did[0].Do == DoServe {
				served = did[0].Outcome
				if served == FailedShared && !errors.Is(did[0].Err, ErrLoadFailed) {
					t.Error(did[0].Err)
				}
			}
			if served != c.outcome {
				t.Fatalf("served %v: %+v", served, did)
			}
			if c.state != Lease {
				if len(b.f.open)+len(b.f.asleep) != 0 {
					t.Error("a flight is left")
				}
				return
			}
			did = b.f.Loaded(b.now, did[len(did)-1].Op, Item{}, Times{}, errTest)
			if c.failed == 0 {
				b.want(did, DoFail)
			} else if last := b.want(did, DoFail, DoServe); last.Outcome != c.failed {
				t.Errorf("served %v", last.Outcome)
			}
		})
	}
	b := newBench(t, nil)
	ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	a := old(time.Second)
	a.State, a.Token = Lease, ask.Ask.Token
	load := b.want(b.f.Answered(b.now, ask.Op, a, nil), DoLoad)
	if s := b.want(b.f.Loaded(b.now+time.Second, load.Op, Item{}, Times{}, errTest), DoFail, DoServe); s.Outcome != FailedLoad {
		t.Errorf("an item that grew too old during the load: %v", s.Outcome)
	}
}

// TestPauses: they double from the first to the last, and begin anew after a success.
func TestPauses(t *testing.T) {
	b := newBench(t, nil)
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		load := b.leased(1, 0, Answer{})
		if did := b.f.Loaded(b.now, load.Op, Item{}, Times{}, errTest); did[0].Pause != want*time.Millisecond || did[0].Why != "test" {
			t.Errorf("%+v", did[0])
		}
	}
	load := b.leased(1, 0, Answer{})
	b.f.Loaded(b.now, load.Op, item(1), good, nil)
	if len(b.f.pauses) != 0 {
		t.Error("a pause is left after a success")
	}
	for i := range maxPauses + 10 {
		b.f.notePause(string(rune(i)), 1)
	}
	if len(b.f.pauses) != 10 {
		t.Error(len(b.f.pauses))
	}
}

// TestOutdatedLoads: a loader that returns less than it was asked for is asked again, and then nobody is served.
func TestOutdatedLoads(t *testing.T) {
	for name, a := range map[string]Answer{"least": {Min: 5, Floor: 5}, "floor": {Min: Fresh, Floor: 5}} {
		b := newBench(t, nil)
		load := b.leased(1, 0, a)
		for range 2 {
			b.want(b.f.Loaded(b.now, load.Op, item(4), good, nil))
			b.now += 50 * time.Millisecond
			load = b.want(b.f.Tick(b.now), DoLoad)
			if load.Min != a.Min {
				t.Errorf("%s: %+v", name, load)
			}
		}
		if s := b.want(b.f.Loaded(b.now, load.Op, item(4), good, nil), DoFail, DoServe); s.Outcome != FailedOutdated || !errors.Is(s.Err, ErrOutdated) {
			t.Errorf("%s: %+v", name, s)
		}
	}
	b := newBench(t, nil)
	load := b.leased(1, 5, Answer{Min: Fresh}) // the node is young, and the reader wants what is not there
	b.want(b.f.Loaded(b.now, load.Op, item(4), good, nil))
	b = newBench(t, nil)
	load = b.out(1, 5)
	b.want(b.f.Loaded(b.now, load.Op, item(4), good, nil))
}

// TestLoadsForWhoWantsMore: what was loaded and is not below the floor is served and stored, though one reader wants a
// version that is not there. Only he fails, after the loader was asked again for him.
func TestLoadsForWhoWantsMore(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	load := b.leased(1, 9, Answer{Min: 9, Floor: 4})
	b.want(b.f.Read(b.now, 2, "k", 4))
	if s := b.want(b.f.Loaded(b.now, load.Op, item(4), good, nil), DoServe); !slices.Equal(s.Reads, []ReadID{2}) || s.Err != nil {
		t.Errorf("%+v", s)
	}
	for range 2 {
		b.now += 50 * time.Millisecond
		load = b.want(b.f.Tick(b.now), DoLoad)
		b.want(b.f.Read(b.now, 3, "k", 5))
		got := b.f.Loaded(b.now, load.Op, item(4), good, nil)
		if len(got) == 0 {
			continue
		}
		fill := b.want(got, DoServe, DoFill)
		if s := got[0]; s.Outcome != FailedOutdated || s.Reads[0] != 1 || fill.Fill.Item.Version != 4 {
			t.Errorf("%+v", got)
		}
	}
	if len(b.f.pauses) != 0 || b.f.open["k"] != nil {
		t.Error("the key is held up")
	}
	load = b.leased(4, 9, Answer{Min: 9, Floor: 4}) // without versions he has what he asked for, and others have the floor
	if fill := b.want(b.f.Loaded(b.now, load.Op, Item{}, good, nil), DoServe, DoFill); fill.Fill.Item.Version != 4 {
		t.Errorf("%+v", fill)
	}
}

// TestNoVersions: a load that knows no version counts as what was asked for by the floor, not by a reader.
func TestNoVersions(t *testing.T) {
	for _, c := range []struct {
		a    Answer
		want Version
	}{{Answer{}, 0}, {Answer{Min: 5, Floor: 5}, 5}, {Answer{Min: Fresh, Floor: 5}, 5}, {Answer{Min: Fresh}, 0}, {Answer{Min: 6, Floor: 5}, 5}} {
		b := newBench(t, nil)
		load := b.leased(1, 0, c.a)
		if fill := b.want(b.f.Loaded(b.now, load.Op, Item{}, good, nil), DoServe, DoFill); fill.Fill.Item.Version != c.want {
			t.Errorf("%+v: %d", c.a, fill.Fill.Item.Version)
		}
	}
}

// pick has every key hot, and a copy of it on node 1.
type pick struct {
	refresh         bool
	asked, answered []int
	waited          time.Duration
}

func (p *pick) Pick(time.Duration, string, int) int { return 1 }
func (p *pick) Copies(string) []int                 { return []int{1} }
func (p *pick) Refresh(time.Duration, string) bool  { return p.refresh }
func (p *pick) Asked(node int)                      { p.asked = append(p.asked, node) }
func (p *pick) Answered(now time.Duration, node int, asked time.Duration) {
	p.answered = append(p.answered, node)
	p.waited += now - asked
}

// TestCopies: a hot key is read from a copy that nothing heard speaks against, and otherwise copied from its home.
func TestCopies(t *testing.T) {
	hot := &pick{}
	b := newBench(t, func(s *Settings) { s.Hot = hot })
	b.want(b.f.Read(b.now, 1, "k", 0), DoAsk) // nothing is proved
	b.f.Lost(b.now, 0)
	b.meet()
	b.want(b.f.Read(b.now, 2, "k", 3), DoAsk) // a copy may be older than that
	b.f.Lost(b.now, 0)
	b.meet()
	copied := Copy{Item: item(1), Times: good, Stamp: Stamp{7, 10}}
	ask := b.want(b.f.Read(b.now, 3, "k", 0), DoCopy)
	b.want(b.f.Copied(b.now, ask.Op, 1, &copied, nil), DoServe, DoKeep)
	for name, c := range map[string]struct {
		has *Copy
		err error
		put bool
	}{
		"nothing": {nil, nil, true}, "error": {nil, errTest, false},
		"expired": {&Copy{Item: item(1), Times: Times{-1, 0, 1}, Stamp: Stamp{7, 10}}, nil, true},
		"old":     {&Copy{Item: item(1), Times: good, Stamp: Stamp{7, 9}}, nil, true},
	} {
		ask := b.want(b.f.Read(b.now, 4, "k", 0), DoCopy)
		home := b.want(b.f.Copied(b.now, ask.Op, 1, c.has, c.err), DoAsk)
		hit := b.f.Answered(b.now, home.Op, Answer{State: Hit, Item: &Item{Version: 2}, Times: good, Stamp: Stamp{7, 10}}, nil)
		if put := len(hit) == 3 && hit[2].Do == DoPutCopy && hit[2].Node == 1; put != c.put {
			t.Errorf("%s: %+v", name, hit)
		}
	}
	b.want(b.f.Copied(b.now, 999, 1, nil, nil))

	soft := Copy{Item: item(1), Times: Times{0, 1, 1}, Stamp: Stamp{7, 10}}
	ask = b.want(b.f.Read(b.now, 5, "k", 0), DoCopy)
	b.want(b.f.Copied(b.now, ask.Op, 1, &soft, nil), DoServe)
	hot.refresh = true
	ask = b.want(b.f.Read(b.now, 6, "k", 0), DoCopy)
	*hot = pick{refresh: true}
	home := b.want(b.f.Copied(b.now+3, ask.Op, 1, &soft, nil), DoServe, DoAsk)
	b.want(b.f.Answered(b.now+7, home.Op, Answer{State: Hit, Item: &Item{}, Times: good, Stamp: Stamp{7, 10}}, nil), DoKeep, DoPutCopy)
	if !slices.Equal(hot.answered, []int{1, 0}) || !slices.Equal(hot.asked, []int{0}) || hot.waited != 7 {
		t.Errorf("%+v", hot)
	}
}

// TestCopiesOfFills: whoever fills a hot key puts its copies, where a node is there to take them.
func TestCopiesOfFills(t *testing.T) {
	for name, c := range map[string]struct {
		times Times
		out   bool
		want  []Do
	}{
		"filled": {good, false, []Do{DoPutCopy}}, "out": {good, true, nil}, "expired": {Times{-1, 0, 1}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(s *Settings) { s.Hot = &pick{} })
			if c.out {
				b.f.nodes[1].failures = 9
			}
			load := b.leased(1, 0, Answer{})
			fill := b.want(b.f.Loaded(b.now, load.Op, item(1), c.times, nil), DoServe, DoFill)
			put := b.want(b.f.Filled(b.now, fill.Op, Filled{Stamp: Stamp{7, 10}}, nil), c.want...)
			if c.want != nil && (put.Node != 1 || put.Copy.Item.Version != 1 || put.Copy.Stamp != Stamp{7, 10}) {
				t.Errorf("%+v", put)
			}
		})
	}
}

// TestRefresh: who gets the lease with a hit loads for those who come later.
func TestRefresh(t *testing.T) {
	b := newBench(t, nil)
	ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	load := b.want(b.f.Answered(b.now, ask.Op, Answer{State: Hit, Item: &Item{}, Times: Times{0, 1, 1}, Token: ask.Ask.Token}, nil), DoServe, DoLoad)
	b.want(b.f.Read(b.now, 2, "k", 0), DoAsk) // it was served; the next asks
	b.want(b.f.Loaded(b.now, load.Op, item(1), good, nil), DoFill)
}

// TestLeave: a reader who went away is not served, and the load goes on.
func TestLeave(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	load := b.leased(1, 0, Answer{})
	b.f.Read(b.now, 2, "k", 0)
	b.f.Leave(1, "k")
	b.f.Leave(9, "k")
	b.f.Leave(9, "other")
	if s := b.f.Loaded(b.now, load.Op, item(1), good, nil); !slices.Equal(s[0].Reads, []ReadID{2}) {
		t.Errorf("%+v", s)
	}
	ask := b.want(b.f.Read(b.now, 3, "k", 0), DoAsk)
	b.f.Leave(3, "k")
	b.want(b.f.Answered(b.now, ask.Op, Answer{State: Busy, Retry: 1}, nil)) // nobody waits
	if len(b.f.asleep) != 0 {
		t.Error("a flight waits for nobody")
	}
}

// TestNobodysOutcome: what belongs to no flight is ignored.
func TestNobodysOutcome(t *testing.T) {
	b := newBench(t, nil)
	b.want(b.f.Answered(b.now, 9, Answer{}, errTest))
	b.want(b.f.Loaded(b.now, 9, Item{}, Times{}, nil))
	b.want(b.f.Renewed(b.now, 9, true, nil))
	b.want(b.f.Woken(b.now, "k"))
	b.want(b.f.Tick(b.now))
	if b.f.Out(0) {
		t.Error("a node is out for it")
	}
}

// TestOutcomes: their names are those of the metrics.
func TestOutcomes(t *testing.T) {
	var got []string
	for o := range Outcomes + 2 {
		got = append(got, o.String())
	}
	want := []string{"none", "memory", "copy", "home", "load", "stale", "stale_on_error", "failed_load", "failed_shared", "failed_outdated",
		"shed", "unknown", "unknown"}
	if !slices.Equal(got, want) {
		t.Error(got)
	}
	if DefaultRules().LeaseTTL != 900*time.Millisecond {
		t.Error(DefaultRules())
	}
}

// TestFlightOfTheBlindTime: what was asked before the process heard of invalidations may be older than one that it never
// heard of, and is not for reads that begin when it hears of them again.
func TestFlightOfTheBlindTime(t *testing.T) {
	one, two := item(1), item(2)
	b := newBench(t, nil)
	first := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	b.meet()
	second := b.want(b.f.Read(b.now, 2, "k", 0), DoAsk)
	b.want(b.f.Read(b.now, 3, "k", 0)) // joins the second
	old := b.want(b.f.Answered(b.now, first.Op, Answer{State: Hit, Item: &one, Times: good}, nil), DoServe)
	if len(old.Reads) != 1 || old.Reads[0] != 1 {
		t.Errorf("what was asked while blind goes to %v", old.Reads)
	}
	now := b.want(b.f.Answered(b.now, second.Op, Answer{State: Hit, Item: &two, Times: good}, nil), DoServe)
	if len(now.Reads) != 2 {
		t.Errorf("what was asked since goes to %v", now.Reads)
	}
}
