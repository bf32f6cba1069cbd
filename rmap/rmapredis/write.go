package rmapredis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

// Write implements [rmap.Store].
func (s *Store) Write(ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	if err := s.ready(ctx, name); err != nil {
		return rmap.Result{}, err
	}
	r, err := s.write(ctx, name, &w)
	if err != nil {
		return rmap.Result{}, fmt.Errorf("rmapredis: write to map %q: %w", name, err)
	}
	return r, nil
}

func (s *Store) write(ctx context.Context, name string, w *rmap.Write) (rmap.Result, error) {
	if err := w.Check(); err != nil {
		return rmap.Result{}, err
	}
	set := settings{lifetime: w.Lifetime, maxEntries: max(w.MaxEntries, 0)}
	if usual(w, set) {
		done, err := s.run(ctx, s.setter, name, set, nil, []string{w.Ops[0].Key, value(w.Ops[0].Value)})
		return rmap.Result{Revision: done.Revision, Changed: done.Changed}, describe(err, w)
	}
	done, err := s.run(ctx, s.writer, name, set, nil, arguments(w))
	if err != nil {
		return rmap.Result{}, describe(err, w)
	}
	r := rmap.Result{Revision: done.Revision, Changed: done.Changed}
	if err := readReply(&r, done.Reply, w); err != nil {
		// The script has done its work, whatever it says.
		return rmap.Result{}, fmt.Errorf("%w: the reply of the script: %w", rmap.ErrUnknown, err)
	}
	return r, nil
}

// usual tells whether a write is one that lua/set.lua takes.
func usual(w *rmap.Write, set settings) bool {
	if len(w.If) > 0 || len(w.Ops) != 1 || w.WantOld || (set.lifetime != nil && set.lifetime.TTL > 0) {
		return false
	}
	op := &w.Ops[0]
	return op.Do == rmap.DoSet && op.TTL == 0 && !op.KeepTTL
}

// arguments puts a write into words, in the order in which lua/write.lua takes them.
func arguments(w *rmap.Write) []string {
	args := make([]string, 0, 2+3*len(w.If)+5*len(w.Ops))
	args = append(args, flag(w.WantOld), strconv.Itoa(len(w.If)))
	for _, c := range w.If {
		args = append(args, c.Key)
		switch c.Test {
		case rmap.IsAbsent:
			args = append(args, "absent", "")
		case rmap.IsPresent:
			args = append(args, "present", "")
		case rmap.HasValue:
			args = append(args, "value", value(c.Value))
		case rmap.HasNonce:
			args = append(args, "nonce", redistext.Hex16(c.Nonce))
		}
	}
	for i := range w.Ops {
		op := &w.Ops[i]
		args = append(args, string(rune(op.Do)))
		if op.Do == rmap.DoClear || op.Do == rmap.DoDestroy {
			continue
		}
		args = append(args, op.Key)
		switch op.Do {
		case rmap.DoDelete, rmap.DoExpire:
			continue
		case rmap.DoSet:
			args = append(args, value(op.Value))
		case rmap.DoAdd:
			args = append(args, strconv.FormatInt(op.Delta, 10))
		default:
			args = append(args, rmap.EncodeList(op.Items))
		}
		args = append(args, strconv.FormatInt(rmap.Milliseconds(op.TTL), 10), flag(op.KeepTTL))
	}
	return args
}

func value(v rmap.Value) string { return string(rune(v.Kind)) + v.Data }

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// readReply reads the conflict and the old entries from what lua/write.lua returns.
func readReply(r *rmap.Result, reply rueidis.RedisMessage, w *rmap.Write) error {
	parts, err := reply.ToArray()
	if err != nil || len(parts) < 2 {
		return errMalformed
	}
	conflict, err := parts[0].AsInt64()
	if err != nil || conflict < 0 || conflict > int64(len(w.If)) {
		return errMalformed
	}
	if r.Conflict = int(conflict); r.Conflict > 0 {
		r.Current, err = readEntry(w.If[r.Conflict-1].Key, parts[1])
		return err
	}
	if !w.WantOld {
		return nil
	}
	if len(parts) < 3 {
		return errMalformed
	}
	olds, err := parts[2].ToArray()
	if err != nil || len(olds) != len(w.Ops) {
		return errMalformed
	}
	for i := range olds {
		old, err := readEntry(w.Ops[i].Key, olds[i])
		if err != nil {
			return err
		}
		r.Old = append(r.Old, old)
	}
	return nil
}

// readEntry reads an entry that a script returned, or none.
func readEntry(key string, m rueidis.RedisMessage) (*rmap.Entry, error) {
	if m.IsNil() {
		return nil, nil
	}
	text, err := m.ToString()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	e := storedEntry(key, text)
	return &e, nil
}
