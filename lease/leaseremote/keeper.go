package leaseremote

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Pauses between attempts to connect, and what a connection must live for the
// pauses to start small again.
const (
	firstPause  = 20 * time.Millisecond
	longestWait = time.Second
	settledLife = 100 * time.Millisecond
)

var (
	errStopped = errors.New("closed on this side")
	errSilent  = errors.New("the broker answers no ping")
)

// owner is what a keeper keeps a connection for.
type owner interface {
	// greet makes a connection that has exchanged hellos ready for use. It may
	// wait; ctx bounds it.
	greet(ctx context.Context, l *link) error
	// take takes one frame, which is only valid until it returns. An error breaks
	// the connection.
	take(l *link, frame []byte) error
	// pause is called when no frame is left to take without waiting.
	pause(l *link)
	// cut says that the connection broke and whether to make another. While
	// connecting fails it is called again with a nil link.
	cut(l *link, err error) (again bool)
}

// keeper reads one connection, and connects again whenever it breaks until its
// context or its owner ends it. It is one goroutine.
type keeper struct {
	owner    owner
	connect  func(ctx context.Context) (*link, error)
	patience time.Duration // for one attempt to connect
	log      *slog.Logger
}

// run keeps l, which may be nil to begin with connecting.
func (k *keeper) run(ctx context.Context, l *link) {
	wait := time.Duration(0)
	for {
		if l == nil {
			if l, wait = k.reconnect(ctx, wait); l == nil {
				return
			}
		}
		stop := context.AfterFunc(ctx, func() { l.fail(errStopped) })
		since := time.Now()
		err := l.close(k.read(l))
		stop()
		if time.Since(since) >= settledLife {
			wait = 0
		}
		if !k.owner.cut(l, err) {
			return
		}
		l = nil
	}
}

// read takes frames until the connection breaks.
func (k *keeper) read(l *link) error {
	for {
		frame, err := l.next()
		if err != nil {
			return err
		}
		if err := k.owner.take(l, frame); err != nil {
			return err
		}
		if !l.in.Ready() {
			k.owner.pause(l)
		}
	}
}

// reconnect tries until there is a connection, with growing pauses before each
// attempt but the first. It returns the pause to begin with should the new
// connection break at once.
func (k *keeper) reconnect(ctx context.Context, wait time.Duration) (*link, time.Duration) {
	for {
		if !sleep(ctx, jitter(wait)) {
			k.owner.cut(nil, errStopped)
			return nil, 0
		}
		wait = min(max(2*wait, firstPause), longestWait)
		l, err := k.attempt(ctx)
		if err == nil {
			return l, wait
		}
		k.log.Debug("cannot connect to the broker", "error", err, "next", wait)
		if !k.owner.cut(nil, err) {
			return nil, 0
		}
	}
}

func (k *keeper) attempt(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	l, err := k.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := k.owner.greet(ctx, l); err != nil {
		return nil, l.close(err)
	}
	return l, nil
}

// sleep waits, and reports whether ctx still stands.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// jitter takes between half of a pause and all of it, so that the clients of a
// broker that restarts do not come back in step.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d/2 + rand.N(d/2+1)
}
