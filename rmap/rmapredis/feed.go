package rmapredis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

// Follow implements [rmap.Store]. The follower is called by the goroutine that reads the connection, for all maps of
// the store: it has to be quick.
func (s *Store) Follow(name string, f rmap.Follower) (rmap.Feed, error) {
	if err := s.ready(context.Background(), name); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("rmapredis: follow map %q: %w: nobody to tell: the follower is nil", name, rmap.ErrInvalid)
	}
	sub, err := s.hub.Subscribe(s.channel(name), &receiver{store: s, name: name, to: f})
	if err != nil {
		return nil, fmt.Errorf("rmapredis: follow map %q: %w", name, feedError(err))
	}
	return &feed{store: s, name: name, sub: sub}, nil
}

// A receiver turns messages into changes.
type receiver struct {
	store *Store
	name  string
	to    rmap.Follower
}

func (r *receiver) Up() { r.to.Up() }

func (r *receiver) Message(text string) {
	ch, err := parseMessage(text, r.store.o.version)
	if err != nil {
		r.to.Unreadable(fmt.Errorf("rmapredis: message of map %q: %w", r.name, foreign(err)))
		return
	}
	r.to.Changed(ch)
}

func (r *receiver) Down(why error) {
	r.to.Down(fmt.Errorf("rmapredis: map %q: %w: %w", r.name, rmap.ErrUnavailable, why))
}

// A feed is one subscription.
type feed struct {
	store *Store
	name  string
	sub   *redisfeed.Subscription
}

// Close implements [rmap.Feed].
func (f *feed) Close() { f.sub.Close() }

// Head implements [rmap.Feed]. It asks over the connection that the changes come on, so that those before are there.
func (f *feed) Head(ctx context.Context) (rmap.Head, error) {
	if err := f.store.ready(ctx, f.name); err != nil {
		return rmap.Head{}, err
	}
	head, err := f.head(ctx)
	if errors.Is(err, errNoHeader) {
		// It could have ended, and begun, between two of the questions. Twice in a row it does not.
		head, err = f.head(ctx)
	}
	if err != nil {
		return rmap.Head{}, fmt.Errorf("rmapredis: head of map %q: %w", f.name, err)
	}
	return head, nil
}

var errNoHeader = fmt.Errorf("%w: a hash without a header", rmap.ErrForeign)

func (f *feed) head(ctx context.Context) (rmap.Head, error) {
	key, b := f.store.hash(f.name), f.sub.B()
	answers, err := f.sub.Do(ctx, b.Hlen().Key(key).Build(), b.Hget().Key(key).Field("").Build(), b.Time().Build())
	if err != nil {
		return rmap.Head{}, feedError(err)
	}
	size, err := answers[0].AsInt64()
	if err != nil {
		return rmap.Head{}, f.store.unread(err)
	}
	now, err := redistext.Micros(answers[2])
	if err != nil {
		return rmap.Head{}, f.store.unread(err)
	}
	now /= 1000 // a map counts milliseconds
	text, err := answers[1].ToString()
	switch {
	case rueidis.IsRedisNil(err) && size > 0:
		return rmap.Head{}, errNoHeader
	case rueidis.IsRedisNil(err):
		return rmap.Head{Now: now}, nil
	case err != nil:
		return rmap.Head{}, f.store.unread(err)
	}
	head, err := parseHeader(text, f.store.o.version)
	if err != nil {
		return rmap.Head{}, foreign(err)
	}
	if head.Expires > 0 && head.Expires <= now {
		return rmap.Head{Now: now}, nil // it had a single millisecond
	}
	head.Now = now
	return head, nil
}
