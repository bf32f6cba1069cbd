package rmaplocal

import (
	"context"
	"fmt"
	"strconv"
	"time"

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

// checkWrite refuses what breaks a limit or a rule, whatever is in the map, and rounds the lifetime to its grain.
func checkWrite(w *rmap.Write) error {
	if n := len(w.If) + len(w.Ops); n > rmap.MaxOps {
		return fmt.Errorf("%w: %d conditions and operations, at most %d (MaxOps)", rmap.ErrTooLarge, n, rmap.MaxOps)
	}
	if l := w.Lifetime; l != nil {
		if err := checkTTL(l.TTL); err != nil {
			return err
		}
		w.Lifetime = &rmap.Lifetime{TTL: time.Duration(milliseconds(l.TTL)) * time.Millisecond, Sliding: l.Sliding && l.TTL > 0}
	}
	size := 0
	for i, c := range w.If {
		if err := checkCondition(&c); err != nil {
			return fmt.Errorf("condition %d on key %s: %w", i+1, quoted(c.Key), err)
		}
		size += len(c.Key) + len(c.Value.Data)
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		if err := checkOp(op); err != nil {
			return fmt.Errorf("operation %d on key %s: %w", i+1, quoted(op.Key), err)
		}
		size += len(op.Key) + len(op.Value.Data)
		for _, item := range op.Items {
			size += len(item)
		}
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
	switch op.Do {
	case rmap.DoClear, rmap.DoDestroy:
		if op.Key != "" {
			return fmt.Errorf("%w: an operation on the whole map has no key", rmap.ErrInvalid)
		}
		return nil
	case rmap.DoDelete, rmap.DoExpire:
		return checkKey(op.Key)
	case rmap.DoSet:
		if err := checkValue(op.Value); err != nil {
			return err
		}
	case rmap.DoAdd:
	case rmap.DoAppend, rmap.DoAppendUnique, rmap.DoRemove:
		size := 0
		for _, item := range op.Items {
			size += len(item)
		}
		if err := checkSize(size); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: there is no action %q", rmap.ErrInvalid, op.Do)
	}
	if err := checkTTL(op.TTL); err != nil {
		return err
	}
	return checkKey(op.Key)
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

// quoted names a key in an error, shortened: it may be as long as MaxKey.
func quoted(key string) string {
	const most = 64
	if len(key) > most {
		return strconv.Quote(key[:most]) + "..."
	}
	return strconv.Quote(key)
}
