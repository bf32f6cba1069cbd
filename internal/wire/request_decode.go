package wire

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/latchkey-go/latchkey/lease"
)

// fields is a set of fields of a request.
type fields uint64

// The fields of requests, in the order of their names below.
const (
	fN fields = 1 << iota
	fDo
	fID
	fKey
	fKeys
	fMode
	fMax
	fTTL
	fForever
	fTry
	fWait
	fWaited
	fPreferReaders
	fMaxHold
	fLockDelay
	fDetach
	fLabel
	fDeclared
	fToken
	fName
	fHost
	fPID
	fGrace
	fResume
	fPrefix
	fAfter
	fLimit
	fContended
	fBrief
	fWatch
	fBy
	fReason
)

// String returns the name of the first field of the set.
func (f fields) String() string {
	names := [...]string{"n", "do", "id", "key", "keys", "mode", "max", "ttl", "forever", "try", "wait", "waited",
		"prefer_readers", "max_hold", "lock_delay", "detach", "label", "declared", "token", "name", "host", "pid",
		"grace", "resume", "prefix", "after", "limit", "contended", "brief", "watch", "by", "reason"}
	return names[bits.TrailingZeros64(uint64(f))]
}

// allowed returns the fields that an operation has besides n and do.
func (o Op) allowed() fields {
	switch o {
	case OpOpen:
		return fName | fHost | fPID | fGrace | fResume
	case OpAcquire:
		return fID | fKey | fKeys | fMode | fMax | fTTL | fForever | fTry | fWait | fWaited | fPreferReaders |
			fMaxHold | fLockDelay | fDetach | fLabel | fDeclared
	case OpRenew:
		return fID | fKey | fToken | fTTL | fForever
	case OpRelease, OpDetach:
		return fID | fKey | fToken
	case OpCancel:
		return fID
	case OpList:
		return fKey | fPrefix | fAfter | fLimit | fContended | fBrief
	case OpWatch:
		return fKey | fPrefix
	case OpUnwatch:
		return fWatch
	case OpForce:
		return fKey | fToken | fBy | fReason
	}
	return 0
}

// requestDecoder fills a Request and remembers which fields it met.
type requestDecoder struct {
	decoder
	req  *Request
	seen fields
	do   string // the operation as it was named
}

// DecodeRequest fills r from one line. An error is a *lease.Error: with
// lease.ErrProtocol no answer is possible, because the line is not JSON, not an
// object or has no valid n; with lease.ErrRefused r.N is set and r.Do if it was
// understood, and the reason names the field. r keeps no part of line.
func DecodeRequest(line []byte, r *Request) error {
	*r = Request{}
	d := requestDecoder{decoder: decoder{scanner: scanner{data: line}}, req: r}
	if d.peek() != '{' {
		return notObject(line)
	}
	d.pos++
	for first := true; d.more('}', first); first = false {
		d.value(d.name())
	}
	d.finish()
	if d.err != "" {
		return protocolError("not JSON: %s at byte %d", d.err, d.at+1)
	}
	if r.N == 0 {
		return protocolError("%s", d.noNumber())
	}
	if wrong := d.verdict(); wrong != "" {
		return &lease.Error{Code: lease.ErrRefused, Op: r.Do.String(), Reason: wrong}
	}
	return nil
}

func protocolError(format string, args ...any) error {
	return &lease.Error{Code: lease.ErrProtocol, Reason: fmt.Sprintf(format, args...)}
}

// notObject says what a line is that should be an object.
func notObject(line []byte) error {
	d := decoder{scanner: scanner{data: line}}
	if d.peek() == 0 && d.pos == len(line) {
		return protocolError("the frame is empty; each line must be a JSON object")
	}
	what := d.kind()
	d.skip(1)
	d.finish()
	if d.err != "" && isHTTP(line) {
		return protocolError("this is HTTP; the HTTP API of a broker has an address of its own")
	}
	if d.err != "" {
		return protocolError("not JSON; each line must be a JSON object")
	}
	return protocolError("a frame must be a JSON object, got %s", what)
}

// isHTTP reports whether a line is the first one of an HTTP request, for a hint:
// the two ports are easily confused.
func isHTTP(line []byte) bool { return bytes.Contains(line, []byte(" HTTP/1.")) }

func (d *requestDecoder) noNumber() string {
	if d.seen&fN == 0 {
		return "n is missing: every request carries a number from 1 to 2^53-1"
	}
	return d.wrong
}

// value reads the value of one field.
func (d *requestDecoder) value(name []byte) {
	f := lookup(string(name))
	switch {
	case d.err != "":
		return
	case f == 0:
		d.complain("unknown field %s", lease.QuoteKey(string(name)))
		d.skip(1)
		return
	case d.seen&f != 0:
		d.complain("%s appears twice", f)
		d.skip(1)
		return
	}
	d.seen |= f
	d.field = name
	d.fill(f)
}

// lookup finds a field by name. It is a switch so that nothing is allocated.
func lookup(name string) fields {
	switch name {
	case "n":
		return fN
	case "do":
		return fDo
	case "id":
		return fID
	case "key":
		return fKey
	case "keys":
		return fKeys
	case "mode":
		return fMode
	case "max":
		return fMax
	case "ttl":
		return fTTL
	case "forever":
		return fForever
	case "try":
		return fTry
	case "wait":
		return fWait
	case "waited":
		return fWaited
	case "prefer_readers":
		return fPreferReaders
	case "max_hold":
		return fMaxHold
	case "lock_delay":
		return fLockDelay
	case "detach":
		return fDetach
	case "label":
		return fLabel
	case "declared":
		return fDeclared
	case "token":
		return fToken
	}
	return lookupRare(name)
}

func lookupRare(name string) fields {
	switch name {
	case "name":
		return fName
	case "host":
		return fHost
	case "pid":
		return fPID
	case "grace":
		return fGrace
	case "resume":
		return fResume
	case "prefix":
		return fPrefix
	case "after":
		return fAfter
	case "limit":
		return fLimit
	case "contended":
		return fContended
	case "brief":
		return fBrief
	case "watch":
		return fWatch
	case "by":
		return fBy
	case "reason":
		return fReason
	}
	return 0
}
