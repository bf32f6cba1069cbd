package lease

import (
	"context"
	"slices"
)

// declaration is one link of the chain of holds that a context declares: a live
// hold of this process, or an id from elsewhere.
type declaration struct {
	held  *Held
	id    string
	outer *declaration
}

type declaredKey struct{}

func declare(ctx context.Context, d declaration) context.Context {
	d.outer, _ = ctx.Value(declaredKey{}).(*declaration)
	return context.WithValue(ctx, declaredKey{}, &d)
}

// WithDeclared returns a context whose requests declare these holds: that they
// will not be released before the request is answered. That is what lets a
// service prove a deadlock. Held.Context does it by itself; this is for ids that
// come from elsewhere, such as a parent process or Client.Acquire.
func WithDeclared(ctx context.Context, ids ...string) context.Context {
	for _, id := range ids {
		ctx = declare(ctx, declaration{id: id})
	}
	return ctx
}

// Declared returns the ids that requests made with ctx declare, outermost first.
// Holds that have ended meanwhile are left out.
func Declared(ctx context.Context) []string {
	d, _ := ctx.Value(declaredKey{}).(*declaration)
	var ids []string
	for ; d != nil; d = d.outer {
		id := d.id
		if d.held != nil {
			if !d.held.keeps() {
				continue
			}
			id = d.held.id
		}
		if i := slices.Index(ids, id); i >= 0 {
			ids = slices.Delete(ids, i, i+1) // its outermost place is the one that counts
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	slices.Reverse(ids)
	return ids
}

// keeps reports whether the hold still stands in others' way.
func (h *Held) keeps() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == phaseHeld
}

// mergeDeclared adds what the context declares to what the request does. A
// request never declares itself: a repeat of a held id is answered, not queued.
func mergeDeclared(ctx context.Context, own []string, self string) []string {
	all := slices.Clone(own)
	for _, id := range Declared(ctx) {
		if id != self && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}
