package core

import (
	"container/heap"
	"time"
)

type timerKind uint8

const (
	timerRenew timerKind = iota
	timerRetry
	timerReload
)

type timer struct {
	at   time.Duration
	fl   *flight
	kind timerKind
}

type timers []timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].at < t[j].at }
func (t timers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)        { *t = append(*t, x.(timer)) }

func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	(*t)[len(*t)-1] = timer{}
	*t = (*t)[:len(*t)-1]
	return last
}

func (f *Front) at(when time.Duration, fl *flight, kind timerKind) {
	heap.Push(&f.timers, timer{when, fl, kind})
}

// Next returns when Tick must be called, if it must.
func (f *Front) Next() (time.Duration, bool) {
	if len(f.timers) == 0 {
		return 0, false
	}
	return f.timers[0].at, true
}

// Tick does what time has come for.
func (f *Front) Tick(now time.Duration) []Action {
	for len(f.timers) > 0 && f.timers[0].at <= now {
		t := heap.Pop(&f.timers).(timer)
		switch {
		case t.fl.done:
		case t.kind == timerRenew:
			f.start(t.fl, Action{Do: DoRenew, Node: t.fl.home, Token: t.fl.token})
		case t.kind == timerRetry && t.fl.waits:
			f.awake(t.fl)
			f.askHome(now, t.fl)
		case t.kind == timerReload:
			f.load(t.fl)
		}
	}
	return f.flush()
}

// sleep has a flight wait for the end of somebody else's load: for a wake, or for the end of the lease. If there is one
// that waits for the same, its reads join that, so that invalidations in quick succession, each of which closes a
// flight, do not leave a row of flights that would load one after the other.
func (f *Front) sleep(now time.Duration, fl *flight, retry time.Duration) {
	for _, other := range f.asleep[fl.key] {
		if other.min == fl.min {
			other.take(fl)
			f.land(fl)
			if f.open[fl.key] == nil {
				f.open[fl.key] = other
			}
			return
		}
	}
	fl.waits = true
	f.asleep[fl.key] = append(f.asleep[fl.key], fl)
	f.at(now+max(retry, time.Millisecond), fl, timerRetry)
}

func (f *Front) awake(fl *flight) {
	fl.waits = false
	without(f.asleep, fl)
}

// without takes a flight out of those of its key.
func without(of map[string][]*flight, fl *flight) {
	left := of[fl.key]
	for i, other := range left {
		if other == fl {
			left = append(left[:i], left[i+1:]...)
			break
		}
	}
	if len(left) == 0 {
		delete(of, fl.key)
		return
	}
	of[fl.key] = left
}
