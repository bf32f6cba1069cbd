package lease

import (
	"context"
	"iter"
	"sync"
)

// eventBuffer is how many events wait for a reader of Events before some are
// dropped.
const eventBuffer = 1024

// Events watches the selected keys as a sequence. A reader that falls more than
// 1024 events behind gets what was buffered, then one EventGap in place of what
// was dropped, and should list again. The sequence ends when ctx does, with one
// last pair whose error wraps its cause; or at once with the error of Watch.
func Events(ctx context.Context, svc Service, q Query) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		b := &buffer{more: make(chan struct{}, 1)}
		stop, err := svc.Watch(ctx, q, b.put)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer stop()
		for {
			e, ok := b.take()
			if ok {
				if !yield(e, nil) {
					return
				}
				continue
			}
			select {
			case <-b.more:
			case <-ctx.Done():
				yield(Event{}, &Error{Code: ErrCancelled, Op: "watch", Cause: context.Cause(ctx)})
				return
			}
		}
	}
}

// buffer passes events from the service's loop, which must not block, to the
// reader.
type buffer struct {
	more chan struct{} // capacity one: something was put since the last look

	mu     sync.Mutex // guards the fields below
	events []Event
	gap    bool // events were dropped after those in the buffer
}

func (b *buffer) put(e Event) {
	b.mu.Lock()
	switch {
	case b.gap: // dropped until the reader has seen the gap
	case len(b.events) < eventBuffer:
		b.events = append(b.events, e)
	default:
		b.gap = true
	}
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *buffer) take() (Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) > 0 {
		e := b.events[0]
		b.events = b.events[1:]
		return e, true
	}
	if b.gap {
		b.gap = false
		return Event{Kind: EventGap}, true
	}
	b.events = nil
	return Event{}, false
}
