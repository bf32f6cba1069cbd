package wire

import (
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/lease"
)

// maxCycle bounds the cycle of a deadlock that is told, so that it fits a frame
// whatever its names are.
const maxCycle = 64

// Failure makes the answer to a request that failed with err; op is what it
// asked for. With n zero it is the last frame of a connection. The code of err
// survives, so that errors.Is says the same at both ends; a cause becomes text.
// Of a defect only the code leaves the server: its text may hold anything.
func Failure(n uint64, op string, err error) Reply {
	r := Reply{Kind: Failed, N: n, Code: lease.CodeOf(err), Op: op}
	if r.Code == lease.ErrInternal {
		r.Reason = "a defect in the server, see its log"
		return r
	}
	var e *lease.Error
	if !errors.As(err, &e) {
		if text := err.Error(); text != r.Code.Error() {
			r.Reason = text
		}
		return r
	}
	if e.Op != "" {
		r.Op = e.Op
	}
	r.Key, r.Reason, r.Holders = e.Key, e.Reason, e.Holders
	r.Cycle = e.Cycle[:min(len(e.Cycle), maxCycle)]
	if e.Cause != nil && e.Cause != ErrOtherDialect {
		if r.Reason != "" {
			r.Reason += ": "
		}
		r.Reason += e.Cause.Error()
	}
	return r
}

// Err returns the error that a Failed frame tells, a *lease.Error. A code that
// this version does not know, from a newer server, becomes lease.ErrInternal
// with the code in its reason.
func (r *Reply) Err() error {
	e := &lease.Error{Code: r.Code, Op: r.Op, Key: r.Key, Reason: r.Reason, Holders: r.Holders, Cycle: r.Cycle}
	if !known(r.Code) {
		e.Code = lease.ErrInternal
		e.Reason = fmt.Sprintf("code %s, which this version does not know", lease.QuoteKey(string(r.Code)))
		if r.Reason != "" {
			e.Reason += ": " + r.Reason
		}
	}
	return e
}

func known(c lease.Code) bool {
	switch c {
	case lease.ErrBusy, lease.ErrTimeout, lease.ErrCancelled, lease.ErrRefused, lease.ErrDeadlock, lease.ErrUnknown,
		lease.ErrOver, lease.ErrNotHeld, lease.ErrExpired, lease.ErrForced, lease.ErrSessionLost, lease.ErrServiceGone,
		lease.ErrUnavailable, lease.ErrClosed, lease.ErrProtocol, lease.ErrInternal:
		return true
	}
	return false
}
