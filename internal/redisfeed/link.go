package redisfeed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// A link is one connection from its first command to its end.
type link struct {
	hub   *Hub
	conn  rueidis.DedicatedClient
	ended <-chan error // gives the reason when the client's reader has ended: no message comes after it
	// over is set before anybody is told that the link has ended. What comes later is not handed over, and an answer
	// that comes later says nothing about what was.
	over       atomic.Bool
	subscribed map[string]bool // channels that the server has confirmed; the owner's alone

	waiting   atomic.Int64 // commands that somebody waits for
	abandoned atomic.Int64 // commands that nobody waits for any more, but that still occupy the client's queue
}

func newLink(h *Hub, conn rueidis.DedicatedClient) *link {
	l := &link{hub: h, conn: conn, subscribed: make(map[string]bool)}
	l.ended = conn.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) {
			for _, s := range h.of(m.Channel) {
				s.message(l, m.Message)
			}
		},
		// The confirmation is handled where messages are, so that Up has its place among them.
		OnSubscription: func(m rueidis.PubSubSubscription) {
			if m.Kind != "subscribe" {
				return
			}
			for _, s := range h.of(m.Channel) {
				s.up(l)
			}
		},
	})
	return l
}

// do is [Subscription.Do] on this link.
func (l *link) do(ctx context.Context, commands ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	defer l.waiting.Add(-1)
	if l.waiting.Add(1)+l.abandoned.Load() > MaxPending {
		return nil, fmt.Errorf("%w commands wait for answers: the limit is %d", ErrTooMany, MaxPending)
	}
	limited, cancel := context.WithTimeout(ctx, l.hub.o.Timeout)
	defer cancel()
	out := l.conn.DoMulti(limited, commands...)
	if l.over.Load() {
		return nil, fmt.Errorf("%w: %w", ErrDown, l.hub.reason())
	}
	for _, r := range out {
		err := r.NonRedisError()
		if err == nil {
			continue
		}
		if limited.Err() != nil {
			l.abandoned.Add(1)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", ErrDown, err)
	}
	return out, nil
}

// ask sends a PING behind the given commands and returns what the server said to those. An error means that the link
// is of no use any more. Any answer to the PING will do, a refusal too: it was read from the connection.
func (l *link) ask(ctx context.Context, commands ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	// Redis answers in order: with the PING's answer, those of all commands that were abandoned before it have come.
	flushed := l.abandoned.Load()
	limited, cancel := context.WithTimeout(ctx, l.hub.o.Timeout)
	defer cancel()
	commands = append(commands, l.conn.B().Ping().Build())
	out := l.conn.DoMulti(limited, commands...)
	for _, r := range out {
		err := r.NonRedisError()
		switch {
		case err == nil:
		case errors.Is(err, rueidis.ErrRESP2PubSubMixed):
			return nil, fmt.Errorf("the client speaks RESP2: leave AlwaysRESP2 and protocol=2 out, and use Redis 6 or later: %w", err)
		case limited.Err() != nil && ctx.Err() == nil:
			return nil, fmt.Errorf("%w within %v", errSilent, l.hub.o.Timeout)
		default:
			return nil, err
		}
	}
	l.abandoned.Add(-flushed)
	return out[:len(out)-1], nil
}

// subscribe asks for channels, each with a command of its own: one that is refused must not take others with it.
func (l *link) subscribe(ctx context.Context, channels []string) error {
	for len(channels) > 0 {
		batch := channels[:min(len(channels), subscribeBatch)]
		channels = channels[len(batch):]
		commands := make([]rueidis.Completed, 0, len(batch)+1)
		for _, c := range batch {
			commands = append(commands, l.conn.B().Subscribe().Channel(c).Build())
		}
		answers, err := l.ask(ctx, commands...)
		if err != nil {
			return err
		}
		for i, a := range answers {
			if err := a.Error(); err != nil {
				l.refused(batch[i], err)
				continue
			}
			l.subscribed[batch[i]] = true
		}
	}
	return nil
}

func (l *link) refused(channel string, err error) {
	l.hub.o.Logger.Warn("redis refuses a subscription", "channel", channel, "error", err)
	for _, s := range l.hub.of(channel) {
		s.refuse(fmt.Errorf("redis refuses to subscribe %q: %w", channel, err))
	}
}

// unsubscribe gives back a channel that nobody wants any more.
func (l *link) unsubscribe(ctx context.Context, channel string) error {
	delete(l.subscribed, channel)
	_, err := l.ask(ctx, l.conn.B().Unsubscribe().Channel(channel).Build())
	return err
}
