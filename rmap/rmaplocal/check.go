package rmaplocal

import (
	"context"
	"fmt"
	"strconv"

	"github.com/latchkey-go/latchkey/rmap"
)

// ready refuses a call before it does anything: its context has ended, or the name is none.
func ready(ctx context.Context, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("rmaplocal: %w: the name of the map is empty", rmap.ErrInvalid)
	case len(name) > rmap.MaxName:
		return fmt.Errorf("rmaplocal: %w: the name of the map has %d bytes, at most %d (MaxName)", rmap.ErrTooLarge,
			len(name), rmap.MaxName)
	}
	if err := ended(ctx); err != nil {
		return fmt.Errorf("rmaplocal: map %q: %w", name, err)
	}
	return nil
}

// ended returns the error of a context that has ended. What was not begun for that was not applied.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("not begun: %w", err)
	}
	return nil
}

// quoted names a key in an error, shortened: it may be as long as MaxKey.
func quoted(key string) string {
	const most = 64
	if len(key) > most {
		return strconv.Quote(key[:most]) + "..."
	}
	return strconv.Quote(key)
}
