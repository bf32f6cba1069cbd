package rmapredis_test

import (
	"fmt"
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

// A judge knows what was written and what the store lost, and judges what readers saw.
type judge struct {
	byKey   map[string][]written // in the order in which the one who writes the key did
	byNonce map[uint64]written   // those that were acknowledged
	losses  []loss

	looks, entries, judged, old int // what was judged, so that the judgement is known to be about something
	generations                 map[uint64]bool
	complaints                  []string
}

func newJudge(writes []written, losses []loss) *judge {
	j := &judge{byKey: make(map[string][]written), byNonce: make(map[uint64]written), losses: losses, generations: make(map[uint64]bool)}
	for _, w := range writes {
		j.byKey[w.Key] = append(j.byKey[w.Key], w)
		if w.Outcome == 0 && !w.Deleted {
			j.byNonce[w.Revision.Nonce] = w
		}
	}
	for _, list := range j.byKey {
		sort.SliceStable(list, func(a, b int) bool { return list[a].Start < list[b].Start })
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
	list := j.byKey[key]
	n := sort.Search(len(list), func(i int) bool { return list[i].Start >= proved })
	last := -1
	for i := n - 1; i >= 0; i-- {
		if list[i].Finish < proved && list[i].Outcome == 0 {
			last = i
			break
		}
	}
	if last < 0 || j.lost(list[last].Start, s.After) {
		return
	}
	j.judged++
	v, present := s.Entries[key]
	for i, w := range list {
		// What was not acknowledged may have been done at any time after it was sent.
		possible := w.Outcome == rmap.Unknown || i >= last && w.Outcome == 0
		if possible && w.Start <= s.After && (w.Deleted && !present || !w.Deleted && present && w.Value == v.Text) {
			return
		}
	}
	j.complain(s, "%s is %q, and %q was finished %v before the proof", key, v.Text, list[last].Value,
		time.Duration(proved-list[last].Finish))
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
