package inproc

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// locks is a pair behind one lock, which cannot tear.
func locks(name string) pair {
	var mu sync.Mutex
	var a, b int64
	return pair{
		name: name,
		read: func(_ context.Context, see func(a, b int64)) error {
			mu.Lock()
			defer mu.Unlock()
			see(a, b)
			return nil
		},
		bump: func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			a, b = a+1, b+1
			return nil
		},
		add: func(_ context.Context, ran func()) error {
			mu.Lock()
			defer mu.Unlock()
			ran()
			a++
			return nil
		},
		state: func() (int64, int64) { return a, b },
	}
}

func once(arm rounds.Arm) (rounds.Sample, error) {
	s, err := arm.Run(context.Background(), 5*time.Millisecond)
	if err == nil {
		err = arm.Check(context.Background(), &s)
	}
	return s, err
}

// Planted defects of transactions, and what honest ones are counted as.
func TestPairsAreJudged(t *testing.T) {
	plain := func(*pair) {}
	tear := func(p *pair) {
		read := p.read
		p.read = func(ctx context.Context, see func(a, b int64)) error {
			return read(ctx, func(a, b int64) { see(a, b-1) })
		}
	}
	for name, c := range map[string]struct {
		of    string
		spoil func(*pair)
		arm   func(pair) rounds.Arm
		want  error
		fact  string
		some  bool // the fact is above zero
	}{
		"honest":                  {OurSTM, plain, pair.torn, nil, TornPairs, false},
		"a torn pair of ours":     {OurSTM, tear, pair.torn, rounds.ErrWrong, TornPairs, true},
		"a torn pair of a peer's": {PeerSTM, tear, pair.torn, nil, TornShare, true},
		"an addition of nothing": {PeerSTM, func(p *pair) { p.bump = func(context.Context) error { return nil } },
			pair.torn, rounds.ErrWrong, TornPairs, false},
		"reruns of an honest one": {OurSTM, plain, func(p pair) rounds.Arm { return p.reruns(3) }, nil, BodyRuns, true},
		"a commit that is lost": {OurSTM, func(p *pair) { p.add = func(_ context.Context, ran func()) error { ran(); return nil } },
			func(p pair) rounds.Arm { return p.reruns(3) }, rounds.ErrWrong, BodyRuns, true},
		"a commit of what never ran": {OurSTM, func(p *pair) {
			add := p.add
			p.add = func(ctx context.Context, _ func()) error { return add(ctx, func() {}) }
		}, func(p pair) rounds.Arm { return p.reruns(3) }, rounds.ErrWrong, BodyRuns, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := locks(c.of)
			c.spoil(&p)
			arm := c.arm(p)
			s, err := once(arm)
			// A busy machine may have kept some from running at all.
			for tries := 0; tries < 100 && err == nil && (c.want != nil || c.some && s.Facts[c.fact] == 0); tries++ {
				s, err = once(arm)
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error = %v, want %v", err, c.want)
			}
			if got := s.Facts[c.fact]; (got > 0) != c.some {
				t.Errorf("%s: %v", c.fact, got)
			}
		})
	}
}

// Both transactional memories do what the rows ask of them.
func TestPairs(t *testing.T) {
	for _, arm := range append(Torn(), Reruns(4)...) {
		if _, err := once(arm); err != nil {
			t.Errorf("%s: %v", arm.Name, err)
		}
	}
}

// All maps lose every key that is taken away, and a map that does not is seen.
func TestMemory(t *testing.T) {
	all, err := MeasureMemory(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	if table := MemoryTable(all); len(table.Lines) != len(stores()) || len(table.Lines[0]) != len(table.Head) {
		t.Errorf("%+v", table)
	}
	claims := MemoryClaims(all)
	if len(claims) != 1 {
		t.Errorf("%d claims, want 1", len(claims))
	}
	s := keyMapStore()
	remove := s.remove
	s.remove = func(key string) {
		if !strings.HasSuffix(key, "77") {
			remove(key)
		}
	}
	if err := s.come(0, 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.leave(0, 1000); !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("a key that stays: error = %v, want %v", err, rounds.ErrWrong)
	}
	s.put = func(string, Record) {}
	if err := s.come(1, 10); !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("a key that does not come: error = %v, want %v", err, rounds.ErrWrong)
	}
}
