package redisfeed

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"
)

// A Subscription is one receiver of one channel.
type Subscription struct {
	hub     *Hub
	channel string
	to      Receiver

	mu      sync.Mutex // guards what follows, and is held while the receiver is called: one call at a time
	on      *link      // the connection on which it stands; nil while it is down
	refused error      // what the server answered the last attempt with
	closed  bool
}

// Close ends the subscription. When it has returned, the receiver is not called any more. It waits for a call that is
// running, so it must not be called by the receiver, nor while holding what the receiver waits for.
func (s *Subscription) Close() {
	s.end()
	s.hub.forget(s)
}

func (s *Subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.on = true, nil
}

// Do sends commands over the connection on which the subscription stands, without others in between, and returns their
// answers. Everything that was published before the answers were computed has been handed to the receiver when it
// returns. It takes no longer than the hub's Timeout, and fails with an error that wraps [ErrDown] when the
// subscription does not stand, or ended meanwhile; an answer that is an error of the server is in the results.
//
// Commands that change data may have been applied when it fails.
func (s *Subscription) Do(ctx context.Context, commands ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	l, closed, refused := s.on, s.closed, s.refused
	s.mu.Unlock()
	if l == nil {
		switch {
		case closed:
			return nil, fmt.Errorf("redisfeed: channel %q: subscription is %w", s.channel, ErrClosed)
		case refused != nil:
			return nil, fmt.Errorf("redisfeed: channel %q: %w: %w", s.channel, ErrDown, refused)
		}
		return nil, fmt.Errorf("redisfeed: channel %q: %w: %w", s.channel, ErrDown, s.hub.reason())
	}
	out, err := l.do(ctx, commands...)
	if err != nil {
		return nil, fmt.Errorf("redisfeed: channel %q: %w", s.channel, err)
	}
	return out, nil
}

// B builds commands for [Subscription.Do].
func (s *Subscription) B() rueidis.Builder { return s.hub.client.B() }

// up is called when the server has confirmed the channel on l.
func (s *Subscription) up(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.on == l || l.over.Load() {
		return
	}
	s.on, s.refused = l, nil
	s.to.Up()
}

func (s *Subscription) message(l *link, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on == l && !s.closed {
		s.to.Message(text)
	}
}

// down is called when l has ended.
func (s *Subscription) down(l *link, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != l || s.closed {
		return
	}
	s.on = nil
	s.to.Down(why)
}

// refuse is called when the server does not allow the channel. The same answer twice is told once.
func (s *Subscription) refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.on != nil || (s.refused != nil && s.refused.Error() == why.Error()) {
		return
	}
	s.refused = why
	s.to.Down(why)
}
