package rmap

import (
	"fmt"
	"strconv"
	"time"
)

// Check refuses, for stores, what breaks a limit or a rule whatever is in the map, and rounds the lifetime up to its
// grain: nothing ends before it was to.
func (w *Write) Check() error {
	if n := len(w.If) + len(w.Ops); n > MaxOps {
		return fmt.Errorf("%w: %d conditions and operations, at most %d (MaxOps)", ErrTooLarge, n, MaxOps)
	}
	if l := w.Lifetime; l != nil {
		if err := checkGrain(l.TTL); err != nil {
			return err
		}
		w.Lifetime = &Lifetime{TTL: time.Duration(Milliseconds(l.TTL)) * time.Millisecond, Sliding: l.Sliding && l.TTL > 0}
	}
	size := 0
	for i := range w.If {
		c := &w.If[i]
		if err := checkCondition(c); err != nil {
			return fmt.Errorf("condition %d on key %s: %w", i+1, quote(c.Key), err)
		}
		size += len(c.Key) + len(c.Value.Data)
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		if err := checkOp(op); err != nil {
			return fmt.Errorf("operation %d on key %s: %w", i+1, quote(op.Key), err)
		}
		size += len(op.Key) + len(op.Value.Data) + total(op.Items)
	}
	if size > MaxWrite {
		return fmt.Errorf("%w: %d bytes of keys and values, at most %d (MaxWrite)", ErrTooLarge, size, MaxWrite)
	}
	return nil
}

// Milliseconds returns a duration in milliseconds, rounded up: nothing ends before it was to.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func total(items []string) int {
	n := 0
	for _, item := range items {
		n += len(item)
	}
	return n
}

func checkCondition(c *Condition) error {
	if err := checkKey(c.Key); err != nil {
		return err
	}
	switch c.Test {
	case IsAbsent, IsPresent, HasNonce:
		return nil
	case HasValue:
		return checkSize(len(c.Value.Data))
	}
	return fmt.Errorf("%w: there is no test %d", ErrInvalid, c.Test)
}

func checkOp(op *Op) error {
	switch op.Do {
	case DoClear, DoDestroy:
		if op.Key != "" {
			return fmt.Errorf("%w: an operation on the whole map has no key", ErrInvalid)
		}
		return nil
	case DoDelete, DoExpire:
		return checkKey(op.Key)
	case DoSet:
		if err := checkValue(op.Value); err != nil {
			return err
		}
	case DoAdd:
	case DoAppend, DoAppendUnique, DoRemove:
		if err := checkSize(total(op.Items)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: there is no action %q", ErrInvalid, op.Do)
	}
	if err := checkGrain(op.TTL); err != nil {
		return err
	}
	return checkKey(op.Key)
}

func checkKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: the key is empty", ErrInvalid)
	}
	if len(key) > MaxKey {
		return fmt.Errorf("%w: the key has %d bytes, at most %d (MaxKey)", ErrTooLarge, len(key), MaxKey)
	}
	return nil
}

func checkSize(n int) error {
	if n > MaxValue {
		return fmt.Errorf("%w: the value has %d bytes, at most %d (MaxValue)", ErrTooLarge, n, MaxValue)
	}
	return nil
}

// checkValue refuses a value that is not what its kind says, on which later operations would fail.
func checkValue(v Value) error {
	switch v.Kind {
	case Plain:
	case Integer:
		if n, err := strconv.ParseInt(v.Data, 10, 64); err != nil || strconv.FormatInt(n, 10) != v.Data {
			return fmt.Errorf("%w: the value is not the decimal text of an int64", ErrInvalid)
		}
	case List:
		if _, err := DecodeList(v.Data); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	default:
		return fmt.Errorf("%w: there is no kind %q of values", ErrInvalid, byte(v.Kind))
	}
	return checkSize(len(v.Data))
}

func checkGrain(d time.Duration) error {
	switch {
	case d < 0:
		return fmt.Errorf("%w: the ttl is negative", ErrInvalid)
	case d > 0 && d < MinTTL:
		return fmt.Errorf("%w: the ttl %v is below %v (MinTTL)", ErrInvalid, d, MinTTL)
	case d > MaxTTL:
		return fmt.Errorf("%w: the ttl %v is over %v (MaxTTL)", ErrTooLarge, d, MaxTTL)
	}
	return nil
}
