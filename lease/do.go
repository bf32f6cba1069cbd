package lease

import (
	"context"
	"errors"
	"time"
)

// releaseWait bounds the release after the function of Do or Lead, whose own
// context may have ended long before.
const releaseWait = 5 * time.Second

// Do waits for a lease and runs fn while it is held and renewed. The context
// that fn gets ends with ctx, and with the lease, whichever is first; fn must
// then return, and where it writes it should pass on h.Token.
//
// Do returns fn's error, joined with the cause of the loss when the lease was
// lost, so that nil means: fn succeeded and the lease was held throughout. When
// the lease could not be had, fn is not run and the error is Acquire's. The lease
// is released when fn returns, panics or calls runtime.Goexit, also when ctx has
// ended; a release whose answer is lost is only logged, since the hold then ends
// with its ttl and fn's work was done under it.
func (c *Client) Do(ctx context.Context, r Request, fn func(ctx context.Context, h *Held) error) error {
	h, err := c.hold(ctx, ctx, r)
	if err != nil {
		return err
	}
	loss, err := h.during(fn)
	return joinLoss(err, loss)
}

// during runs fn and releases, and returns what was lost and what fn said.
func (h *Held) during(fn func(ctx context.Context, h *Held) error) (loss, err error) {
	defer func() { loss = h.finish() }()
	return nil, fn(h.ctx, h)
}

// finish releases after fn, and returns how the lease was lost if it was.
func (h *Held) finish() error {
	ctx, stop := context.WithTimeout(context.WithoutCancel(h.ctx), releaseWait)
	defer stop()
	err := h.Release(ctx)
	if err == nil || h.lossOf() != nil || lossBy(err) != "" {
		return err
	}
	h.c.log.Warn("lease: release not confirmed, it is sent again when the service answers", "key", h.key, "error", err)
	return nil
}

func joinLoss(err, loss error) error {
	switch {
	case loss == nil:
		return err
	case err == nil || errors.Is(err, loss):
		return loss
	}
	return errors.Join(err, loss)
}

// Lead stands for election on a key and runs fn while this process leads: Do,
// again after every loss. It waits its turn in the queue of the key, so leaders
// follow each other in order of arrival.
//
// It returns when fn returns without the lease being lost: nil is a resignation,
// an error is passed on. When the lease is lost, fn's context ends with the
// cause; Lead waits for fn to return, whatever it returns then, and stands
// again. It also stands again when its place in the queue was lost with its
// session. It returns the error of Acquire when ctx ends while it waits or the
// request is refused, and ErrClosed when the client is closed.
//
// Each term is a request of its own: r.ID must be empty.
func (c *Client) Lead(ctx context.Context, r Request, fn func(ctx context.Context, h *Held) error) error {
	if r.ID != "" {
		return Refuse("id: each term of Lead needs an id of its own; leave it empty")
	}
	for {
		h, err := c.hold(ctx, ctx, r)
		if CodeOf(err) == ErrSessionLost || CodeOf(err) == ErrExpired {
			continue // nothing was held, and the place in the queue is gone
		}
		if err != nil {
			return err
		}
		loss, err := h.during(fn)
		if loss == nil {
			return err
		}
		if CodeOf(loss) == ErrClosed {
			return joinLoss(err, loss)
		}
		c.log.Warn("lease: leadership lost, standing again", "key", h.key, "loss", loss, "error", err)
	}
}
