package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/rmap"
)

type mapSetOptions struct {
	kind       string
	ttl        lifetime
	keepTTL    bool
	ifAbsent   bool
	ifRevision string
	ifValue    []string
}

func (a *app) mapSetCommand(s *mapStore) *cobra.Command {
	var o mapSetOptions
	cmd := &cobra.Command{
		Use:   "set MAP KEY VALUE...",
		Short: "store a value under a key",
		Long: `Store a value under a key and print the revision of the change. The value - is
read from the standard input, every byte of it; for a list, item by item from its
lines. A value that begins with another - goes behind a --.

The kind is that of the value that is there, and plain where there is none; only a
list can have several values. What was stored with a time to live loses it, unless
--ttl or --keep-ttl says otherwise.

A map that is not there begins with its first key. When programs give it a time to
live as a whole, it must begin with the same: they refuse to write to it otherwise.

A condition is checked in the store, in the same step. The exit status is 75 when
it does not hold; then nothing is written.`,
		Example: `  latchkey map set flags dark-mode true
  latchkey map set limits per-second --kind int 250
  latchkey map set routes eu --kind list 10.0.0.1 10.0.0.2
  latchkey map set flags banner - <banner.html
  latchkey map set flags dark-mode --if-value false true`,
		Args: mapArguments(true, "MAP", "KEY", "VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if s.lifetime.Sliding && s.lifetime.TTL == 0 {
				return errors.New("--map-sliding needs --map-ttl")
			}
			return a.mapSet(cmd, s, args[0], args[1], args[2:], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.kind, "kind", "", "kind of the value: plain, int or list (default: as it is)")
	f.Var(&o.ttl, "ttl", "time to live, or forever")
	f.BoolVar(&o.keepTTL, "keep-ttl", false, "leave what is left of the time to live as it is")
	f.BoolVar(&o.ifAbsent, "if-absent", false, "only if there is nothing under the key")
	f.StringVar(&o.ifRevision, "if-revision", "", "only if the value there was written by this `revision`; none is for no value")
	f.StringArrayVar(&o.ifValue, "if-value", nil, "only if this `value` is there; again for each item of a list")
	f.DurationVar(&s.lifetime.TTL, "map-ttl", 0, "a map that begins with this lives this long as a whole (default: for ever)")
	f.BoolVar(&s.lifetime.Sliding, "map-sliding", false, "with --map-ttl: every change begins that time anew")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		text := flagProblem(err)
		if strings.Contains(text, "unknown shorthand flag") {
			return fmt.Errorf("%s; a value that begins with - goes behind a --", text)
		}
		return fmt.Errorf("%s; see `%s --help`", text, cmd.CommandPath())
	})
	return cmd
}

// check refuses flags that mean nothing, or not together.
func (o *mapSetOptions) check(cmd *cobra.Command) error {
	err := errors.Join(exclude(cmd, "ttl", "keep-ttl"), exclude(cmd, "if-absent", "if-revision"),
		exclude(cmd, "if-absent", "if-value"), exclude(cmd, "if-revision", "if-value"))
	if err != nil {
		return err
	}
	if o.kind != "" {
		_, err = parseKind(o.kind)
	}
	if err == nil && o.ifRevision != "" {
		_, err = parseRevision(o.ifRevision)
	}
	return err
}

// parseRevision reads a revision as get and set print it.
func parseRevision(text string) (rmap.Revision, error) {
	r, err := rmap.ParseRevision(text)
	if err != nil {
		return r, fmt.Errorf("--if-revision %.64q is not a revision; `latchkey map get MAP KEY --json` shows one", text)
	}
	return r, nil
}

func (a *app) mapSet(cmd *cobra.Command, s *mapStore, name, key string, words []string, o mapSetOptions) error {
	if _, err := a.resolve(s); err != nil {
		return err // before anything is read
	}
	input, fromInput := "", len(words) == 1 && words[0] == "-" && cmd.ArgsLenAtDash() < 0
	if fromInput {
		var err error
		if input, err = a.readInput(); err != nil {
			return err
		}
	}
	return a.askMap(s, name, func(ctx context.Context, v *mapView) error {
		shot := v.Snapshot()
		began, ends := shot.Revision().IsZero(), "lives for ever; --map-ttl begins one that does not"
		if s.lifetime.TTL != 0 {
			ends = "has a ttl of " + span(s.lifetime.TTL)
		}
		there, ok := shot.Entry(key)
		kind := rmap.Plain
		if ok && there.Err == nil {
			kind = there.Value.Kind
		}
		now := kind // what is there has this kind
		if o.kind != "" {
			kind, _ = parseKind(o.kind) // it was checked
			if !ok {
				now = kind
			}
		}
		if fromInput {
			words = a.readValue(kind, input)
		}
		value, err := newValue(kind, words)
		if err != nil {
			return &mapError{code: lease.ErrRefused, text: err.Error(), err: err}
		}
		b, err := o.batch(v.Batch(), key, now)
		if err != nil {
			return err
		}
		r, err := o.store(b, key, value).Write(ctx)
		if errors.Is(err, rmap.ErrConflict) {
			return v.conflict(key, err)
		}
		if err != nil {
			return err
		}
		if began && !a.json {
			a.notef("map %s was not there: it begins now, and %s", plain(name), ends)
		}
		return a.tellRevision(r)
	})
}

// batch begins the write with its condition. now is the kind of the value that is there.
func (o *mapSetOptions) batch(b *rmap.Batch[string, rmap.Value], key string, now rmap.Kind) (*rmap.Batch[string, rmap.Value], error) {
	switch {
	case o.ifAbsent:
		return b.IfAbsent(key), nil
	case o.ifRevision != "":
		r, err := parseRevision(o.ifRevision)
		return b.IfRevision(key, r), err
	case o.ifValue != nil:
		v, err := newValue(now, o.ifValue)
		if err != nil {
			return nil, fmt.Errorf("--if-value: %w", err)
		}
		return b.IfValue(key, v), nil
	}
	return b, nil
}

// store adds the operation to the write.
func (o *mapSetOptions) store(b *rmap.Batch[string, rmap.Value], key string, v rmap.Value) *rmap.Batch[string, rmap.Value] {
	switch ttl := time.Duration(o.ttl); {
	case o.keepTTL:
		return b.SetKeepTTL(key, v)
	case ttl != 0 && ttl != lease.Forever:
		return b.SetTTL(key, v, ttl)
	}
	return b.Set(key, v)
}

// tellRevision prints what a write made.
func (a *app) tellRevision(r rmap.Revision) error {
	if a.json {
		return a.object(struct {
			Revision rmap.Revision `json:"revision"`
		}{r})
	}
	return a.writeAll(r.String() + "\n")
}

// conflict says what is there instead of what the condition demanded.
func (v *mapView) conflict(key string, err error) error {
	text := fmt.Sprintf("not written: map %s has no key %s", plain(v.name), plain(key))
	if e, ok := errors.AsType[*rmap.ConflictError](err); ok && e.Present {
		text = fmt.Sprintf("not written: what is under %s was written by %v; look again with `latchkey map get %s %s`",
			plain(key), e.Current, plain(v.name), plain(key))
	}
	return &statusError{exitNotHeld, &mapError{codeConflict, text, err}}
}
