package main

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// keysHeld shows that what is held does not slow down what moves.
func keysHeld() row {
	r := row{name: "held", title: "Lock and unlock by 64 callers, in memory, with 100 000 other keys held, against none held"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const empty = "latchkey, none held"
		n := e.dose(100_000)
		full, err := e.startBroker(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		if _, err := full.keepKeys(ctx, e, n); err != nil {
			return nil, nil, err
		}
		bare, err := e.startBroker(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		f, err := full.lockers(ctx, e, many)
		if err != nil {
			return nil, nil, err
		}
		if f.before.Holds != n {
			return nil, nil, rounds.Wrong("the broker holds %d keys, not %d", f.before.Holds, n)
		}
		b, err := bare.lockers(ctx, e, many)
		if err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{f.arm(ours, fmt.Sprintf(", %d keys held over another connection", n)), b.arm(empty, "")},
			Ours: ours, Peer: empty, Value: rounds.Rate, Unit: "pairs/s",
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "rate, of that with no key held", Unit: "×", Got: res.Worse, Reach: 0.85}}, nil
	}
	return r
}
