package inproc

import (
	"context"

	"github.com/latchkey-go/latchkey/stm"
)

func ours() []Subject {
	const within = "stm Atomically with Add"
	all := []Subject{
		{Labels: label(stmLoad, stmWrite, "stm.Var Load, Atomically", stmAdd), New: newSTM},
		{Labels: label(stmView, "", "", within), New: newTransactions},
	}
	return append(append(all, oursLocked()...), oursActor()...)
}

func newSTM(int) (Thing, error) {
	x := &struct {
		_ apart
		r stm.Var[Record]
		_ apart
		n stm.Var[int64]
		_ apart
	}{}
	t := new(trouble)
	ctx := context.Background()
	err := stm.Atomically(ctx, func(tx stm.Tx) error { x.r.Set(tx, *begin()); return nil })
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read: x.r.Load,
				Write: func() {
					t.note(stm.Atomically(ctx, func(tx stm.Tx) error {
						x.r.Set(tx, after(x.r.Get(tx)))
						return nil
					}))
				},
				Add: func() { stm.AddNow(&x.n, 1) },
			}
		},
		State: func(int) (Record, int64) { return x.r.Load(), x.n.Load() },
		Err:   t.err,
	}, err
}

// newTransactions is what newSTM does by shorter ways: reading by a snapshot, here of
// two variables, and adding by a transaction.
func newTransactions(int) (Thing, error) {
	a, b, n := stm.NewVar(*begin()), stm.NewVar(*begin()), stm.NewVar(int64(0))
	t := new(trouble)
	ctx := context.Background()
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read: func() Record {
					var left, right Record
					t.note(stm.View(ctx, func(tx stm.Tx) error {
						left, right = a.Get(tx), b.Get(tx)
						return nil
					}))
					return Record{Seq: left.Seq, Twin: right.Twin, Status: left.Status}
				},
				Add: func() {
					t.note(stm.Atomically(ctx, func(tx stm.Tx) error {
						stm.Add(tx, n, 1)
						return nil
					}))
				},
			}
		},
		State: func(int) (Record, int64) { return a.Load(), n.Load() },
		Err:   t.err,
	}, nil
}
