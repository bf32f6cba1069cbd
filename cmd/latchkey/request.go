package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/lease"
)

// wish is what run and lock have in common: the flags that make a request.
type wish struct {
	ttl    lifetime
	wait   time.Duration
	try    bool
	shared bool
	max    int
	label  string
}

// addFlags declares the flags.
func (w *wish) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	w.ttl = lifetime(lease.DefaultTTL)
	f.Var(&w.ttl, "ttl", "time to live of the lock, or forever")
	f.DurationVar(&w.wait, "wait", 0, "give up after waiting this long (default: wait without a bound)")
	f.BoolVar(&w.try, "try", false, "give up at once when the lock is not free")
	f.BoolVar(&w.shared, "shared", false, "share the lock with others that ask for it shared")
	f.IntVar(&w.max, "max", 0, "share the lock with others, up to this many holders")
	f.StringVar(&w.label, "label", "", "text shown to people beside the lock")
}

// request makes the request for keys as the command line has them.
func (w *wish) request(cmd *cobra.Command, keys string) (lease.Request, error) {
	r := lease.Request{
		Keys:  splitKeys(keys),
		TTL:   time.Duration(w.ttl),
		Wait:  w.wait,
		Try:   w.try || cmd.Flags().Changed("wait") && w.wait == 0,
		Label: w.label,
	}
	switch {
	case w.shared:
		r.Mode = lease.Shared
	case cmd.Flags().Changed("max"):
		r.Mode, r.Limit = lease.Counted, w.max
	}
	if err := errors.Join(exclude(cmd, "try", "wait"), exclude(cmd, "shared", "max")); err != nil {
		return r, err
	}
	check := r
	if err := check.Normalize(); err != nil {
		return r, err
	}
	return r, nil
}

// exclude refuses two flags that cannot be meant together.
func exclude(cmd *cobra.Command, one, other string) error {
	if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
		return fmt.Errorf("--%s and --%s exclude each other; see `%s --help`", one, other, cmd.CommandPath())
	}
	return nil
}

// splitKeys splits KEY[,KEY...]. A comma that belongs to a key is written \, and
// a backslash before anything else is itself.
func splitKeys(s string) []string {
	var keys []string
	var key strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == ',':
			key.WriteByte(',')
			i++
		case s[i] == ',':
			keys = append(keys, key.String())
			key.Reset()
		default:
			key.WriteByte(s[i])
		}
	}
	return append(keys, key.String())
}

// lifetime is a flag that holds a positive duration or forever.
type lifetime time.Duration

// String shows the value as it may be given.
func (d *lifetime) String() string {
	switch time.Duration(*d) {
	case lease.Forever:
		return "forever"
	case 0:
		return ""
	}
	return time.Duration(*d).String()
}

// Set takes a duration as Go writes them, or forever.
func (d *lifetime) Set(s string) error {
	if s == "forever" {
		*d = lifetime(lease.Forever)
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("not a duration such as 30s or 5m, nor forever")
	}
	if v <= 0 {
		return errors.New("it must be above zero")
	}
	*d = lifetime(v)
	return nil
}

// Type names the value in the help.
func (d *lifetime) Type() string { return "duration" }

// notHad is the error of a lock that could not be had, with what to do about it,
// and the status to exit with.
func (a *app) notHad(r lease.Request, err error) error {
	status := exitNotHeld
	var text string
	e, ok := errors.AsType[*lease.Error](err)
	switch code := lease.CodeOf(err); {
	case errors.Is(err, errNoBroker), errors.Is(err, os.ErrDeadlineExceeded):
	case !ok || code == lease.ErrInternal || code == lease.ErrProtocol || code == lease.ErrRefused:
		status = exitError
	case code == lease.ErrBusy:
		text = fmt.Sprintf("%s is not free%s; leave out --try to wait for it", plain(keyOf(e, r)), heldBy(e.Holders))
		if len(e.Holders) == 0 && e.Reason != "" {
			text = fmt.Sprintf("%s is not free: %s; leave out --try to wait for it", plain(keyOf(e, r)), e.Reason)
		}
	case code == lease.ErrTimeout:
		text = fmt.Sprintf("%s was not free within %v%s; a longer --wait may help", plain(keyOf(e, r)), r.Wait, heldBy(e.Holders))
	}
	if text == "" || a.json {
		return &statusError{status, a.unreached(err)}
	}
	return &statusError{status, errors.New(text)}
}

func keyOf(e *lease.Error, r lease.Request) string {
	if e.Key != "" {
		return e.Key
	}
	return r.Keys[0]
}

// heldBy names holders in the middle of a sentence.
func heldBy(holders []lease.Holder) string {
	if len(holders) == 0 {
		return ""
	}
	h := holders[0]
	s := ": held by " + who(h.Party)
	if h.Since > 0 {
		s += " for " + span(h.Since)
	}
	if more := len(holders) - 1; more > 0 {
		s += " and " + count(more, "other", "others")
	}
	return s
}
