package answers

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

func wantWrong(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("%s: error = %v, want %v", what, err, rounds.ErrWrong)
	}
}

func wantRight(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func TestTokensMustRise(t *testing.T) {
	var r Rising
	wantRight(t, "first", r.Next(5))
	wantRight(t, "higher", r.Next(6))
	wantWrong(t, "the same again", r.Next(6))
	wantWrong(t, "lower", r.Next(1))
	wantWrong(t, "no token", new(Rising).Next(0))
}

func TestSectionAdmitsOne(t *testing.T) {
	var s Section
	wantRight(t, "enter", s.Enter())
	wantRight(t, "leave", s.Leave())
	wantRight(t, "enter again", s.Enter())
	wantWrong(t, "a second holder", s.Enter())
	wantWrong(t, "one of two leaves", s.Leave())
	wantWrong(t, "leaving twice", func() error { _ = s.Leave(); return s.Leave() }())
}

func TestTallyMustAgree(t *testing.T) {
	before := Tally{Granted: 10, Released: 8, Held: 2}
	wantRight(t, "three pairs", Tally{13, 11, 2}.Since(before, 3))
	wantWrong(t, "a grant that the service did not make", Tally{12, 11, 2}.Since(before, 3))
	wantWrong(t, "a grant too many", Tally{14, 11, 2}.Since(before, 3))
	wantWrong(t, "a release that was not made", Tally{13, 10, 2}.Since(before, 3))
	wantWrong(t, "a key left held", Tally{13, 11, 3}.Since(before, 3))
}

func TestExpiriesAreJudged(t *testing.T) {
	due := time.Now()
	good := []Expiry{
		{Key: "a", Due: due, Told: due, Times: 1},
		{Key: "b", Due: due, Told: due.Add(3 * time.Millisecond), Times: 1},
	}
	late, err := Lateness(good)
	if err != nil || !slices.Equal(late, []time.Duration{0, 3 * time.Millisecond}) {
		t.Errorf("lateness = %v, %v", late, err)
	}
	plant := func(what string, e Expiry) {
		_, err := Lateness(append(slices.Clone(good), e))
		wantWrong(t, what, err)
	}
	plant("a lease that ended a nanosecond early", Expiry{"c", due, due.Add(-1), 1})
	plant("a lease that never ended", Expiry{Key: "c", Due: due})
	plant("a lease that ended twice", Expiry{"c", due, due.Add(time.Millisecond), 2})
}

func TestUneven(t *testing.T) {
	for _, c := range []struct {
		grants []int
		want   float64
	}{
		{[]int{100, 100, 100}, 0},
		{[]int{99, 101}, 0.02},
		{[]int{0, 10}, 2},
		{nil, 0},
		{[]int{0, 0}, 0},
	} {
		if got := Uneven(c.grants); got != c.want {
			t.Errorf("uneven %v = %v, want %v", c.grants, got, c.want)
		}
	}
}
