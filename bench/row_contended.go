package main

import (
	"context"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// contendedMemory is the hand-over of a key to the next in the queue.
func contendedMemory() row {
	r := row{name: "contended-memory", title: "Hand-over of one key among 16 waiters, in memory, against one bare round trip"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		x, err := e.startEcho(ctx)
		if err != nil {
			return nil, nil, err
		}
		return e.handOver(ctx, false, x.arm("one echo round trip", 1),
			rounds.Claim{What: "median hand-over, of one bare round trip", Reach: 1.5})
	}
	return r
}

// contendedDurable is the same when the release and the grant it causes must be
// durable before the next holder is told: one sync for both.
func contendedDurable() row {
	r := row{name: "contended-durable", title: "Hand-over of one key among 16 waiters, synced before every answer, against one bare sync"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		d, err := e.openDisk()
		if err != nil {
			return nil, nil, err
		}
		return e.handOver(ctx, true, d.arm("one fdatasync", 1),
			rounds.Claim{What: "median hand-over, of one fdatasync", Reach: 1.5})
	}
	return r
}

// contendedEtcd is the same against the lock that comes with etcd.
func contendedEtcd() row {
	r := row{name: "contended-etcd", title: "Hand-over of one key among 16 waiters, synced before every answer, against etcd's mutex"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		s, err := e.startEtcd(ctx)
		if err != nil {
			return nil, nil, err
		}
		all, err := s.contenders(ctx, e, waiters)
		if err != nil {
			return nil, nil, err
		}
		c := &contest{
			name: "etcd", setting: "a session each and 1 connection for all, concurrency.Mutex, one member, default settings (synced)",
			pids: []int{s.process.PID()}, contenders: all, agrees: s.agrees,
		}
		return e.handOver(ctx, true, c.arm(), rounds.Claim{What: "median hand-over, of etcd's", Reach: 0.1})
	}
	return r
}

// handOver measures the contest on a broker against a peer. The claim is filled
// with the ratio of the medians.
func (e *env) handOver(ctx context.Context, durable bool, peer rounds.Arm, claim rounds.Claim) (*rounds.Result, []rounds.Claim, error) {
	b, err := e.startBroker(ctx, durable)
	if err != nil {
		return nil, nil, err
	}
	c, err := b.contest(ctx, e, ours)
	if err != nil {
		return nil, nil, err
	}
	res, err := rounds.Run(ctx, rounds.Row{
		Arms: []rounds.Arm{c.arm(), peer}, Ours: ours, Peer: peer.Name, Value: rounds.Median, Unit: "median µs", Smaller: true,
	}, e.rounds)
	if err != nil {
		return nil, nil, err
	}
	claim.Unit, claim.Got, claim.Smaller = "×", res.Worse, true
	return res, []rounds.Claim{claim, c.even()}, nil
}
