package hotcacheredis

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

func (o Options) withDefaults() (Options, error) {
	for _, name := range []struct {
		what   string
		of     *string
		is     string
		longer bool
	}{{"prefix", &o.Prefix, DefaultPrefix, false}, {"namespace", &o.Namespace, DefaultNamespace, true}} {
		if *name.of == "" {
			*name.of = name.is
		}
		if strings.ContainsAny(*name.of, "{}") {
			return o, fmt.Errorf("hotcacheredis: %w: the %s %q has braces, which are around the namespace", hotcache.ErrInvalid,
				name.what, *name.of)
		}
		if len(*name.of) > MaxNamespace {
			return o, fmt.Errorf("hotcacheredis: %w: the %s has %d bytes, at most %d", hotcache.ErrTooLarge, name.what,
				len(*name.of), MaxNamespace)
		}
	}
	rules := hotcache.DefaultRules()
	for _, d := range []struct {
		name string
		of   *time.Duration
		is   time.Duration
	}{
		{"Timeout", &o.Timeout, DefaultTimeout}, {"Heartbeat", &o.Heartbeat, DefaultHeartbeat}, {"Pong", &o.Pong, DefaultPong},
		{"Rules.LeaseTTL", &o.Rules.LeaseTTL, rules.LeaseTTL}, {"Rules.FloorTTL", &o.Rules.FloorTTL, rules.FloorTTL},
	} {
		switch {
		case *d.of < 0:
			return o, fmt.Errorf("hotcacheredis: %w: the option %s is negative", hotcache.ErrInvalid, d.name)
		case *d.of == 0:
			*d.of = d.is
		}
	}
	if o.Rules.MaxFloors < 0 {
		return o, fmt.Errorf("hotcacheredis: %w: the option Rules.MaxFloors is negative", hotcache.ErrInvalid)
	}
	if o.Rules.MaxFloors == 0 {
		o.Rules.MaxFloors = rules.MaxFloors
	}
	if o.version == 0 {
		o.version = format
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}
