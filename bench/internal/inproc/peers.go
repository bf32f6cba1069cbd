package inproc

import astm "github.com/anacrolix/stm"

func peers() []Subject {
	const peer = "anacrolix/stm"
	return []Subject{
		{Labels: label(peer+" AtomicGet", peer, peer, peer), New: newAnacrolix},
	}
}

func newAnacrolix(int) (Thing, error) {
	r, n := astm.NewVar(begin()), astm.NewVar(int64(0))
	replace := astm.VoidOperation(func(tx *astm.Tx) { r.Set(tx, next(r.Get(tx))) })
	add := astm.VoidOperation(func(tx *astm.Tx) { n.Set(tx, n.Get(tx)+1) })
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read:  func() Record { return *astm.AtomicGet(r) },
				Write: func() { astm.Atomically(replace) },
				Add:   func() { astm.Atomically(add) },
			}
		},
		State: func(int) (Record, int64) { return *astm.AtomicGet(r), astm.AtomicGet(n) },
	}, nil
}
