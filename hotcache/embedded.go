package hotcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// An Embedded is a node in this process: the home of all keys for a program that is one process, and for tests. Its
// bounds are those of the rules.
type Embedded struct {
	rules Rules
	start time.Time

	mu      sync.Mutex // guards what follows; listeners are called under it, in order
	home    *core.Home
	feeds   []*embeddedFeed
	members map[Member]time.Duration // who may trust its memory, until when
}

// MaxFollowers is how many members may follow one embedded node.
const MaxFollowers = 4096

// NewEmbedded returns an empty node. Zero rules are [DefaultRules].
func NewEmbedded(rules Rules) *Embedded {
	rules = withDefaults(rules)
	e := &Embedded{rules: rules, start: time.Now(), members: map[Member]time.Duration{}}
	e.home = core.NewHome(0, rules, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	return e
}

// DefaultRules returns the rules that a fleet has which says nothing else.
func DefaultRules() Rules { return core.DefaultRules() }

func withDefaults(r Rules) Rules {
	d := core.DefaultRules()
	for _, f := range []struct{ of, is *time.Duration }{{&r.LeaseTTL, &d.LeaseTTL}, {&r.FloorTTL, &d.FloorTTL}} {
		if *f.of <= 0 {
			*f.of = *f.is
		}
	}
	for _, f := range []struct{ of, is *int }{{&r.MaxFloors, &d.MaxFloors}, {&r.MaxItems, &d.MaxItems}, {&r.MaxBytes, &d.MaxBytes}} {
		if *f.of <= 0 {
			*f.of = *f.is
		}
	}
	return r
}

func (e *Embedded) now() time.Duration { return time.Since(e.start) }

// Ask implements [Node].
func (e *Embedded) Ask(ctx context.Context, q Ask) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.home.Ask(e.now(), q), nil
}

// Fill implements [Node].
func (e *Embedded) Fill(ctx context.Context, f Fill) (Filled, error) {
	if err := ctx.Err(); err != nil {
		return Filled{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r, wake := e.home.Fill(e.now(), f)
	e.wake(f.Key, wake)
	return r, nil
}

// Renew implements [Node].
func (e *Embedded) Renew(ctx context.Context, key string, t Token) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.home.Renew(e.now(), key, t), nil
}

// Fail implements [Node].
func (e *Embedded) Fail(ctx context.Context, key string, t Token, why string, pause time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wake(key, e.home.Fail(e.now(), key, t, why, pause))
	return nil
}

func (e *Embedded) wake(key string, somebody bool) {
	if somebody {
		for _, f := range e.feeds {
			f.to.Woken(key)
		}
	}
}

// Invalidate implements [Node].
func (e *Embedded) Invalidate(ctx context.Context, key string, v Version, by Member) (Invalidation, []Member, error) {
	if err := ctx.Err(); err != nil {
		return Invalidation{}, nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	inv, _ := e.home.Invalidate(now, key, v) // whoever waits for the key learns of it by the invalidation itself
	for _, f := range e.feeds {
		f.to.Invalidated(inv, by)
	}
	var wait []Member
	for m, until := range e.members {
		switch {
		case until <= now:
			delete(e.members, m)
		case m != by:
			wait = append(wait, m)
		}
	}
	return inv, wait, nil
}

// GetCopy implements [Node].
func (e *Embedded) GetCopy(ctx context.Context, key string) (*Copy, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c, ok := e.home.GetCopy(e.now(), key); ok {
		return &c, nil
	}
	return nil, nil
}

// PutCopy implements [Node].
func (e *Embedded) PutCopy(ctx context.Context, key string, c Copy) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.home.PutCopy(e.now(), key, c)
	return nil
}

// Follow implements [Node].
func (e *Embedded) Follow(as Member, l Listener) (Feed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.feeds) >= MaxFollowers {
		return nil, fmt.Errorf("hotcache: an embedded node has %d followers already", MaxFollowers)
	}
	f := &embeddedFeed{node: e, as: as, to: l}
	e.feeds = append(slices.Clip(e.feeds), f)
	l.Up()
	return f, nil
}

type embeddedFeed struct {
	node *Embedded
	as   Member
	to   Listener
	over bool // guarded by the node's mutex
}

// Beat implements [Feed].
func (f *embeddedFeed) Beat(ctx context.Context, trust time.Duration) (Position, error) {
	if err := ctx.Err(); err != nil {
		return Position{}, err
	}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if f.over {
		return Position{}, ErrClosed
	}
	f.node.members[f.as] = f.node.now() + trust
	return f.node.home.At(), nil
}

// Tell implements [Feed].
func (f *embeddedFeed) Tell(ctx context.Context, to Member, text string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	for _, other := range f.node.feeds {
		if to == Everybody || other.as == to {
			other.to.Told(text)
		}
	}
	return nil
}

// Close implements [Feed].
func (f *embeddedFeed) Close() {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.feeds = slices.DeleteFunc(slices.Clone(f.node.feeds), func(o *embeddedFeed) bool { return o == f })
	delete(f.node.members, f.as)
	f.over = true
}
