package core

import "time"

// This file is about how flights end: who is served with what, and who is told that there is nothing.

// serveLoaded answers those for whom what was loaded is new enough, and tells whether it is not for somebody, or not at
// all.
func (f *Front) serveLoaded(fl *flight, item Item, times Times, reached Version) (short bool) {
	if item.Version < fl.floor {
		return true
	}
	var all []read
	all, fl.reads = fl.reads, nil
	var served []ReadID
	for _, r := range all {
		if r.min.named() <= reached {
			served = append(served, r.id)
		} else {
			fl.reads = append(fl.reads, r)
		}
	}
	if len(served) > 0 {
		f.do(Action{Do: DoServe, Key: fl.key, Node: fl.home, Reads: served, Outcome: FromLoad, Item: item, Times: times})
	}
	return len(fl.reads) > 0
}

// all takes the reads out of the flight.
func (fl *flight) all() []ReadID {
	ids := make([]ReadID, len(fl.reads))
	for i, r := range fl.reads {
		ids[i] = r.id
	}
	fl.reads = nil
	return ids
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

// errShared is the error of somebody else's load, of which only the text is known.
type errShared struct{ why string }

func (e errShared) Error() string { return ErrLoadFailed.Error() + ": " + e.why }

func (e errShared) Unwrap() error { return ErrLoadFailed }
