//go:build linux

package crashtest

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

func nanos(n int64) time.Duration { return time.Duration(n).Round(time.Millisecond) }

// defects are what the checker must reject, each planted into the diaries of a run that was in order.
var defects = []struct {
	name string // of the fault that it must be called
	what string
	sow  func(all []entry) []entry
}{
	{"lowered", "a token that is lower than an earlier one", func(all []entry) []entry {
		e := last(all, func(e *entry) bool { return e.What == got })
		e.Held[0].Token = 1
		return all
	}},
	{"twice", "a token that is given twice", func(all []entry) []entry {
		e := last(all, func(e *entry) bool { return e.What == got })
		other := first(all, func(o *entry) bool { return o.What == got && o.ID != e.ID })
		e.Held[0].Token = other.Held[0].Token
		return all
	}},
	{"missing", "a lease that is forgotten when the broker restarts", func(all []entry) []entry {
		for i := range all {
			if all[i].What == listed {
				all[i].Held = nil
			}
		}
		return all
	}},
	{"lost", "a lease that ends before its time", func(all []entry) []entry {
		g := first(all, func(e *entry) bool { return e.What == got && e.Until > e.At+int64(10*time.Millisecond) })
		at := g.At + 1
		return insert(all, entry{At: at, What: lost, Who: g.Who, ID: g.ID, Held: g.Held[:1], Code: lease.ErrExpired})
	}},
	{"lost", "a release that finds nothing", func(all []entry) []entry {
		for i := range all {
			if all[i].What == dropped {
				all[i].Code = lease.ErrNotHeld
			}
		}
		return all
	}},
	{"together", "a key that two hold", func(all []entry) []entry {
		g := first(all, func(e *entry) bool { return e.What == got && e.Until > e.At+int64(10*time.Millisecond) })
		key := g.Held[0].Key
		ask := entry{At: g.At + 1, What: asked, Who: "thief", ID: "thief-1", Ask: lease.Request{ID: "thief-1", Keys: []string{key}}}
		theft := entry{At: g.At + 2, What: got, Who: "thief", ID: "thief-1", Held: []lease.Hold{{Key: key, Token: lease.MaxToken - 1}}, Until: g.Until}
		return insert(insert(all, ask), theft)
	}},
	{"partly", "a lease on some of its keys", func(all []entry) []entry {
		e := first(all, func(e *entry) bool { return e.What == got && len(e.Held) > 1 })
		e.Held = e.Held[1:]
		return all
	}},
}

// plant shows that the checker rejects each defect in the diaries of a real run.
func plant(t *testing.T, all []entry) {
	t.Helper()
	for _, d := range defects {
		copied := slices.Clone(all)
		for i := range copied {
			copied[i].Held = slices.Clone(copied[i].Held)
		}
		c := check(d.sow(copied))
		if !slices.ContainsFunc(c.wrong, func(w string) bool { return strings.HasPrefix(w, d.name+":") }) {
			t.Errorf("%s was planted, and the checker says %q", d.what, c.wrong)
		}
	}
}

func first(all []entry, is func(*entry) bool) *entry {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return &entry{At: math.MaxInt64, Held: []lease.Hold{{}}}
}

func last(all []entry, is func(*entry) bool) *entry {
	for i := range slices.Backward(all) {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return &entry{At: math.MaxInt64, Held: []lease.Hold{{}}}
}

// insert puts an entry in its place.
func insert(all []entry, e entry) []entry {
	i := slices.IndexFunc(all, func(x entry) bool { return x.At >= e.At })
	if i < 0 {
		i = len(all)
	}
	return slices.Insert(all, i, e)
}
