package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// envStore is the environment's place for a store, where no list of processes shows its password.
const envStore = "LATCHKEY_STORE"

// A rawMap is a map of any types, as its store keeps it.
type rawMap = rmap.Map[string, rmap.Value]

// mapStore is where maps are: the flags that all verbs of map have.
type mapStore struct {
	address   string
	namespace string
	timeout   time.Duration
	lifetime  rmap.Lifetime // of a map that begins, and must be that of one that is there; zero is for any
}

func (a *app) mapCommand() *cobra.Command {
	var s mapStore
	cmd := &cobra.Command{
		Use:   "map",
		Short: "look into replicated maps, and mend them",
		Long: `Look into replicated maps, as programs share them by package rmap, and mend them.
Each verb reads the whole map first, as any process that has joined it did.

Values are shown and written as the store keeps them. There are three kinds of
them: plain text or bytes, which is what strings, JSON and most else are kept as;
int, a number that programs add to; and list, for programs that add and remove
items.

A password in --store is seen by all who can list this machine's processes: put
the URL into $` + envStore + ` instead. It is never printed.`,
		Example: `  export LATCHKEY_STORE=redis://localhost:6379
  latchkey map ls flags
  latchkey map get flags dark-mode
  latchkey map set flags dark-mode true
  latchkey map watch flags`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("map has no verb %s; see `%s --help`", shownArgument(args[0]), cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&s.address, "store", "",
		"`URL` of the Redis that has the maps: redis://, rediss:// or unix://; default from $"+envStore)
	f.StringVar(&s.namespace, "namespace", rmapredis.DefaultPrefix, "what the names of all maps begin with in the store")
	f.DurationVar(&s.timeout, "timeout", answerTime, "give up after this long, to join the map and to be answered each")
	cmd.PersistentPreRunE = func(*cobra.Command, []string) error {
		if s.timeout <= 0 {
			return fmt.Errorf("--timeout %v is not above zero", s.timeout)
		}
		return nil
	}
	cmd.AddCommand(a.mapGetCommand(&s), a.mapSetCommand(&s), a.mapDelCommand(&s), a.mapListCommand(&s),
		a.mapWatchCommand(&s), a.mapStatusCommand(&s))
	return cmd
}

// mapArguments checks the number of arguments. Unlike [exactly] it repeats none: one may be a URL with a password that
// was meant for --store.
func mapArguments(more bool, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		for _, arg := range args[:min(1, len(args))] {
			if strings.Contains(arg, "://") {
				return fmt.Errorf("the name of a map comes first, and a URL belongs behind --store or into $%s; see `%s --help`",
					envStore, cmd.CommandPath())
			}
		}
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing; see `%s --help`", names[len(args)], cmd.CommandPath())
		case len(args) > len(names) && !more:
			return fmt.Errorf("%s too many behind %s; see `%s --help`", count(len(args)-len(names), "argument", "arguments"),
				strings.Join(names, " "), cmd.CommandPath())
		}
		return rmap.CheckName(args[0])
	}
}

// shownArgument quotes an argument, unless it could be a URL with a password.
func shownArgument(arg string) string {
	if strings.Contains(arg, "://") {
		return "with a URL for a name"
	}
	return fmt.Sprintf("%q", arg)
}

// resolve takes the address from the environment when no flag has it, and returns how it is called: without user and
// password.
func (a *app) resolve(s *mapStore) (name string, err error) {
	address := s.address
	if address == "" {
		address, _ = a.env(envStore)
	}
	if address == "" {
		return "", fmt.Errorf("which store? Set --store or $%s, such as redis://localhost:6379", envStore)
	}
	s.address = address
	u, err := url.Parse(address)
	if err != nil || strings.Contains(u.Path+u.Fragment+u.RawQuery, "@") {
		// What the parser says quotes from the URL, and a part of the password may be in it.
		return "", errors.New("the URL of the store is none: it looks like redis://user:password@host:port/0, " +
			"with %2F for / and %40 for @ and so on in the password")
	}
	switch {
	case u.Scheme == "unix":
		return "unix:" + u.Path, nil
	case u.Scheme != "redis" && u.Scheme != "rediss":
		return "", errors.New("the URL of the store begins with redis://, rediss:// or unix://")
	}
	return u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/"), nil
}

// openMap joins a map. The store is called by its name in errors, and closed with close.
func (a *app) openMap(ctx context.Context, s *mapStore, name string) (*mapView, error) {
	at, err := a.resolve(s)
	if err != nil {
		return nil, err
	}
	v := &mapView{at: at, name: name}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if v.store, err = s.open(ctx); err != nil {
		return nil, v.explain(err)
	}
	v.rawMap, err = rmap.Join(ctx, v.store, name, rmap.Options[string, rmap.Value]{
		Values: rmap.Raw(), MaxEntries: math.MaxInt32, TTL: s.lifetime.TTL, Sliding: s.lifetime.Sliding})
	if err != nil {
		v.store.Close()
		return nil, v.explain(err)
	}
	return v, nil
}

// open connects to the store. The client looks at no context before it has greeted the server, so that one that hangs is
// left to its own time limit: this program ends before.
func (s *mapStore) open(ctx context.Context) (*rmapredis.Store, error) {
	type opened struct {
		store *rmapredis.Store
		err   error
	}
	done := make(chan opened, 1)
	go func() {
		store, err := rmapredis.Open(ctx, s.address, rmapredis.Options{Prefix: s.namespace, Timeout: min(s.timeout, dialTime)})
		done <- opened{store, err}
	}()
	select {
	case o := <-done:
		return o.store, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A mapView is a map and where it is.
type mapView struct {
	*rawMap
	store *rmapredis.Store
	at    string // the store, as people may see it
	name  string
}

func (v *mapView) close() {
	v.rawMap.Close()
	v.store.Close()
}

// askMap runs a question to a map, or one change of it, within a bounded time.
func (a *app) askMap(s *mapStore, name string, question func(ctx context.Context, v *mapView) error) error {
	ctx, stop := interruptible()
	defer stop.end()
	v, err := a.openMap(ctx, s, name)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer v.close()
	short, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return interrupted(ctx, v.explain(question(short, v)))
}

// head asks where the map stands, for what the copy does not tell: the store's clock, and when the whole map ends.
func (v *mapView) head(ctx context.Context) (rmap.Head, error) {
	up := make(chan struct{}, 1)
	f, err := v.store.Follow(v.name, upOnly{up})
	if err != nil {
		return rmap.Head{}, err
	}
	defer f.Close()
	select {
	case <-up:
		return f.Head(ctx)
	case <-ctx.Done():
		return rmap.Head{}, ctx.Err()
	}
}

// upOnly is a follower that waits for the subscription.
type upOnly struct{ up chan<- struct{} }

// Up implements [rmap.Follower].
func (f upOnly) Up() {
	select {
	case f.up <- struct{}{}:
	default:
	}
}

// Changed implements [rmap.Follower]: the copy has it.
func (upOnly) Changed(rmap.Change) {}

// Unreadable implements [rmap.Follower]: the copy says so.
func (upOnly) Unreadable(error) {}

// Down implements [rmap.Follower]: then there is no head.
func (upOnly) Down(error) {}

// A mapError is an error of a map in words of people, with a code for --json.
type mapError struct {
	code lease.Code
	text string
	err  error
}

func (e *mapError) Error() string { return e.text }
func (e *mapError) Unwrap() error { return e.err }

// Codes that leases have not.
const (
	codeConflict = lease.Code("conflict")
	codeAbsent   = lease.Code("absent")
	codeFormat   = lease.Code("newer_format")
	codeForeign  = lease.Code("foreign")
)

// explain says what an error of the map means, and what to do next.
func (v *mapView) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*statusError](err); ok {
		return err
	}
	m := plain(v.name)
	say := func(code lease.Code, format string, args ...any) error {
		return &mapError{code, fmt.Sprintf(format, args...), err}
	}
	reason := storeReason(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rmap.ErrUnknown):
		return say(lease.ErrUnknown, "%s did not answer, so nobody knows whether it was written: look with `latchkey map get %s KEY` (%s)",
			v.at, m, reason)
	case errors.Is(err, rmap.ErrFormat):
		return say(codeFormat, "map %s in %s was written by a newer version of Latchkey: use that version's latchkey", m, v.at)
	case errors.Is(err, rmap.ErrForeign):
		return say(codeForeign, "what %s has under the name of map %s was not written by Latchkey, and is left alone: "+
			"look for another MAP or --namespace", v.at, m)
	case errors.Is(err, rmap.ErrLifetime):
		return say(lease.ErrRefused, "map %s has another ttl than --map-ttl says: `latchkey map status %s` shows it", m, m)
	case errors.Is(err, rmap.ErrInvalid):
		return say(lease.ErrRefused, "%s", reason)
	case strings.Contains(reason, "NOAUTH"):
		return say(lease.ErrUnavailable, "%s demands a password: put it into the URL in $%s", v.at, envStore)
	case strings.Contains(reason, "WRONGPASS"):
		return say(lease.ErrUnavailable, "%s does not know the user and password in the URL of --store or $%s", v.at, envStore)
	case strings.Contains(reason, "NOPERM"):
		return say(lease.ErrUnavailable, "%s does not permit that to this user: %s; ask for the permission, or use another user in $%s",
			v.at, reason, envStore)
	case isRefused(err):
		return say(lease.ErrUnavailable, "nobody listens at %s: start a Redis there, or set --store or $%s", v.at, envStore)
	case isTimeout(err):
		return say(lease.ErrUnavailable, "no answer from %s in time: look whether it is stopped or overloaded, or set --store or $%s",
			v.at, envStore)
	case errors.Is(err, rmap.ErrUnavailable):
		return say(lease.ErrUnavailable, "%s cannot be used: %s; mend that, or set --store or $%s", v.at, reason, envStore)
	}
	return say(lease.ErrRefused, "%s", reason)
}

// storeReason is the text of an error without what this program says itself: which map, which store, which method, and
// that its time was over.
func storeReason(err error) string {
	if e, ok := errors.AsType[*rmap.WriteError](err); ok {
		err = e.Err
	}
	text := err.Error()
	for _, known := range []error{rmap.ErrUnavailable, rmap.ErrUnknown, rmap.ErrInvalid} {
		before := known.Error() + ": "
		if i := strings.LastIndex(text, before); i >= 0 && errors.Is(err, known) {
			text = text[i+len(before):]
		}
	}
	text = strings.TrimSuffix(text, "): "+context.DeadlineExceeded.Error())
	return strings.TrimSuffix(oneLine(strings.TrimPrefix(text, "the server refuses: ")), ".")
}

// left is what remains of a time to live, by the store's clock.
func left(deadline time.Time, now int64) time.Duration {
	return max(deadline.Sub(time.UnixMilli(now)), 0)
}
