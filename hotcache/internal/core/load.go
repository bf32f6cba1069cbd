package core

import (
	"math"
	"time"
)

// A nodeLoad is how busy a node is with the questions of this process: how many are under way, and how many were on
// average of late, which by Little's law is their rate times the time of an answer. So a node that answers at half the
// speed of another gets half as many of the questions that can go to either.
type nodeLoad struct {
	flying int
	busy   float64 // seconds of waiting for its answers, of which those of long ago count less
	at     time.Duration
	asked  uint64
}

// leastAnswer is what an answer counts at least, so that where all are quick their number decides.
const leastAnswer = time.Microsecond

func (l *nodeLoad) ask() {
	l.flying++
	l.asked++
}

func (l *nodeLoad) answer(now, asked, memory time.Duration) {
	l.flying--
	l.fade(now, memory)
	l.busy += max(now-asked, leastAnswer).Seconds()
}

func (l *nodeLoad) fade(now, memory time.Duration) {
	if now > l.at {
		l.busy *= math.Exp(-float64(now-l.at) / float64(memory))
		l.at = now
	}
}

// load returns how many questions are under way on average, and those beyond what is usual: a node that stalls shows
// by them before it answers.
func (l *nodeLoad) load(now, memory time.Duration) float64 {
	l.fade(now, memory)
	usual := l.busy / memory.Seconds()
	return usual + max(0, float64(l.flying)-2*usual-2)
}
