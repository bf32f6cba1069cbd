package core

import (
	"errors"
	"testing"
	"time"
)

// grant answers an ask with a lease.
func (b *bench) grant(id ReadID, key string) []Action {
	b.t.Helper()
	ask := b.want(b.f.Read(b.now, id, key, 0), DoAsk)
	return b.f.Answered(b.now, ask.Op, Answer{State: Lease, Token: ask.Ask.Token}, nil)
}

// TestTurns: only so many loads are under way, so many wait with their leases, which they renew, and the rest is refused.
func TestTurns(t *testing.T) {
	b := newBench(t, func(s *Settings) { s.MaxLoads, s.StaleOnError = 1, 0 })
	b.meet()
	first := b.want(b.grant(1, "a"), DoLoad)
	b.want(b.grant(2, "b"))
	b.want(b.f.Read(b.now, 3, "b", 0)) // joins it
	got := b.grant(4, "c")
	if s := b.want(got, DoFail, DoServe); s.Outcome != Shed || !errors.Is(s.Err, ErrOverloaded) || got[0].Pause != 0 {
		t.Errorf("%+v", got)
	}
	b.now += testRules().LeaseTTL / 3
	renew := b.want(b.f.Tick(b.now), DoRenew, DoRenew)
	if renew.Key != "b" {
		t.Errorf("who waits does not renew: %+v", renew)
	}
	b.want(b.f.Renewed(b.now, renew.Op, true, nil))
	did := b.f.Loaded(b.now, first.Op, item(1), good, nil)
	b.want(did, DoServe, DoLoad, DoFill)
	last := b.f.Loaded(b.now, did[1].Op, Item{}, Times{}, errTest)
	if s := b.want(last, DoFail, DoServe); len(s.Reads) != 2 {
		t.Errorf("%+v", s)
	}
	if b.f.loads+len(b.f.turns)+len(b.f.open) != 0 {
		t.Error("something is left")
	}
}

// TestTurnWithoutLease: who waited in vain asks again when his turn comes, and does not load what is there.
func TestTurnWithoutLease(t *testing.T) {
	for name, c := range map[string]struct {
		answer Answer
		err    error
		want   []Do
		loads  int
	}{
		"it is there":          {Answer{State: Hit, Item: &Item{}, Times: good}, nil, []Do{DoServe}, 0},
		"somebody else has it": {Answer{State: Busy, Retry: time.Second}, nil, nil, 0},
		"a lease":              {Answer{State: Lease, Token: 5}, nil, []Do{DoLoad}, 1},
		"no answer":            {Answer{}, errTest, []Do{DoLoad}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, func(s *Settings) { s.MaxLoads = 1 })
			b.meet()
			first := b.want(b.grant(1, "a"), DoLoad)
			b.want(b.grant(2, "b"))
			b.now += testRules().LeaseTTL / 3
			renew := b.want(b.f.Tick(b.now), DoRenew, DoRenew)
			b.meet()
			b.want(b.f.Renewed(b.now, renew.Op, false, nil))
			did := b.f.Loaded(b.now, first.Op, item(1), good, nil)
			b.want(did, DoServe, DoAsk, DoFill)
			if got := b.f.Answered(b.now, did[1].Op, c.answer, c.err); len(got) > 0 || c.want != nil {
				b.want(got, c.want...)
			}
			if b.f.loads != c.loads || len(b.f.turns) != 0 {
				t.Errorf("%d loads, %d wait", b.f.loads, len(b.f.turns))
			}
		})
	}
	b := newBench(t, func(s *Settings) { s.MaxLoads = 1 })
	b.meet()
	first := b.want(b.grant(1, "a"), DoLoad)
	b.want(b.grant(2, "b"))
	b.f.Leave(2, "b")
	b.f.turns[0].turn = waitsInVain
	b.want(b.f.Loaded(b.now, first.Op, item(1), good, nil), DoServe, DoFill) // nobody wants b any more
	if b.f.loads != 0 {
		t.Error(b.f.loads)
	}
}

// TestRefreshIsShed: what is good is not refreshed while there are too many loads here, and nobody elsewhere is kept from
// loading it: who wants it fresh would have an error though nothing is wrong.
func TestRefreshIsShed(t *testing.T) {
	b := newBench(t, func(s *Settings) { s.MaxLoads, s.MaxWaiting = 1, 0 })
	b.want(b.grant(1, "a"), DoLoad)
	ask := b.want(b.f.Read(b.now, 2, "k", 0), DoAsk)
	old := Answer{State: Hit, Item: &Item{}, Times: Times{0, 30 * time.Millisecond, time.Second}, Token: ask.Ask.Token}
	if a := b.want(b.f.Answered(b.now, ask.Op, old, nil), DoServe, DoFail); a.Pause != 0 || a.Why != "" {
		t.Errorf("%+v", a)
	}
}

// TestReload: who has a row loaded anew, since what there is of it is of no use, gets nothing below what he wants.
func TestReload(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	item5 := item(5)
	b.want(b.f.Read(b.now, 9, "k", 0), DoAsk)
	ask := b.want(b.f.Reload(b.now, 1, "k", 6), DoAsk)
	if ask.Ask.Min != Fresh {
		t.Errorf("%+v", ask)
	}
	load := b.want(b.f.Answered(b.now, ask.Op, Answer{State: Lease, Token: ask.Ask.Token, Min: Fresh}, nil), DoLoad)
	for range 2 {
		b.want(b.f.Loaded(b.now, load.Op, item5, good, nil))
		b.now += 50 * time.Millisecond
		load = b.want(b.f.Tick(b.now), DoLoad)
	}
	if s := b.f.Loaded(b.now, load.Op, item5, good, nil)[0]; s.Outcome != FailedOutdated {
		t.Errorf("%+v", s)
	}
}
