package hotcacheredis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// describe says what failed.
func describe(err error, what, key string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("hotcacheredis: %s key %s: %w", what, redistext.Quoted(key), translated(err))
}

// notAway is what is not wrong with the server. Of a time limit it is not known whose it is; but when a question was asked
// and not answered in time the server is to be called away, whoever waited.
var notAway = []error{hotcache.ErrClosed, hotcache.ErrInvalid, hotcache.ErrTooLarge, ErrForeign, ErrFormat, errMalformed, context.Canceled}

// An endedBefore is the error of a context that had ended before anything was asked.
type endedBefore struct{ error }

func (e *endedBefore) Unwrap() error { return e.error }

// translated says what an error means, of the server or of the way to it.
func translated(err error) error {
	reply := (*rueidis.RedisError)(nil)
	if !errors.As(err, &reply) {
		switch {
		case errors.Is(err, redisfeed.ErrClosed), errors.Is(err, rueidis.ErrClosing):
			return fmt.Errorf("%w: %w", hotcache.ErrClosed, err)
		case errors.Is(err, redisfeed.ErrInvalid):
			return fmt.Errorf("%w: %w", hotcache.ErrInvalid, err)
		case errors.Is(err, redisfeed.ErrTooMany):
			return fmt.Errorf("%w: %w", hotcache.ErrTooLarge, err)
		}
		for _, other := range notAway {
			if errors.Is(err, other) {
				return err
			}
		}
		if early := (*endedBefore)(nil); errors.As(err, &early) {
			return err
		}
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	text := reply.Error()
	switch word, _, _ := strings.Cut(text, " "); word {
	case "CACHEFORMAT":
		return fmt.Errorf("%w: the cache was written by a newer version: upgrade this process", ErrFormat)
	case "CACHEFOREIGN":
		return fmt.Errorf("%w: what is stored there is something else: take another namespace", ErrForeign)
	case "WRONGTYPE":
		return fmt.Errorf("%w: a key of the cache holds another type of Redis: take another namespace", ErrForeign)
	case "CACHEFULL":
		return fmt.Errorf("%w: %d members trust their memory already", hotcache.ErrTooLarge, MaxMembers)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// dialError translates what is wrong with a server or a client.
func dialError(err error) error {
	reply := (*rueidis.RedisError)(nil)
	switch {
	case errors.As(err, &reply), errors.Is(err, redisfeed.ErrInvalid), errors.Is(err, hotcache.ErrClosed), errors.Is(err, context.Canceled):
		return translated(err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// A replied reads the parts of an answer, and remembers when one was not as it must be.
type replied struct {
	parts []rueidis.RedisMessage
	bad   bool
	why   error
}

func reply(m rueidis.RedisMessage) *replied {
	parts, err := m.ToArray()
	return &replied{parts: parts, bad: err != nil}
}

func (r *replied) err() error {
	switch {
	case r.why != nil:
		return r.why
	case r.bad:
		return fmt.Errorf("the reply of the script: %w", errMalformed)
	}
	return nil
}

func (r *replied) has(i int) bool { return i < len(r.parts) && !r.parts[i].IsNil() }

func (r *replied) text(i int) string {
	if !r.has(i) {
		r.bad = true
		return ""
	}
	text, err := r.parts[i].ToString()
	r.bad = r.bad || err != nil
	return text
}

func (r *replied) hex(i int) uint64 {
	f := &fields{}
	n := f.Hex(r.text(i))
	r.bad = r.bad || f.Bad
	return n
}

// number reads one in decimal, as text or as a number of Redis.
func (r *replied) number(i int) uint64 {
	if !r.has(i) {
		r.bad = true
		return 0
	}
	n, err := r.parts[i].AsUint64()
	r.bad = r.bad || err != nil
	return n
}

// stamp reads a header.
func (r *replied) stamp(i, newest int) hotcache.Stamp {
	p, err := parseHeader(r.text(i), newest)
	if err != nil {
		r.why = err
	}
	return hotcache.Stamp{Generation: p.Generation, Number: p.Number}
}
