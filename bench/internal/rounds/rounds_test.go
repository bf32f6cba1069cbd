package rounds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func right(context.Context, *Sample) error { return nil }

// steady makes an arm that takes step for each operation. It runs in a synctest
// bubble, so that the step is exact.
func steady(name string, step time.Duration) Arm {
	return Arm{Name: name, Check: right, Run: func(ctx context.Context, d time.Duration) (Sample, error) {
		return Callers(ctx, 1, d, func(context.Context, int) error {
			time.Sleep(step)
			return nil
		})
	}}
}

func pair(ours, peer Arm) Row {
	return Row{Arms: []Arm{ours, peer}, Ours: ours.Name, Peer: peer.Name, Value: Rate, Unit: "ops/s"}
}

func TestRatioOfTwoSteadyArms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := pair(steady("ours", time.Millisecond), steady("peer", 2*time.Millisecond))
		res, err := Run(t.Context(), row, Options{Rounds: 5, Length: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if res.Rounds != 5 || res.Worse < 1.99 || res.Worse > 2.01 {
			t.Errorf("%d rounds, ratio %v, want 5 and 2", res.Rounds, res.Ratio)
		}
		if got := res.Arm("peer").P50.Median; got != 2000 {
			t.Errorf("median of the peer = %v µs, want 2000", got)
		}
		if res.Arms[2].Name != Idle || res.Arms[2].Max.Most != 0 {
			t.Errorf("third arm %+v, want a control that is never late on a fake clock", res.Arms[2])
		}
		row.Value, row.Smaller = Median, true
		if res, err = Run(t.Context(), row, Options{Rounds: 3, Length: 20 * time.Millisecond}); err != nil || res.Worse != 0.5 {
			t.Errorf("ratio of times = %+v, %v, want 0.5", res, err)
		}
	})
}

func TestFurtherPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := pair(steady("ours", time.Millisecond), steady("peer", 2*time.Millisecond))
		row.Value, row.Smaller = Median, true
		row.Pairs = []Pair{{"peer", "ours"}}
		res, err := Run(t.Context(), row, Options{Rounds: 3, Length: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if p := res.Pair("peer", "ours"); p == nil || p.Worse != 2 || p.More.Median != 1000 || p.Longest.Most != 1000 {
			t.Errorf("pair = %+v, want twice as long, by 1000 µs", p)
		}
		if p := res.Pair("ours", "peer"); p != nil {
			t.Errorf("a pair that nobody asked for: %+v", p)
		}
		if got := Each(Digest{Rate: 1e6}); got != 1000 {
			t.Errorf("a million a second take %v ns each", got)
		}
	})
}

// The worse quartile must be the low one of rates and the high one of times: an
// arm that alternates between twice as fast and twice as slow is not equal.
func TestWorseQuartile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		uneven := Arm{Name: "ours", Check: right, Run: func(ctx context.Context, d time.Duration) (Sample, error) {
			step := time.Millisecond
			if n++; n%2 == 0 {
				step = 4 * time.Millisecond
			}
			return steady("", step).Run(ctx, d)
		}}
		row := pair(uneven, steady("peer", 2*time.Millisecond))
		o := Options{Rounds: 8, Length: 40 * time.Millisecond}
		res, err := Run(t.Context(), row, o)
		if err != nil || res.Worse != 0.5 || res.Ratio.High != 2 {
			t.Errorf("rates: %+v, %v, want worse 0.5 of 0.5 and 2", res, err)
		}
		row.Value, row.Smaller = Median, true
		res, err = Run(t.Context(), row, o)
		if err != nil || res.Worse != 2 || res.Ratio.Low != 0.5 {
			t.Errorf("times: %+v, %v, want worse 2 of 0.5 and 2", res, err)
		}
	})
}

// Every arm runs once a round, in an order that changes and that the seed
// repeats, and the warming round does not count.
func TestRoundsAreInterleaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		order := func(seed uint64) string {
			var b strings.Builder
			note := func(name string) Arm {
				a := steady(name, time.Millisecond)
				run := a.Run
				a.Run = func(ctx context.Context, d time.Duration) (Sample, error) {
					b.WriteString(name)
					return run(ctx, d)
				}
				return a
			}
			if _, err := Run(t.Context(), pair(note("a"), note("b")), Options{Rounds: 20, Length: 2 * time.Millisecond, Seed: seed}); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		got := order(1)
		if len(got) != 2*21 {
			t.Fatalf("%d runs, want 42: %s", len(got), got)
		}
		kinds := make(map[string]bool)
		for round := range slices.Chunk([]byte(got), 2) {
			kinds[string(round)] = true
		}
		if len(kinds) != 2 || kinds["aa"] || kinds["bb"] {
			t.Errorf("rounds %v in %s, want both orders and no arm twice in a round", kinds, got)
		}
		if again := order(1); again != got {
			t.Errorf("the same seed gave %s and %s", got, again)
		}
	})
}

// Planted defects: each of these must void the row.
func TestRowIsVoidWhen(t *testing.T) {
	defects := map[string]struct {
		arm  Arm
		want error
	}{
		"the check finds a wrong answer in the last round": {
			func() Arm {
				a, n := steady("ours", time.Millisecond), 0
				a.Check = func(_ context.Context, s *Sample) error {
					if n++; n == 4 {
						return Wrong("two holders")
					}
					return nil
				}
				return a
			}(), ErrWrong},
		"an operation fails": {
			func() Arm {
				a := steady("ours", time.Millisecond)
				a.Run = func(ctx context.Context, d time.Duration) (Sample, error) {
					return Callers(ctx, 4, d, func(_ context.Context, caller int) error {
						time.Sleep(time.Millisecond)
						if caller == 3 {
							return errLost
						}
						return nil
					})
				}
				return a
			}(), errLost},
		"nothing was done": {
			Arm{Name: "ours", Check: right, Run: func(context.Context, time.Duration) (Sample, error) {
				return Sample{Elapsed: 0}, nil
			}}, ErrWrong},
		"operations are counted that were not timed": {
			Arm{Name: "ours", Check: right, Run: func(_ context.Context, d time.Duration) (Sample, error) {
				time.Sleep(d)
				return Sample{Ops: 1000, Elapsed: d, Latency: make([]time.Duration, 10)}, nil
			}}, ErrWrong},
		"more time is claimed than passed": {
			Arm{Name: "ours", Check: right, Run: func(_ context.Context, d time.Duration) (Sample, error) {
				time.Sleep(d)
				return Sample{Ops: 1, Elapsed: 2 * d}, nil
			}}, ErrWrong},
	}
	for name, c := range defects {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				res, err := Run(t.Context(), pair(c.arm, steady("peer", time.Millisecond)), Options{Rounds: 3, Length: 10 * time.Millisecond})
				if res != nil || !errors.Is(err, c.want) {
					t.Errorf("result %v, error %v, want none and %v", res, err, c.want)
				}
			})
		})
	}
}

var errLost = errors.New("lost")

func TestRowsThatCannotBeCompared(t *testing.T) {
	a := steady("a", time.Millisecond)
	unchecked := steady("b", time.Millisecond)
	unchecked.Check = nil
	ok := Options{Rounds: 1, Length: time.Millisecond}
	for name, c := range map[string]struct {
		row Row
		o   Options
	}{
		"an arm without a check": {pair(a, unchecked), ok},
		"an arm twice":           {pair(a, a), ok},
		"a peer that is no arm":  {Row{Arms: []Arm{a}, Ours: "a", Peer: "b", Value: Rate}, ok},
		"a pair of no arms":      {Row{Arms: []Arm{a}, Ours: "a", Value: Rate, Pairs: []Pair{{"a", "b"}}}, ok},
		"no rounds":              {pair(a, steady("b", time.Millisecond)), Options{Length: time.Millisecond}},
	} {
		if _, err := Run(t.Context(), c.row, c.o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCancelStopsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := Callers(ctx, 2, time.Hour, func(ctx context.Context, _ int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error = %v", err)
		}
	})
}

func TestQuantile(t *testing.T) {
	v := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]int{0: 1, 0.25: 3, 0.5: 5, 0.75: 8, 0.99: 10, 1: 10} {
		if got := Quantile(v, q); got != want {
			t.Errorf("quantile %v of 1..10 = %d, want %d", q, got, want)
		}
	}
	if got := SpreadOf([]float64{3, 1, 2}); got != (Spread{1, 1, 2, 3, 3}) {
		t.Errorf("spread of 1, 2, 3 = %v", got)
	}
	if got := SpreadOf(nil); got != (Spread{}) {
		t.Errorf("spread of nothing = %v", got)
	}
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		claim Claim
		want  string
	}{
		{Claim{Got: 3.2, Reach: 1.5, Aim: 3}, "reached, and what we aim at"},
		{Claim{Got: 2, Reach: 1.5, Aim: 3}, "reached"},
		{Claim{Got: 1, Reach: 1.5, Aim: 3}, "missed by 33 %"},
		{Claim{Got: 1.4, Reach: 1.5, Aim: 3}, "missed by 7 %, within what this machine can tell"},
		{Claim{Got: 300, Reach: 400, Aim: 250, Smaller: true}, "reached"},
		{Claim{Got: 800, Reach: 400, Aim: 250, Smaller: true}, "missed by 100 %"},
		{Claim{Got: 2, Reach: 2, Smaller: true}, "reached"},
		{Claim{Got: 1, Reach: 0, Smaller: true}, "missed"},
	} {
		if got := c.claim.Verdict(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.claim, got, c.want)
		}
	}
}
