package rmapredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

// refusals are the first words of errors with which a server refuses a command as a whole, before or inside of a
// script, in which everything that can be refused comes before anything is written.
var refusals = [...]string{"LOADING", "READONLY", "OOM", "NOAUTH", "NOPERM", "WRONGPASS", "MISCONF", "BUSY", "MASTERDOWN",
	"NOREPLICAS", "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "NOSCRIPT", "NOPROTO", "DENIED"}

// failed says of a script that ended with err what became of it.
func (s *Store) failed(err error) error {
	if reply, ok := rueidis.IsRedisErr(err); ok {
		return replied(reply.Error())
	}
	if unsent(err) {
		return fmt.Errorf("%w: %w", rmap.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", rmap.ErrUnknown, err)
}

// unsent tells whether an error came up before there was a connection to send anything on.
func unsent(err error) bool {
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" {
		return true
	}
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		return true
	}
	e := (*tls.CertificateVerificationError)(nil)
	return errors.As(err, &e)
}

// A codeError is an error of lua/prelude.lua, whose first word begins with RMAP.
type codeError struct {
	is     error
	what   string
	number int // of the operation in which it came up; 0 is none
}

func (e *codeError) Error() string {
	if e.what == "" {
		return e.is.Error()
	}
	return e.is.Error() + ": " + e.what
}

func (e *codeError) Unwrap() error { return e.is }

// replied translates an error that the server sent as its answer to a script.
func replied(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	rest, _, _ = strings.Cut(rest, " script:")
	operand, more, _ := strings.Cut(rest, " ")
	n, _ := strconv.Atoi(operand)
	switch word {
	case "RMAPFORMAT":
		return &codeError{is: rmap.ErrFormat, what: "the map was written by a newer version: upgrade this process"}
	case "RMAPFOREIGN":
		return &codeError{is: rmap.ErrForeign, what: "what is stored there was not written by this package"}
	case "WRONGTYPE":
		return &codeError{is: rmap.ErrForeign, what: "a key of the map holds another type of Redis"}
	case "RMAPLIFETIME":
		return &codeError{is: rmap.ErrLifetime, what: fmt.Sprintf("its ttl is %d ms (sliding %t)", n, strings.HasPrefix(more, "1"))}
	case "RMAPENTRIES":
		return &codeError{is: rmap.ErrTooLarge, what: fmt.Sprintf("the map would have %d entries", n)}
	case "RMAPTOOLARGE":
		return &codeError{is: rmap.ErrTooLarge, what: "a key, the value, or the write as a whole", number: n}
	case "RMAPKIND":
		return &codeError{is: rmap.ErrKind, number: n}
	case "RMAPRANGE":
		return &codeError{is: rmap.ErrRange, number: n}
	case "RMAPINVALID":
		return &codeError{is: rmap.ErrInvalid, number: n}
	}
	// Redis 7.0 has no word for what a user may not do inside of a script.
	forbidden := strings.Contains(text, "user executing the script can't")
	for _, r := range refusals {
		if word == r || forbidden {
			return fmt.Errorf("%w: the server refuses: %s", rmap.ErrUnavailable, text)
		}
	}
	if strings.Contains(text, "script:") || strings.Contains(text, "user_script") {
		return fmt.Errorf("%w: the script failed: %s", rmap.ErrUnknown, text)
	}
	return fmt.Errorf("%w: the server refuses: %s", rmap.ErrUnavailable, text)
}

// describe names the operation that a write failed in.
func describe(err error, w *rmap.Write) error {
	if err == nil {
		return nil
	}
	e := (*codeError)(nil)
	if errors.As(err, &e) && e.number > 0 && e.number <= len(w.Ops) {
		return fmt.Errorf("operation %d on key %s: %w", e.number, redistext.Quoted(w.Ops[e.number-1].Key), err)
	}
	return err
}

// unread is the error of a command that only reads.
func (s *Store) unread(err error) error {
	reply, ok := rueidis.IsRedisErr(err)
	switch {
	case ok && strings.HasPrefix(reply.Error(), "WRONGTYPE"):
		return replied(reply.Error())
	case errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%w: %w", rmap.ErrUnavailable, err)
}

// foreign is the error of something that could not be read: of a newer format, or not ours.
func foreign(err error) error {
	if errors.Is(err, rmap.ErrFormat) {
		return err
	}
	return fmt.Errorf("%w: %w", rmap.ErrForeign, err)
}

// feedError translates the errors of a subscription.
func feedError(err error) error {
	switch {
	case errors.Is(err, redisfeed.ErrClosed):
		return fmt.Errorf("%w: %w", rmap.ErrClosed, err)
	case errors.Is(err, redisfeed.ErrDown), errors.Is(err, redisfeed.ErrTooMany):
		return fmt.Errorf("%w: %w", rmap.ErrUnavailable, err)
	}
	return err
}
