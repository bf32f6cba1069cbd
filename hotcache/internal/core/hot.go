package core

import (
	"math/rand/v2"
	"slices"
	"time"
)

// HotSettings are those of a [Hot].
type HotSettings struct {
	// Me is the name of this process: not empty, and without a space.
	Me string
	// Ring knows where keys live. Copies is on how many nodes a hot key is, its home among them; 1 is without copies.
	Ring   *Ring
	Copies int
	// Share is the share of all reads of the fleet that makes a key hot. Below half of it for two windows it is cold.
	Share float64
	// Window is how long reads are counted for a report.
	Window time.Duration
	// Counters is how many keys are counted at a time: more than 1/Share. 0 is 1024, or 4/Share if that is more.
	Counters int
	// Least is how many reads a window of the fleet must have for any key to be hot: with fewer no node is busy, and a
	// share means little. 0 is 1000, or 8/Share if that is more.
	Least uint64
}

// A Hot knows which keys are hot, and where to read them. It counts the reads of this process and exchanges reports with
// the others; everybody merges the same reports, so all come to the same set. It is not safe for concurrent use.
//
// The rule looks at the lower bound of a count: a sketch with too few counters then finds too few hot keys, and never
// takes all that it holds for hot. A key enters at the share and leaves below half of it, twice in a row, so one at the
// threshold does not come and go.
type Hot struct {
	set    HotSettings
	random *rand.Rand

	seen    *TopK // of this window
	samples uint64
	began   time.Duration // of this window
	check   time.Duration // when Tick is to be called
	quiet   bool          // the last report said that nothing was read
	claimed map[string]uint64
	latest  map[string]heard // the latest report of each process
	hurried bool             // one of them came early, so there may be another hot key
	fleet   Summary          // the reports together, at the last look
	saved   bool             // the set that was saved last has keys

	hot   map[string]*hotKey
	nodes []nodeLoad
}

// heard is the report of one process.
type heard struct {
	Summary               // of one window
	until   time.Duration // then it is too old
}

type hotKey struct {
	Counted
	owners  []int         // the home first
	cold    int           // windows in a row in which it was below half the share
	refresh time.Duration // when this process may ask for another copy instead of one that is to be refreshed; 0 for unknown
}

const (
	maxHot      = 1024 // keys that are hot at a time
	maxMembers  = 1024 // processes whose reports are kept
	fleetStep   = 64   // so many more processes make the time between two reports longer by a window
	checks      = 8    // how often a window is looked at for keys that become hot
	leastHits   = 8    // samples of a key that say anything
	coldWindows = 2
)

// NewHot returns what a process knows that has just begun: nothing.
func NewHot(now time.Duration, set HotSettings, random *rand.Rand) *Hot {
	if set.Counters == 0 {
		set.Counters = max(1024, int(4/set.Share))
	}
	if set.Least == 0 {
		set.Least = max(1000, uint64(8/set.Share))
	}
	set.Copies = max(1, min(set.Copies, set.Ring.Len()))
	h := &Hot{
		set: set, random: random, seen: NewTopK(set.Counters), began: now, claimed: map[string]uint64{},
		latest: map[string]heard{}, hot: map[string]*hotKey{}, nodes: make([]nodeLoad, set.Ring.Len()), quiet: true,
	}
	h.check = now + set.Window/checks
	return h
}

// Count counts a read, or a sample that stands for so many, memory's answers included: a key that memory answers is
// still hot.
func (h *Hot) Count(key string, weight uint64) {
	h.seen.Add(key, weight)
	h.samples++
}

// Next returns when Tick must be called.
func (h *Hot) Next() time.Duration { return h.check }

// HotNews is what a process has to say; nil is nothing.
type HotNews struct {
	Report *Report // to be told to everybody
	Set    *Report // to be kept where a process that begins finds it: see Adopt
}

// Tick ends a window when it is time, and looks for keys that become hot within one.
func (h *Hot) Tick(now time.Duration) HotNews {
	var news HotNews
	switch {
	case now >= h.began+h.length():
		news.Report = h.close(now)
		h.look(now, true)
		news.Set = h.save(now)
	case now >= h.check:
		news.Report = h.hurry(now)
		if h.hurried {
			h.look(now, false)
		}
	}
	h.check = min(now+h.set.Window/checks, h.began+h.length())
	return news
}

// length is how long a window lasts. Everybody hears everybody, so in a large fleet they are longer.
func (h *Hot) length() time.Duration {
	return h.set.Window * time.Duration(1+len(h.latest)/fleetStep)
}

// close ends a window and returns what is to be told of it.
func (h *Hot) close(now time.Duration) *Report {
	r := h.report(now, reportWindow)
	if h.seen.Total() == 0 && h.quiet {
		r = nil
	}
	h.quiet = h.seen.Total() == 0
	h.seen.Reset()
	clear(h.claimed)
	h.samples, h.began = 0, now
	for name, r := range h.latest {
		if r.until <= now {
			delete(h.latest, name)
		}
	}
	return r
}

// report notes what was counted in this window so far, and returns it for the others: the keys that may be hot, or are.
func (h *Hot) report(now time.Duration, kind string) *Report {
	r := &Report{kind: kind, from: h.set.Me, over: max(now-h.began, time.Millisecond), next: max(h.length(), time.Millisecond)}
	r.Summary = h.seen.Top(h.set.Counters)
	least := uint64(h.set.Share / 4 * float64(r.Total))
	kept := r.Keys[:0]
	for _, c := range r.Keys {
		if c.Count >= least || h.hot[c.Key] != nil {
			kept = append(kept, c)
		} else {
			r.Missing = max(r.Missing, c.Count)
		}
	}
	r.Keys = kept
	r.Summary = r.Cut(maxReportKeys)
	h.note(now, r)
	return r
}

func (h *Hot) note(now time.Duration, r *Report) {
	if _, known := h.latest[r.from]; !known && len(h.latest) >= maxMembers {
		return
	}
	h.latest[r.from] = heard{r.Scale(uint64(h.set.Window), uint64(r.over)), now + r.next*5/2}
}

// Hear takes a report of another process.
func (h *Hot) Hear(now time.Duration, r Report) {
	if r.kind != reportSet && r.from != h.set.Me {
		h.note(now, &r)
		h.hurried = h.hurried || r.Early()
	}
}

// hurry reports before the end of the window if a key is hot as far as this process can tell.
func (h *Hot) hurry(now time.Duration) *Report {
	total := h.seen.Total()
	rate := scale(total, uint64(h.set.Window), uint64(max(now-h.began, 1)))
	if h.samples == 0 || now-h.began < h.set.Window/checks || max(rate, h.fleet.Total) < h.set.Least {
		return nil
	}
	weight := total / h.samples
	found := false
	for _, c := range h.seen.Top(int(1/h.set.Share) + 1).Keys {
		enough := float64(c.Least()) >= h.set.Share*float64(total) && c.Least() >= leastHits*weight
		if enough && h.hot[c.Key] == nil && c.Count >= 2*h.claimed[c.Key] {
			h.claimed[c.Key], found = c.Count, true
		}
	}
	if !found {
		return nil
	}
	h.hurried = true
	return h.report(now, reportEarly)
}

// look applies the rule to all reports together; ends tells whether a window has ended, which is when keys leave.
func (h *Hot) look(now time.Duration, ends bool) {
	h.hurried = false
	parts := make([]Summary, 0, len(h.latest))
	for _, r := range h.latest {
		if r.until > now {
			parts = append(parts, r.Summary)
		}
	}
	h.fleet = Merge(2*maxHot, parts...)
	enter := max(h.set.Share*float64(h.fleet.Total), 1)
	busy := h.fleet.Total >= h.set.Least
	for _, k := range h.hot {
		k.Count, k.Err = h.fleet.Missing, h.fleet.Missing
	}
	for _, c := range h.fleet.Keys {
		k := h.hot[c.Key]
		if k == nil && busy && float64(c.Least()) >= enter && len(h.hot) < maxHot {
			k = h.enter(c.Key)
		}
		if k != nil {
			k.Counted = c
		}
	}
	if !ends {
		return
	}
	for key, k := range h.hot {
		if busy && float64(k.Least()) >= enter/2 {
			k.cold = 0
		} else if k.cold++; k.cold >= coldWindows {
			delete(h.hot, key)
		}
	}
}

func (h *Hot) enter(key string) *hotKey {
	k := &hotKey{owners: h.set.Ring.Owners(key, h.set.Copies)}
	k.Key = key
	h.hot[key] = k
	return k
}

// save returns the set of hot keys for those who begin, if it is for this process to keep it: one does.
func (h *Hot) save(now time.Duration) *Report {
	for name, r := range h.latest {
		if r.until > now && r.Total > 0 && name < h.set.Me {
			return nil
		}
	}
	if len(h.hot) == 0 && !h.saved {
		return nil
	}
	h.saved = len(h.hot) > 0
	r := &Report{kind: reportSet, from: h.set.Me, over: max(h.set.Window, time.Millisecond), next: max(h.length(), time.Millisecond)}
	r.Summary = h.Keys()
	return r
}

// Adopt takes the set of hot keys that another process kept. They stay hot until the reports say otherwise.
func (h *Hot) Adopt(r Report) {
	if r.kind != reportSet {
		return
	}
	h.fleet.Total = max(h.fleet.Total, r.Total)
	for _, c := range r.Keys {
		if h.hot[c.Key] == nil && len(h.hot) < maxHot {
			h.enter(c.Key).Counted = c
		}
	}
}

// Keys returns the hot keys with what the fleet reads them in a window, and Total, which is of all keys.
func (h *Hot) Keys() Summary {
	s := Summary{Total: h.fleet.Total}
	for _, k := range h.hot {
		s.Keys = append(s.Keys, k.Counted)
	}
	s.sort()
	return s
}

// Hot tells whether a key is hot.
func (h *Hot) Hot(key string) bool { return h.hot[key] != nil }

// Len returns how many keys are hot.
func (h *Hot) Len() int { return len(h.hot) }

// Where returns the nodes on which a hot key is, its home first; nil for one that is not hot.
func (h *Hot) Where(key string) []int {
	if k := h.hot[key]; k != nil {
		return slices.Clone(k.owners)
	}
	return nil
}

// Questions returns how many questions went to a node.
func (h *Hot) Questions(node int) uint64 { return h.nodes[node].asked }

// memory is how long the load of a node is remembered.
func (h *Hot) memory() time.Duration { return 2 * h.set.Window }

// Pick implements [Spreader]: the less loaded of two of the key's nodes (Mitzenmacher, "The power of two choices in
// randomized load balancing", 2001). The least loaded of all would be the same for everybody, and then not be it.
func (h *Hot) Pick(now time.Duration, key string, home int) int {
	k := h.hot[key]
	if k == nil || len(k.owners) < 2 {
		return home
	}
	i, j := h.random.IntN(len(k.owners)), h.random.IntN(len(k.owners)-1)
	if j >= i {
		j++
	}
	a, b := k.owners[i], k.owners[j]
	if h.nodes[b].load(now, h.memory()) < h.nodes[a].load(now, h.memory()) {
		return b
	}
	return a
}

// Copies implements [Spreader].
func (h *Hot) Copies(key string) []int {
	if k := h.hot[key]; k != nil {
		return k.owners[1:]
	}
	return nil
}

// refreshSpread is over how long a fleet spreads its questions for a copy that is to be refreshed. Whoever comes first
// puts the copy that keeps the others from asking.
const refreshSpread = 200 * time.Millisecond

// Refresh implements [Spreader].
func (h *Hot) Refresh(now time.Duration, key string) bool {
	k := h.hot[key]
	if k == nil {
		return false
	}
	due := k.refresh != 0 && now >= k.refresh && now < k.refresh+refreshSpread
	if due || k.refresh == 0 || now >= k.refresh+refreshSpread { // the last time was about another copy
		k.refresh = now + 1 + time.Duration(h.random.Int64N(int64(refreshSpread)))
	}
	return due
}

// Asked implements [Spreader].
func (h *Hot) Asked(node int) { h.nodes[node].ask() }

// Answered implements [Spreader].
func (h *Hot) Answered(now time.Duration, node int, asked time.Duration) {
	h.nodes[node].answer(now, asked, h.memory())
}
