package rmapredis_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A loss is a time in which the store lost something: it was emptied, or set back to an older state.
type loss struct {
	what       string
	start, end int64
	back       bool // to an older state, so that what was gone before may be there again
}

// A story is what one writer did to a key, in order.
type story struct {
	writes  []written
	values  map[string]int // which write a value is of
	deletes []int          // which writes are deletions that may have been done
}

// A judge knows what was written and what the store lost, and judges what readers saw.
type judge struct {
	byKey   map[string]*story
	byNonce map[uint64]written // those that were acknowledged
	losses  []loss

	looks, entries, judged, old int // what was judged, so that the judgement is known to be about something
	generations                 map[uint64]bool
	complaints                  []string
}

func newJudge(writes []written, losses []loss) *judge {
	j := &judge{byKey: make(map[string]*story), byNonce: make(map[uint64]written), losses: losses, generations: make(map[uint64]bool)}
	for _, w := range writes { // those of one key are in the order of its writer
		k := j.byKey[w.Key]
		if k == nil {
			k = &story{values: make(map[string]int)}
			j.byKey[w.Key] = k
		}
		switch {
		case !w.Deleted:
			k.values[w.Value] = len(k.writes)
		case w.Outcome != rmap.NotApplied:
			k.deletes = append(k.deletes, len(k.writes))
		}
		k.writes = append(k.writes, w)
		if w.Outcome == rmap.Applied && !w.Deleted {
			j.byNonce[w.Revision.Nonce] = w
		}
	}
	return j
}

func (j *judge) complain(s *seen, format string, args ...any) {
	if len(j.complaints) < 20 {
		j.complaints = append(j.complaints, fmt.Sprintf("at %v, %v, proved %v before: ", s.Revision, s.State, s.Age)+fmt.Sprintf(format, args...))
	}
}

// see judges one look.
func (j *judge) see(s *seen) {
	j.looks++
	j.generations[s.Revision.Generation] = true
	j.oneLife(s)
	for key := range j.byKey {
		j.notOld(s, key)
	}
	j.notGone(s)
}

// oneLife: everything in one view was written in the life that the view is of, at or before its revision, and no number
// was given to two changes.
func (j *judge) oneLife(s *seen) {
	nonces := make(map[uint64]uint64)
	for key, v := range s.Entries {
		j.entries++
		if v.Revision.Number > s.Revision.Number {
			j.complain(s, "%s was written later, by %v", key, v.Revision)
		}
		if n, ok := nonces[v.Revision.Number]; ok && n != v.Revision.Nonce {
			j.complain(s, "two changes have the number %d", v.Revision.Number)
		}
		nonces[v.Revision.Number] = v.Revision.Nonce
		w, known := j.byNonce[v.Revision.Nonce]
		if !known {
			continue // whoever wrote it was not told, or was not a writer whose keys are judged
		}
		if w.Revision != v.Revision || w.Value != v.Text || w.Key != key {
			j.complain(s, "%s = %s is of the life %x: %+v", key, v.Text, v.Revision.Generation, w)
		}
	}
}

// notOld: the view has every write that finished before the copy was last proved current, unless the store lost it.
func (j *judge) notOld(s *seen, key string) {
	proved := s.Before - int64(s.Age)
	k := j.byKey[key]
	last := sort.Search(len(k.writes), func(i int) bool { return k.writes[i].Finish >= proved }) - 1
	for last >= 0 && k.writes[last].Outcome != rmap.Applied {
		last--
	}
	if last < 0 || j.lost(k.writes[last].Start, s.After) {
		return
	}
	j.judged++
	// What was not acknowledged may have been done at any time after it was sent.
	possible := func(i int) bool {
		w := k.writes[i]
		return w.Start <= s.After && (w.Outcome == rmap.Unknown || w.Outcome == rmap.Applied && i >= last)
	}
	v, present := s.Entries[key]
	if i, known := k.values[v.Text]; present && known && possible(i) || !present && slices.ContainsFunc(k.deletes, possible) {
		return
	}
	j.complain(s, "%s is %q, and %q was finished %v before the proof", key, v.Text, k.writes[last].Value,
		time.Duration(proved-k.writes[last].Finish))
}

// lost tells whether the store may have lost something between two moments.
func (j *judge) lost(from, to int64) bool {
	for _, l := range j.losses {
		if l.end >= from && l.start <= to {
			return true
		}
	}
	return false
}

// notGone: the view has nothing that was finished before the store was emptied, when that was before the proof.
func (j *judge) notGone(s *seen) {
	proved := s.Before - int64(s.Age)
	var emptied *loss
	for i := range j.losses {
		if l := &j.losses[i]; !l.back && l.end < proved && (emptied == nil || l.start > emptied.start) {
			emptied = l
		}
	}
	if emptied == nil {
		return
	}
	for i := range j.losses {
		if l := &j.losses[i]; l.back && l.end >= emptied.start && l.start <= s.After {
			return
		}
	}
	j.old++
	for key, v := range s.Entries {
		if w, ok := j.byNonce[v.Revision.Nonce]; ok && w.Finish < emptied.start {
			j.complain(s, "%s = %s was gone by %s, %v before the proof", key, v.Text, emptied.what, time.Duration(proved-emptied.end))
		}
	}
}

func (j *judge) verdict() string { return strings.Join(j.complaints, "\n") }
