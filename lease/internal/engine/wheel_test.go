package engine

import (
	"math/rand/v2"
	"testing"
	"time"
)

type alarm struct {
	l  links[*alarm]
	at time.Duration
	id int
}

func (a *alarm) links() *links[*alarm] { return &a.l }
func (a *alarm) due() time.Duration    { return a.at }

// The wheel is run beside a plain list of deadlines: entries of all lengths are
// added, moved and removed at random, and time goes on by irregular steps. No
// entry may come early, none may be missing once a tick has passed, and next
// must never oversleep. (lockd gaps 6 and 12: the entry is the lease's own, and
// its deadline is looked at again before it counts.)
func TestWheelAgainstModel(t *testing.T) {
	for seed := range doses(30, 2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var w wheel[*alarm]
		live := map[int]*alarm{}
		now := time.Duration(0)
		spans := []time.Duration{0, time.Millisecond, 10 * time.Millisecond, time.Second, time.Minute, time.Hour, 300 * 24 * time.Hour}
		random := func() time.Duration {
			return now + time.Duration(rng.Int64N(int64(spans[rng.IntN(len(spans))])+1))
		}
		for step := range 600 {
			switch rng.IntN(5) {
			case 0, 1:
				a := &alarm{at: random(), id: step}
				live[a.id] = a
				w.add(a)
			case 2:
				for _, a := range live {
					old := a.at
					a.at = random()
					w.moved(a, a.at < old)
					break
				}
			case 3:
				for id, a := range live {
					w.remove(a)
					delete(live, id)
					break
				}
			case 4:
				now += time.Duration(rng.Int64N(int64(spans[rng.IntN(len(spans))]) + 1))
				most := 1 + rng.IntN(1000)>>rng.IntN(10)
				w.advance(now, most, func(a *alarm) {
					if most--; most < 0 {
						t.Fatalf("seed %d: more came than were asked for", seed)
					}
					if a.at > now {
						t.Fatalf("seed %d: entry due at %v came at %v", seed, a.at, now)
					}
					if live[a.id] != a {
						t.Fatalf("seed %d: entry %d came twice or after its removal", seed, a.id)
					}
					delete(live, a.id)
				})
				for _, a := range live {
					// A deadline in the past when it was added may take one more tick.
					if a.at <= now-2*wheelTick && ticksUp(a.at) <= w.elapsed-1 && a.l.place == 0 {
						t.Fatalf("seed %d: entry due at %v is still there at %v and in no slot", seed, a.at, now)
					}
				}
			}
			if w.n != len(live) {
				t.Fatalf("seed %d: %d entries, want %d", seed, w.n, len(live))
			}
			at, ok := w.next()
			if ok != (len(live) > 0) {
				t.Fatalf("seed %d: next says %v with %d entries", seed, ok, len(live))
			}
			for _, a := range live {
				if due := max(time.Duration(ticksUp(a.at))*wheelTick, time.Duration(w.elapsed+1)*wheelTick); at > due {
					t.Fatalf("seed %d: next is %v, an entry is due at %v", seed, at, due)
				}
			}
		}
		// Drive it as the owner does, from slot to slot, and see all of it out.
		for {
			at, ok := w.next()
			if !ok {
				break
			}
			if at < now {
				at = now + wheelTick
			}
			now = at
			w.advance(now, 3, func(a *alarm) { delete(live, a.id) })
		}
		if len(live) > 0 {
			t.Fatalf("seed %d: %d entries never came", seed, len(live))
		}
	}
}

// Removing others of the same slot while it is handed out must not lose or
// repeat any.
func TestWheelRemoveWhileExpiring(t *testing.T) {
	var w wheel[*alarm]
	all := make([]*alarm, 10)
	for i := range all {
		all[i] = &alarm{at: 5 * time.Millisecond, id: i}
		w.add(all[i])
	}
	came := 0
	w.advance(5*time.Millisecond, 100, func(a *alarm) {
		came++
		w.remove(all[(a.id+1)%10])
		w.remove(all[(a.id+9)%10])
	})
	if came < 4 || came > 5 || w.n != 0 {
		t.Fatalf("%d came, %d left; want each second one and none left", came, w.n)
	}
}
