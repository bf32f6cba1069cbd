package core

import "time"

// This file is about how many loads there may be while the nodes answer: a node that is empty, as one is that was just
// started, has all keys loaded that are read. Those beyond the limit wait with their leases, which they renew, so that
// nobody else loads their keys meanwhile.

// A turn is how far a flight with a lease is on its way to its load.
type turn uint8

const (
	noTurn       turn = iota
	waitsForTurn      // in Front.turns
	waitsInVain       // there too, and it has lost its lease
	hasTurn           // counted in Front.loads
)

// takeTurn has a flight that was granted a lease load, keep that while it does, and wait if too many load already.
func (f *Front) takeTurn(now time.Duration, fl *flight) {
	switch {
	case fl.turn == hasTurn:
		f.load(fl)
	case f.set.MaxLoads == 0 || f.loads < f.set.MaxLoads:
		f.loads++
		fl.turn = hasTurn
		f.load(fl)
	case len(f.turns) < f.set.MaxWaiting:
		fl.turn = waitsForTurn
		f.turns = append(f.turns, fl)
	default:
		f.shed(fl)
		return
	}
	f.at(now+f.set.LeaseTTL/3, fl, timerRenew)
}

// shed gives a lease back: another process may have a turn for it. It tells nobody that a load failed, or those who need
// one, and may have it where they are, would not try.
func (f *Front) shed(fl *flight) {
	f.do(Action{Do: DoFail, Node: fl.home, Key: fl.key, Token: fl.token})
	if !f.serveStale(fl, StaleOnError, f.set.StaleOnError) {
		f.fail(fl, Shed, ErrOverloaded)
	}
	f.land(fl)
}

// endTurn lets the next load begin. One whose lease is lost asks for another first: what it waited to load may be there.
func (f *Front) endTurn(now time.Duration, fl *flight) {
	if fl.turn != hasTurn {
		return
	}
	fl.turn = noTurn
	f.loads--
	for len(f.turns) > 0 && f.loads < f.set.MaxLoads {
		next := f.turns[0]
		f.turns[0] = nil
		f.turns = f.turns[1:]
		lost := next.turn == waitsInVain
		if lost && len(next.reads) == 0 {
			next.turn = noTurn
			f.land(next)
			continue
		}
		f.loads++
		next.turn = hasTurn
		if lost {
			f.askHome(now, next)
		} else {
			f.load(next)
		}
	}
}
