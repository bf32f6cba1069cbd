package hotcacheredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// ready refuses a call before it does anything: the node is closed, the key is none, or the context has ended.
func (n *Node) ready(ctx context.Context, key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: the key is empty", hotcache.ErrInvalid)
	case len(key) > hotcache.MaxKey:
		return fmt.Errorf("%w: the key has %d bytes, at most %d", hotcache.ErrTooLarge, len(key), hotcache.MaxKey)
	}
	return n.open(ctx)
}

func (n *Node) open(ctx context.Context) error {
	if n.closed.Load() {
		return hotcache.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return &endedBefore{err}
	}
	return nil
}

func (n *Node) about(sc script, key string, args ...string) call {
	return n.call(sc, n.trusted(), n.keys.item(key), n.keys.load(key), args...)
}

// Ask implements [hotcache.Node].
func (n *Node) Ask(ctx context.Context, q hotcache.Ask) (hotcache.Answer, error) {
	a, err := n.ask(ctx, q)
	return a, describe(err, "ask for", q.Key)
}

func (n *Node) ask(ctx context.Context, q hotcache.Ask) (hotcache.Answer, error) {
	if err := n.ready(ctx, q.Key); err != nil {
		return hotcache.Answer{}, err
	}
	if q.Min == 0 {
		return n.look(ctx, q)
	}
	return n.alone(ctx, q)
}

// alone asks for one key with a script of its own.
func (n *Node) alone(ctx context.Context, q hotcache.Ask) (hotcache.Answer, error) {
	m, err := n.run(ctx, n.about(n.scripts.ask, q.Key, q.Key, redistext.Hex16(uint64(q.Min)), redistext.Hex16(uint64(q.Token)),
		millis(n.o.Rules.LeaseTTL)))
	if err != nil {
		return hotcache.Answer{}, err
	}
	return n.parseAnswer(m, q.Token)
}

// parseAnswer reads what lua/ask.lua, or lua/first.lua, returns.
func (n *Node) parseAnswer(m rueidis.RedisMessage, token hotcache.Token) (hotcache.Answer, error) {
	r := reply(m)
	var a hotcache.Answer
	switch r.text(0) {
	case "h":
		a.State = core.Hit
	case "l":
		a.State = core.Lease
	case "b":
		a.State = core.Busy
	case "f":
		a.State = core.Failed
	case "m":
		a.State = core.Miss
	default:
		return hotcache.Answer{}, errMalformed
	}
	a.Stamp = r.stamp(1, n.o.version)
	if r.has(2) {
		now := &fields{redistext.Fields{Rest: r.text(3)}}
		rec, err := parseRecord(r.text(2), n.o.version)
		if err != nil {
			return hotcache.Answer{}, err
		}
		a.Item, a.Times = &rec.item, rec.times(now.moment(now.Rest))
		r.bad = r.bad || now.Bad
	} else if a.State == core.Hit {
		return hotcache.Answer{}, errMalformed
	}
	if len(r.parts) > 4 {
		if a.Min = hotcache.Version(r.hex(4)); a.State == core.Lease || a.Min != 0 {
			a.Token, a.Floor = token, hotcache.Version(r.hex(5))
		}
		a.Retry = time.Duration(r.number(6)) * time.Millisecond
		a.Why = r.text(7)
	}
	if a.State == core.Busy || a.State == core.Failed {
		a.Retry = max(a.Retry, time.Millisecond)
	}
	return a, r.err()
}

// Fill implements [hotcache.Node].
func (n *Node) Fill(ctx context.Context, f hotcache.Fill) (hotcache.Filled, error) {
	r, err := n.fill(ctx, f)
	return r, describe(err, "fill", f.Key)
}

func (n *Node) fill(ctx context.Context, f hotcache.Fill) (hotcache.Filled, error) {
	if err := n.ready(ctx, f.Key); err != nil {
		return hotcache.Filled{}, err
	}
	data, err := words(f.Item, f.Times)
	if err != nil {
		return hotcache.Filled{}, err
	}
	m, err := n.run(ctx, n.about(n.scripts.fill, f.Key, append([]string{f.Key, redistext.Hex16(uint64(f.Token))}, data...)...))
	if err != nil {
		return hotcache.Filled{}, err
	}
	r := reply(m)
	out := hotcache.Filled{Stamp: r.stamp(1, n.o.version), Floor: hotcache.Version(r.hex(2))}
	switch r.text(0) {
	case "s":
		out.Refusal = core.Stored
	case "l":
		out.Refusal = core.LostLease
	case "o":
		out.Refusal = core.Outdated
	default:
		return hotcache.Filled{}, errMalformed
	}
	return out, r.err()
}

// words are the arguments that say what is to be stored.
func words(item hotcache.Item, t hotcache.Times) ([]string, error) {
	switch {
	case len(item.Data) > hotcache.MaxValue:
		return nil, fmt.Errorf("%w: the value has %d bytes, at most %d", hotcache.ErrTooLarge, len(item.Data), hotcache.MaxValue)
	case item.Absent && len(item.Data) > 0:
		return nil, fmt.Errorf("%w: a row that does not exist has no data", hotcache.ErrInvalid)
	}
	absent := "0"
	if item.Absent {
		absent = "1"
	}
	return []string{redistext.Hex16(uint64(item.Version)), absent, micros(t.Soft), micros(t.Hard), micros(t.Keep),
		rueidis.BinaryString(item.Data)}, nil
}

// Renew implements [hotcache.Node].
func (n *Node) Renew(ctx context.Context, key string, t hotcache.Token) (bool, error) {
	if err := n.ready(ctx, key); err != nil {
		return false, describe(err, "renew the lease of", key)
	}
	m, err := n.run(ctx, n.about(n.scripts.renew, key, redistext.Hex16(uint64(t)), millis(n.o.Rules.LeaseTTL)))
	if err != nil {
		return false, describe(err, "renew the lease of", key)
	}
	held, err := m.AsInt64()
	return held == 1, describe(err, "renew the lease of", key)
}

// Fail implements [hotcache.Node].
func (n *Node) Fail(ctx context.Context, key string, t hotcache.Token, why string, pause time.Duration) error {
	err := n.ready(ctx, key)
	if err == nil {
		_, err = n.run(ctx, n.about(n.scripts.fail, key, key, redistext.Hex16(uint64(t)), core.Shortened(why), millis(pause)))
	}
	return describe(err, "fail", key)
}

// Invalidate implements [hotcache.Node]. Among the members may be one that nobody is: the server has forgotten some.
func (n *Node) Invalidate(ctx context.Context, key string, v hotcache.Version, by hotcache.Member) (hotcache.Invalidation, []hotcache.Member, error) {
	inv, members, err := n.invalidate(ctx, key, v, by)
	if err != nil { // a cache names the key, as people read it
		err = fmt.Errorf("hotcacheredis: invalidate: %w", translated(err))
	}
	return inv, members, err
}

func (n *Node) invalidate(ctx context.Context, key string, v hotcache.Version, by hotcache.Member) (inv hotcache.Invalidation, members []hotcache.Member, err error) {
	if err := n.ready(ctx, key); err != nil {
		return inv, nil, err
	}
	if by != "" {
		if err := checkMember(by); err != nil {
			return inv, nil, err
		}
	}
	m, err := n.run(ctx, n.about(n.scripts.invalidate, key, key, redistext.Hex16(uint64(v)), string(by), redistext.Hex16(redistext.Random()),
		fmt.Sprint(n.o.Rules.MaxFloors)))
	if err != nil {
		return inv, nil, err
	}
	r := reply(m)
	inv.Key, inv.Version = key, v
	inv.Generation, inv.Number, inv.Nonce, inv.Prev = r.hex(0), r.number(1), r.hex(2), r.hex(3)
	for i := 4; i < len(r.parts); i++ {
		members = append(members, hotcache.Member(r.text(i)))
	}
	return inv, members, r.err()
}
