package rmaptest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// What writes are put together of.

func plain(data string) rmap.Value   { return rmap.Value{Kind: rmap.Plain, Data: data} }
func integer(data string) rmap.Value { return rmap.Value{Kind: rmap.Integer, Data: data} }
func list(items ...string) rmap.Value {
	return rmap.Value{Kind: rmap.List, Data: rmap.EncodeList(items)}
}

func put(key string, v rmap.Value) rmap.Op { return rmap.Op{Do: rmap.DoSet, Key: key, Value: v} }
func set(key, data string) rmap.Op         { return put(key, plain(data)) }
func del(key string) rmap.Op               { return rmap.Op{Do: rmap.DoDelete, Key: key} }
func add(key string, delta int64) rmap.Op  { return rmap.Op{Do: rmap.DoAdd, Key: key, Delta: delta} }
func expire(key string) rmap.Op            { return rmap.Op{Do: rmap.DoExpire, Key: key} }
func app(key string, items ...string) rmap.Op {
	return rmap.Op{Do: rmap.DoAppend, Key: key, Items: items}
}
func uniq(key string, items ...string) rmap.Op {
	return rmap.Op{Do: rmap.DoAppendUnique, Key: key, Items: items}
}
func strip(key string, items ...string) rmap.Op {
	return rmap.Op{Do: rmap.DoRemove, Key: key, Items: items}
}
func reset() rmap.Op   { return rmap.Op{Do: rmap.DoClear} }
func destroy() rmap.Op { return rmap.Op{Do: rmap.DoDestroy} }

func lasting(d time.Duration, op rmap.Op) rmap.Op {
	op.TTL = d
	return op
}

func keeping(op rmap.Op) rmap.Op {
	op.KeepTTL = true
	return op
}

func write(ops ...rmap.Op) rmap.Write { return rmap.Write{Ops: ops} }

func want(ops ...rmap.Op) rmap.Write { return rmap.Write{Ops: ops, WantOld: true} }

func given(c rmap.Condition, ops ...rmap.Op) rmap.Write {
	return rmap.Write{If: []rmap.Condition{c}, Ops: ops}
}

func living(l rmap.Lifetime, ops ...rmap.Op) rmap.Write { return rmap.Write{Ops: ops, Lifetime: &l} }

func absent(key string) rmap.Condition  { return rmap.Condition{Key: key, Test: rmap.IsAbsent} }
func present(key string) rmap.Condition { return rmap.Condition{Key: key, Test: rmap.IsPresent} }

func value(key string, v rmap.Value) rmap.Condition {
	return rmap.Condition{Key: key, Test: rmap.HasValue, Value: v}
}

func written(key string, nonce uint64) rmap.Condition {
	return rmap.Condition{Key: key, Test: rmap.HasNonce, Nonce: nonce}
}

// did are steps as they are told.
func did(key string, v rmap.Value) rmap.Step {
	return rmap.Step{Do: rmap.DoSet, Entry: rmap.Entry{Key: key, Value: v}}
}
func gone(key string) rmap.Step      { return rmap.Step{Do: rmap.DoDelete, Entry: rmap.Entry{Key: key}} }
func ended(key string) rmap.Step     { return rmap.Step{Do: rmap.DoExpire, Entry: rmap.Entry{Key: key}} }
func whole(do rmap.Action) rmap.Step { return rmap.Step{Do: do} }

// text shows anything in a failure, shortened where it is long.
func text(v any) string {
	s := fmt.Sprintf("%+v", v)
	if k, ok := v.(string); ok {
		s = fmt.Sprintf("%q", k)
	}
	if len(s) > 600 {
		s = s[:600] + fmt.Sprintf("... (%d bytes)", len(s))
	}
	return s
}

// difference names the keys on which two maps do not agree, a few of them.
func difference(want, got map[string]rmap.Entry) string {
	keys := make(map[string]bool)
	for k := range want {
		keys[k] = true
	}
	for k := range got {
		keys[k] = true
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, inA := want[k]
		b, inB := got[k]
		if a == b && inA == inB {
			continue
		}
		if len(parts) == 5 {
			parts = append(parts, "and more")
			break
		}
		parts = append(parts, fmt.Sprintf("%s is %s there (%t) and %s here (%t)", text(k), text(a), inA, text(b), inB))
	}
	return strings.Join(parts, "; ")
}
