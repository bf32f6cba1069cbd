package hotcacheredis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/redis/rueidis"

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

// parse reads the URL of a server. Its errors do not show the password.
func parse(address string) (rueidis.ClientOption, error) {
	bad := func(why string) (rueidis.ClientOption, error) {
		return rueidis.ClientOption{}, fmt.Errorf("hotcacheredis: %w: the URL of the server %s; it looks like "+
			"redis://user:password@host:port, rediss://host:port or unix:///path", hotcache.ErrInvalid, why)
	}
	u, err := url.Parse(address)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // without the URL
		}
		return bad("is none (" + err.Error() + ")")
	}
	switch {
	case u.Scheme == "unix" && u.Path == "":
		return bad("has no path")
	case u.Scheme != "unix" && u.Scheme != "redis" && u.Scheme != "rediss":
		return bad(fmt.Sprintf("has the scheme %q", u.Scheme))
	case u.Query().Get("protocol") == "2":
		return bad("asks for protocol 2, and invalidations come by protocol 3")
	}
	option, err := rueidis.ParseURL(address)
	if err != nil {
		return bad("is none (" + strings.TrimPrefix(err.Error(), "redis: ") + ")")
	}
	if option.TLSConfig != nil {
		option.TLSConfig.MinVersion = tls.VersionTLS12
	}
	return option, nil
}
