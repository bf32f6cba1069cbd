package inproc

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	astm "github.com/anacrolix/stm"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/stm"
)

// The names of the two transactional memories, and of what is told of them.
const (
	OurSTM  = "stm"
	PeerSTM = "anacrolix/stm"

	TornPairs = "torn pairs"
	TornShare = "torn pairs in a million runs"
	BodyRuns  = "runs of the function for a commit"
)

// pair is two transactional variables, equal whenever no transaction is half done.
// Each function runs as a transaction that yields the processor in its middle.
type pair struct {
	name string

	// read tells see what each run of the function sees, and bump adds one to both.
	read func(ctx context.Context, see func(a, b int64)) error
	bump func(ctx context.Context) error

	// add adds one to the first, and tells ran of each run.
	add func(ctx context.Context, ran func()) error

	state func() (a, b int64)
}

func pairs() []func() pair { return []func() pair{ourPair, anacrolixPair} }

func ourPair() pair {
	var a, b stm.Var[int64]
	return pair{
		name: OurSTM,
		read: func(ctx context.Context, see func(a, b int64)) error {
			return stm.Atomically(ctx, func(tx stm.Tx) error {
				x := a.Get(tx)
				runtime.Gosched()
				see(x, b.Get(tx))
				return nil
			})
		},
		bump: func(ctx context.Context) error {
			return stm.Atomically(ctx, func(tx stm.Tx) error {
				x := a.Get(tx) + 1
				a.Set(tx, x)
				b.Set(tx, x)
				return nil
			})
		},
		add: func(ctx context.Context, ran func()) error {
			return stm.Atomically(ctx, func(tx stm.Tx) error {
				ran()
				x := a.Get(tx)
				runtime.Gosched()
				a.Set(tx, x+1)
				return nil
			})
		},
		state: func() (int64, int64) { return a.Load(), b.Load() },
	}
}

func anacrolixPair() pair {
	a, b := astm.NewVar(int64(0)), astm.NewVar(int64(0))
	atomically := func(fn func(*astm.Tx)) error {
		astm.Atomically(astm.VoidOperation(fn))
		return nil
	}
	return pair{
		name: PeerSTM,
		read: func(_ context.Context, see func(a, b int64)) error {
			return atomically(func(tx *astm.Tx) {
				x := a.Get(tx)
				runtime.Gosched()
				see(x, b.Get(tx))
			})
		},
		bump: func(context.Context) error {
			return atomically(func(tx *astm.Tx) {
				x := a.Get(tx) + 1
				a.Set(tx, x)
				b.Set(tx, x)
			})
		},
		add: func(_ context.Context, ran func()) error {
			return atomically(func(tx *astm.Tx) {
				ran()
				x := a.Get(tx)
				runtime.Gosched()
				a.Set(tx, x+1)
			})
		},
		state: func() (int64, int64) { return astm.AtomicGet(a), astm.AtomicGet(b) },
	}
}

// Torn are arms that read a pair while others change it: half of the goroutines
// each. A run of a reader's function that sees the halves differ is counted, whether
// or not its transaction commits. For ours one is a wrong answer.
func Torn() []rounds.Arm {
	var arms []rounds.Arm
	for _, open := range pairs() {
		arms = append(arms, open().torn())
	}
	return arms
}

func (p pair) torn() rounds.Arm {
	const goroutines = 4
	var bumps int64 // over all rounds
	var runs, torn, bumped atomic.Int64
	see := func(a, b int64) {
		runs.Add(1)
		if a != b {
			torn.Add(1)
		}
	}
	run := func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
		runs.Store(0)
		torn.Store(0)
		bumped.Store(0)
		s, err := rounds.Callers(ctx, goroutines, d, func(ctx context.Context, i int) error {
			if i%2 == 0 {
				return p.read(ctx, see)
			}
			bumped.Add(1)
			err := p.bump(ctx)
			runtime.Gosched() // as the readers do, so that they get their turns
			return err
		})
		n, bad := float64(runs.Load()), float64(torn.Load())
		s.Facts = map[string]float64{"runs of readers": n, TornPairs: bad, TornShare: 1e6 * bad / max(n, 1)}
		return s, err
	}
	check := func(context.Context, *rounds.Sample) error {
		bumps += bumped.Load()
		if a, b := p.state(); a != b || a != bumps {
			return rounds.Wrong("the pair is %d, %d after %d additions", a, b, bumps)
		}
		if n := torn.Load(); n > 0 && p.name == OurSTM {
			return rounds.Wrong("%d runs saw half of another transaction", n)
		}
		return nil
	}
	return rounds.Arm{
		Name: p.name, Setting: "2 goroutines read two variables with a yield between them, 2 add one to both",
		Run: run, Check: check,
	}
}

// Reruns are arms that add to one variable by so many goroutines at once, with a
// yield in the function, so that transactions overlap however few the cores.
func Reruns(goroutines int) []rounds.Arm {
	var arms []rounds.Arm
	for _, open := range pairs() {
		arms = append(arms, open().reruns(goroutines))
	}
	return arms
}

func (p pair) reruns(goroutines int) rounds.Arm {
	var added int64 // over all rounds
	var runs atomic.Int64
	ran := func() { runs.Add(1) }
	return rounds.Arm{
		Name: p.name, Setting: "one variable, read, a yield, set",
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			runs.Store(0)
			s, err := rounds.Callers(ctx, goroutines, d, func(ctx context.Context, _ int) error { return p.add(ctx, ran) })
			s.Facts = map[string]float64{BodyRuns: float64(runs.Load()) / float64(max(s.Ops, 1))}
			return s, err
		},
		Check: func(_ context.Context, s *rounds.Sample) error {
			added += int64(s.Ops)
			if a, _ := p.state(); a != added {
				return rounds.Wrong("the variable is %d after %d additions", a, added)
			}
			if n := runs.Load(); n < int64(s.Ops) {
				return rounds.Wrong("the function ran %d times for %d commits", n, s.Ops)
			}
			return nil
		},
	}
}
