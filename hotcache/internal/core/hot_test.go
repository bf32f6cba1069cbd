package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// newTestHot returns what one process knows of six nodes, with a share of a tenth and a window of a second.
func newTestHot(me string, copies int) *Hot {
	ring := NewRing([]string{"a", "b", "c", "d", "e", "f"})
	set := HotSettings{Me: me, Ring: ring, Copies: copies, Share: 0.1, Window: time.Second, Least: 100}
	return NewHot(0, set, rand.New(rand.NewPCG(1, 1)))
}

// countMany counts a key so often, among all reads.
func (h *Hot) countMany(key string, hits, all int) {
	for range hits {
		h.Count(key, 1)
	}
	for i := range all - hits {
		h.Count(fmt.Sprint("other", i), 1)
	}
}

// window counts, and ends the window.
func (h *Hot) window(key string, hits, all int) HotNews {
	h.countMany(key, hits, all)
	return h.Tick(h.began + h.length())
}

func TestHotRule(t *testing.T) {
	h := newTestHot("me", 3)
	steps := []struct {
		hits, all int
		hot       bool
		why       string
	}{
		{99, 1000, false, "below the share"},
		{100, 1000, true, "at the share"},
		{51, 1000, true, "above half of it"},
		{49, 1000, true, "below half for one window"},
		{51, 1000, true, "above again"},
		{49, 1000, true, "below half for one window"},
		{0, 1000, false, "below half for two"},
		{99, 1000, false, "to come back it must reach the share"},
		{99, 99, false, "few reads say nothing"},
		{100, 100, true, "enough of them do"},
		{50, 50, true, "idle for one window"},
		{0, 0, false, "idle for two"},
	}
	for i, s := range steps {
		h.window("k", s.hits, s.all)
		if h.Hot("k") != s.hot {
			t.Fatalf("step %d: %d of %d reads: hot is %v, but it is %s", i, s.hits, s.all, h.Hot("k"), s.why)
		}
		if h.Len() > 1 {
			t.Fatalf("step %d: hot are %v", i, h.Keys())
		}
	}
}

// TestHotRuleUsesTheLowerBound gives a sketch far fewer counters than it needs: the counts that it overestimates make no
// key hot.
func TestHotRuleUsesTheLowerBound(t *testing.T) {
	ring := NewRing([]string{"a", "b"})
	h := NewHot(0, HotSettings{Me: "me", Ring: ring, Copies: 2, Share: 0.01, Window: time.Second, Counters: 16}, rand.New(rand.NewPCG(1, 1)))
	for i := range 20_000 {
		key := fmt.Sprint(i % 5000)
		if i%4 == 0 {
			key = "hot"
		}
		h.Count(key, 1)
	}
	h.Tick(time.Second)
	if keys := h.Keys(); len(keys.Keys) != 1 || keys.Keys[0].Key != "hot" || keys.Keys[0].Least() > 5000 || keys.Keys[0].Count < 5000 {
		t.Errorf("of a stream with one hot key of 5000 are hot: %v", keys)
	}
}

// TestHotRuleCountsTheFleet has keys that are hot for one process and not for all, and the other way round.
func TestHotRuleCountsTheFleet(t *testing.T) {
	all := []*Hot{newTestHot("a", 3), newTestHot("b", 3), newTestHot("c", 3)}
	for w := range 3 {
		var reports []*Report
		for i, h := range all {
			for range 2000 {
				h.Count("everywhere", 1) // a fifth of what everybody reads
			}
			for range []int{1000, 0, 0}[i] {
				h.Count("one's", 1) // a tenth of what one process reads, a thirtieth of what all do
			}
			h.countMany("", 0, 7000)
			reports = append(reports, h.Tick(h.began+h.length()).Report)
		}
		for i, h := range all {
			for j, r := range reports {
				if i != j {
					h.Hear(h.began, *r)
				}
			}
			h.look(h.began, false)
			if k := h.Keys(); w > 1 && (len(k.Keys) != 1 || k.Keys[0].Key != "everywhere" || k.Keys[0].Count < 6000 || k.Keys[0].Least() > 6000 || k.Keys[0].Least() < 5000) {
				t.Errorf("process %d has as hot: %+v", i, k)
			}
		}
	}
}

// TestHotReportsAreEarly has a key become hot within a window.
func TestHotReportsAreEarly(t *testing.T) {
	h, other := newTestHot("a", 3), newTestHot("b", 3)
	h.window("x", 0, 1000)
	other.window("x", 0, 1000)
	h.countMany("k", 5, 20)
	if news := h.Tick(h.Next()); news.Report != nil || h.Hot("k") {
		t.Errorf("five reads of a key are told: %v", news.Report)
	}
	h.countMany("k", 200, 400)
	news := h.Tick(h.Next())
	if news.Report == nil || !news.Report.Early() || !h.Hot("k") {
		t.Fatalf("a hot key was not told early but as %v; hot are %v", news.Report, h.Keys())
	}
	other.Hear(other.Next(), *news.Report)
	if other.Tick(other.Next()); !other.Hot("k") {
		t.Errorf("who was told has as hot: %v", other.Keys())
	}
	if n := other.fleet.Total; n < 2500 || n > 2800 { // 1000 in a window, and 420 in a quarter of one
		t.Errorf("the fleet is said to read %d in a window", n)
	}
	h.countMany("k", 10, 20)
	if news := h.Tick(h.Next()); news.Report != nil {
		t.Errorf("it is told again: %v", news.Report)
	}
}

// TestHotReportsEnd has a process fall silent: what it said does not count for ever.
func TestHotReportsEnd(t *testing.T) {
	h, other := newTestHot("a", 3), newTestHot("b", 3)
	r := other.window("k", 5000, 5000).Report
	h.Hear(0, *r)
	for w := range 5 {
		h.window("x", 0, 1000)
		if hot := h.Hot("k"); hot != (w < 3) { // two windows and a half, and the second that is below half
			t.Errorf("window %d: the key of a process that fell silent is hot: %v", w, hot)
		}
	}
	if len(h.latest) != 1 {
		t.Errorf("reports of %d processes are kept", len(h.latest))
	}
}

func TestHotIsQuietWhenIdle(t *testing.T) {
	h := newTestHot("a", 3)
	told := 0
	for range 10 {
		if news := h.window("", 0, 0); news.Report != nil || news.Set != nil {
			told++
		}
	}
	if told != 0 {
		t.Errorf("a process that reads nothing told %d times", told)
	}
	h.window("k", 10, 10)
	for range 10 {
		if news := h.window("", 0, 0); news.Report != nil {
			told++
		}
	}
	if told != 1 {
		t.Errorf("a process that has stopped reading told %d times, want once", told)
	}
}

// TestHotSetIsKept has one process keep the set, and another begin with it.
func TestHotSetIsKept(t *testing.T) {
	a, b := newTestHot("a", 3), newTestHot("b", 3)
	news := a.window("k", 500, 1000)
	if news.Set == nil {
		t.Fatal("the only process does not keep the set")
	}
	b.Hear(0, *news.Report)
	if news := b.window("k", 500, 1000); news.Set != nil || !b.Hot("k") {
		t.Errorf("the second process keeps the set too: %v", news.Set)
	}
	fresh := newTestHot("c", 3)
	set, err := ParseReport(news.Set.String())
	if err != nil {
		t.Fatal(err)
	}
	fresh.Adopt(set)
	if !fresh.Hot("k") || len(fresh.Where("k")) != 3 || fresh.Keys().Keys[0].Least() == 0 {
		t.Errorf("who begins has as hot: %v, at %v", fresh.Keys(), fresh.Where("k"))
	}
	fresh.Adopt(*news.Report)
	fresh.Hear(0, set)
	if fresh.Len() != 1 || len(fresh.latest) != 0 {
		t.Errorf("a report was taken for a set, or a set for a report: %v", fresh.Keys())
	}
	for range coldWindows {
		fresh.window("", 0, 1000)
	}
	if fresh.Hot("k") {
		t.Error("a key that was taken over and is not read stays hot")
	}
}

// TestHotHasLimits has far more of everything than there is room for.
func TestHotHasLimits(t *testing.T) {
	ring := NewRing([]string{"a", "b"})
	h := NewHot(0, HotSettings{Me: "me", Ring: ring, Copies: 9, Share: 0.0001, Window: time.Second, Least: 1}, rand.New(rand.NewPCG(1, 1)))
	for i := range 3000 {
		h.Count(strings.Repeat("long", i%2*500)+fmt.Sprint(i), 1)
	}
	news := h.Tick(h.length())
	if n := len(news.Report.String()); n > maxReportBytes+200 {
		t.Errorf("a report has %d bytes", n)
	}
	for i := range 2 * maxMembers {
		h.Hear(h.began, Report{reportEarly, fmt.Sprint(i), time.Second, time.Second,
			Summary{Total: 100, Keys: []Counted{{Key: fmt.Sprint("k", i), Count: 100}}}})
	}
	h.look(h.began, false)
	if len(h.latest) > maxMembers || h.Len() > maxHot {
		t.Errorf("reports of %d processes are kept, and %d hot keys", len(h.latest), h.Len())
	}
	if h.length() < maxMembers/fleetStep*time.Second {
		t.Errorf("a large fleet reports every %v", h.length())
	}
	if got := h.Where(h.Keys().Keys[0].Key); len(got) != 2 {
		t.Errorf("with two nodes a hot key is on %v", got)
	}
}

func TestPick(t *testing.T) {
	h := newTestHot("me", 4)
	home := h.set.Ring.Owner("k")
	if got := h.Pick(0, "k", home); got != home || h.Copies("k") != nil || h.Where("k") != nil || h.Refresh(0, "k") {
		t.Errorf("a key that is not hot is read from %d, its home is %d", got, home)
	}
	h.window("k", 500, 1000)
	owners := h.Where("k")
	if owners[0] != home || !slices.Equal(owners[1:], h.Copies("k")) || len(owners) != 4 {
		t.Fatalf("the key is on %v, its copies on %v, its home is %d", owners, h.Copies("k"), home)
	}
	busy, slow := owners[1], owners[2]
	now := time.Second
	picks := func() map[int]int {
		n := map[int]int{}
		for range 900 {
			n[h.Pick(now, "k", home)]++
		}
		return n
	}
	if n := picks(); len(n) != 4 || n[busy] < 150 || n[slow] < 150 {
		t.Errorf("of nodes with nothing to do are read: %v", n)
	}
	for range 10 { // asked, and no answer yet
		h.Asked(busy)
	}
	if n := picks(); n[busy] != 0 || n[slow] < 150 {
		t.Errorf("node %d stalls, read are: %v", busy, n)
	}
	for range 10 {
		h.Answered(now, busy, now-time.Millisecond)
	}
	for _, node := range owners {
		for range 20 {
			took := time.Millisecond
			if node == slow {
				took = 3 * time.Millisecond
			}
			h.Asked(node)
			h.Answered(now, node, now-took)
		}
	}
	if n := picks(); n[slow] != 0 {
		t.Errorf("node %d answers slowly, read are: %v", slow, n)
	}
	now += 20 * h.memory()
	for _, node := range owners {
		took := 2 * time.Millisecond
		if node == slow {
			took = time.Millisecond
		}
		h.Asked(node)
		h.Answered(now, node, now-took)
	}
	if n := picks(); n[slow] < 300 {
		t.Errorf("long after, node %d is the quick one, read are: %v", slow, n)
	}
	if h.Questions(busy) != 31 || h.nodes[busy].flying != 0 {
		t.Errorf("%d questions went to node %d, want 31; %d fly", h.Questions(busy), busy, h.nodes[busy].flying)
	}
}

// TestRefreshIsSpread has a fleet read a copy past its soft time: not all of it refreshes at once, and everybody does
// in the end.
func TestRefreshIsSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	first := map[time.Duration]int{}
	for range 50 {
		h := NewHot(0, HotSettings{Me: "me", Ring: NewRing([]string{"a", "b"}), Copies: 2, Share: 0.1, Window: time.Second}, r)
		h.window("k", 2000, 2000)
		for at := time.Second; at < 3*time.Second; at += time.Millisecond {
			if h.Refresh(at, "k") {
				first[at.Truncate(20*time.Millisecond)]++
				break
			}
		}
	}
	total := 0
	for at, n := range first {
		total += n
		if n > 15 {
			t.Errorf("%d of 50 processes refresh within 20 ms of %v", n, at)
		}
	}
	if total != 50 {
		t.Errorf("%d of 50 processes refresh", total)
	}
}
