package rmapredis

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/rmap"
)

// ready refuses a call before it does anything: the store is closed, the name is none, or the context has ended.
func (s *Store) ready(ctx context.Context, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("rmapredis: %w: the name of the map is empty", rmap.ErrInvalid)
	case len(name) > rmap.MaxName:
		return fmt.Errorf("rmapredis: %w: the name of the map has %d bytes, at most %d (MaxName)", rmap.ErrTooLarge,
			len(name), rmap.MaxName)
	case s.closed.Load():
		return fmt.Errorf("rmapredis: map %q: store is %w", name, rmap.ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("rmapredis: map %q: not begun: %w", name, err)
	}
	return nil
}
