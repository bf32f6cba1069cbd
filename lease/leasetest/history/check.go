package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/lease"
)

// patience bounds the search of one component. Histories of some thousand
// operations take milliseconds; one that takes longer than this is too large to
// be judged, and is reported as such.
const patience = 30 * time.Second

// Check fails the test when nothing explains the history.
func Check(t testing.TB, h History) {
	t.Helper()
	if err := h.Check(); err != nil {
		t.Errorf("the history of %d operations breaks the contract:\n%v", len(h.Ops), err)
	}
}

// Check returns what is wrong with the history, or nil.
func (h *History) Check() error {
	b := build(h)
	errs := b.errs
	for _, f := range h.Faults {
		errs = append(errs, errors.New(f))
	}
	if !h.Broken {
		errs = append(errs, b.arrivals()...)
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // a search over contradictions says nothing more
	}
	for _, c := range b.components() {
		if err := c.search(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// search looks for an order that explains one component.
func (c *component) search() error {
	if err := c.turns(); err != nil {
		return err
	}
	result, info := porcupine.CheckOperationsVerbose(model(), c.ops, patience)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("keys %q: %d steps are too many to be judged within %v%s", c.keys, len(c.ops), patience, stuck(c.ops, info))
	}
	return fmt.Errorf("keys %q: no order of events explains what callers saw%s", c.keys, stuck(c.ops, info))
}

// stuck describes where the longest explanation ends, and what it cannot take in.
func stuck(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []int
	for _, partition := range info.PartialLinearizations() {
		for _, l := range partition {
			if len(l) > len(longest) {
				longest = l
			}
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "; %d of %d steps fit, the last of them", len(longest), len(ops))
	for _, i := range longest[max(0, len(longest)-6):] {
		fmt.Fprintf(&text, "\n    %v", ops[i].Input)
	}
	text.WriteString("\n  and then none of")
	rest := make([]int, 0, len(ops))
	for i := range ops {
		if !slices.Contains(longest, i) {
			rest = append(rest, i)
		}
	}
	slices.SortFunc(rest, func(a, b int) int { return int(ops[a].Call - ops[b].Call) })
	for _, i := range rest[:min(len(rest), 6)] {
		fmt.Fprintf(&text, "\n    %v", ops[i].Input)
	}
	return text.String()
}

// String shows a step for people.
func (in *input) String() string {
	s := in.step
	text := fmt.Sprintf("[%d-%d]", s.call, s.ret)
	if in.tick != 0 {
		text += " some holds may have ended"
	}
	show := func(what string, refs []ref) {
		if len(refs) == 0 {
			return
		}
		text += " " + what
		for _, r := range refs {
			text += fmt.Sprintf(" %q of %s %s %d", r.key, r.hold.name, r.hold.request.Mode, r.hold.tokens[r.key])
		}
	}
	show("granted", s.grant)
	show("held", s.there)
	show("not held", s.gone)
	show("ended", s.must)
	show("over", s.drop)
	if s.free != "" {
		text += fmt.Sprintf(" nobody holds %q", s.free)
	}
	if s.op != nil {
		text += "   from " + s.op.String()
	}
	return text
}

// arrivals checks the order of the queue: of two requests that conflict, the one
// that waited before the other came has the lower token on each key of both.
func (b *builder) arrivals() []error {
	type arrival struct {
		o  *Op
		hd *hold
	}
	var waited, all []arrival
	for i := range b.h.Ops {
		o := &b.h.Ops[i]
		hd := b.of(o)
		if o.Kind != Acquire || hd == nil || hd.called != o.Call || hd.known != o.Return {
			continue
		}
		all = append(all, arrival{o, hd})
		if o.Queued != 0 && hd.left == 0 {
			waited = append(waited, arrival{o, hd})
		}
	}
	var errs []error
	for _, first := range waited {
		for _, later := range all {
			if later.o.Call < first.o.Queued || later.o.Request.PreferReaders || !conflict(&first.hd.request, &later.hd.request) {
				continue
			}
			for k, t := range first.hd.tokens {
				if u, both := later.hd.tokens[k]; both && u < t {
					errs = append(errs, fmt.Errorf("%v passed %v in the queue of %q", later.o, first.o, k))
				}
			}
		}
	}
	return errs
}

func conflict(a, b *lease.Request) bool {
	return a.Mode != lease.Shared || b.Mode != lease.Shared
}
