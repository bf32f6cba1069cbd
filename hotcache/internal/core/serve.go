package core

import (
	"maps"
	"slices"
	"time"
)

// This file is about how flights end: who is served with what, and who is told that there is nothing.

// serveLoaded answers those for whom what was loaded is new enough, and tells whether it is not for somebody, or not at
// all.
func (f *Front) serveLoaded(fl *flight, item Item, times Times, reached Version) (short bool) {
	if item.Version < fl.floor {
		return true
	}
	var served []ReadID
	for id, min := range fl.reads {
		if min.named() <= reached {
			served = append(served, id)
			delete(fl.reads, id)
		}
	}
	slices.Sort(served)
	if len(served) > 0 {
		f.do(Action{Do: DoServe, Key: fl.key, Node: fl.home, Reads: served, Outcome: FromLoad, Item: item, Times: times})
	}
	return len(fl.reads) > 0
}

// all takes the reads out of the flight, in the order of their names.
func (fl *flight) all() []ReadID {
	ids := slices.AppendSeq(make([]ReadID, 0, len(fl.reads)), maps.Keys(fl.reads))
	slices.Sort(ids)
	clear(fl.reads)
	return ids
}

// take has a flight answer the reads of another too.
func (fl *flight) take(other *flight) {
	maps.Copy(fl.reads, other.reads)
	clear(other.reads)
}

func (f *Front) serve(fl *flight, o Outcome, item Item, times Times) {
	if len(fl.reads) > 0 {
		f.do(Action{Do: DoServe, Key: fl.key, Node: fl.home, Reads: fl.all(), Outcome: o, Item: item, Times: times})
	}
	f.closeTo(fl)
}

func (f *Front) fail(fl *flight, o Outcome, err error) {
	if len(fl.reads) > 0 {
		f.do(Action{Do: DoServe, Key: fl.key, Node: fl.home, Reads: fl.all(), Outcome: o, Err: err})
	}
	f.closeTo(fl)
}

// serveStale answers with an item that is not further past its hard time than limit, and tells whether it could.
func (f *Front) serveStale(fl *flight, o Outcome, limit time.Duration) bool {
	if fl.stale == nil || limit <= 0 || -fl.times.Hard >= limit {
		return false
	}
	f.serve(fl, o, *fl.stale, fl.times)
	return true
}

// land ends a flight.
func (f *Front) land(fl *flight) {
	fl.done = true
	f.closeTo(fl)
}

func (f *Front) loadFailed(now time.Duration, fl *flight, outcome Outcome, err error) {
	pause := min(max(2*f.pauses[fl.key], f.set.FirstPause), f.set.LastPause)
	f.notePause(fl.key, pause)
	if fl.token != 0 {
		f.do(Action{Do: DoFail, Node: fl.home, Key: fl.key, Token: fl.token, Why: err.Error(), Pause: pause})
	}
	fl.times, fl.since = fl.times.Minus(now-fl.since), now
	if !f.serveStale(fl, StaleOnError, f.set.StaleOnError) {
		f.fail(fl, outcome, err)
	}
	f.endTurn(now, fl)
	if fl.past {
		f.landed(now, fl)
	}
	f.land(fl)
}

// maxPauses is for how many keys the length of the pause is remembered.
const maxPauses = 1 << 12

func (f *Front) notePause(key string, pause time.Duration) {
	if len(f.pauses) >= maxPauses {
		clear(f.pauses)
	}
	f.pauses[key] = pause
}

// errShared is the error of somebody else's load, of which only the text is known.
type errShared struct{ why string }

func (e errShared) Error() string { return ErrLoadFailed.Error() + ": " + e.why }

func (e errShared) Unwrap() error { return ErrLoadFailed }
