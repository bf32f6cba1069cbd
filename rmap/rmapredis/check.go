package rmapredis

import (
	"context"
	"fmt"
	"strconv"
	"time"

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

// checkWrite refuses what breaks a limit or a rule, whatever is in the map.
func checkWrite(w *rmap.Write) error {
	if n := len(w.If) + len(w.Ops); n > rmap.MaxOps {
		return fmt.Errorf("%w: %d conditions and operations, at most %d (MaxOps)", rmap.ErrTooLarge, n, rmap.MaxOps)
	}
	if l := w.Lifetime; l != nil {
		if err := checkTTL(l.TTL); err != nil {
			return err
		}
	}
	size := 0
	for i := range w.If {
		c := &w.If[i]
		if err := checkCondition(c); err != nil {
			return fmt.Errorf("condition %d on key %s: %w", i+1, quoted(c.Key), err)
		}
		size += len(c.Key) + len(c.Value.Data)
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		if err := checkOp(op); err != nil {
			return fmt.Errorf("operation %d on key %s: %w", i+1, quoted(op.Key), err)
		}
		size += len(op.Key) + len(op.Value.Data) + total(op.Items)
	}
	if size > rmap.MaxWrite {
		return fmt.Errorf("%w: %d bytes of keys and values, at most %d (MaxWrite)", rmap.ErrTooLarge, size, rmap.MaxWrite)
	}
	return nil
}

func checkCondition(c *rmap.Condition) error {
	if err := checkKey(c.Key); err != nil {
		return err
	}
	switch c.Test {
	case rmap.IsAbsent, rmap.IsPresent, rmap.HasNonce:
		return nil
	case rmap.HasValue:
		return checkSize(len(c.Value.Data))
	}
	return fmt.Errorf("%w: there is no test %d", rmap.ErrInvalid, c.Test)
}

func checkOp(op *rmap.Op) error {
	var err error
	switch op.Do {
	case rmap.DoClear, rmap.DoDestroy:
		if op.Key != "" {
			return fmt.Errorf("%w: an operation on the whole map has no key", rmap.ErrInvalid)
		}
		return nil
	case rmap.DoDelete, rmap.DoExpire:
		return checkKey(op.Key)
	case rmap.DoSet:
		err = checkValue(op.Value)
	case rmap.DoAdd:
	case rmap.DoAppend, rmap.DoAppendUnique, rmap.DoRemove:
		err = checkSize(total(op.Items))
	default:
		err = fmt.Errorf("%w: there is no action %q", rmap.ErrInvalid, byte(op.Do))
	}
	if err != nil {
		return err
	}
	if err := checkTTL(op.TTL); err != nil {
		return err
	}
	return checkKey(op.Key)
}

func total(items []string) int {
	n := 0
	for _, item := range items {
		n += len(item)
	}
	return n
}

func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: the key is empty", rmap.ErrInvalid)
	}
	if len(key) > rmap.MaxKey {
		return fmt.Errorf("%w: the key has %d bytes, at most %d (MaxKey)", rmap.ErrTooLarge, len(key), rmap.MaxKey)
	}
	return nil
}

func checkSize(n int) error {
	if n > rmap.MaxValue {
		return fmt.Errorf("%w: the value has %d bytes, at most %d (MaxValue)", rmap.ErrTooLarge, n, rmap.MaxValue)
	}
	return nil
}

// checkValue refuses a value that is not what its kind says, on which later operations would fail.
func checkValue(v rmap.Value) error {
	switch v.Kind {
	case rmap.Plain:
	case rmap.Integer:
		if n, err := strconv.ParseInt(v.Data, 10, 64); err != nil || strconv.FormatInt(n, 10) != v.Data {
			return fmt.Errorf("%w: the value is not the decimal text of an int64", rmap.ErrInvalid)
		}
	case rmap.List:
		if _, err := rmap.DecodeList(v.Data); err != nil {
			return fmt.Errorf("%w: %w", rmap.ErrInvalid, err)
		}
	default:
		return fmt.Errorf("%w: there is no kind %q of values", rmap.ErrInvalid, byte(v.Kind))
	}
	return checkSize(len(v.Data))
}

func checkTTL(d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%w: the ttl is negative", rmap.ErrInvalid)
	case d > 0 && d < rmap.MinTTL:
		return fmt.Errorf("%w: the ttl %v is below %v (MinTTL)", rmap.ErrInvalid, d, rmap.MinTTL)
	case d > rmap.MaxTTL:
		return fmt.Errorf("%w: the ttl %v is over %v (MaxTTL)", rmap.ErrTooLarge, d, rmap.MaxTTL)
	}
	return nil
}
