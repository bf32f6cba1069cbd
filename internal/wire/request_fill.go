package wire

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// fill reads the value of a field that appears for the first time.
func (d *requestDecoder) fill(f fields) {
	r := d.req
	switch f {
	case fN:
		r.N = uint64(d.integer(1, maxInteger-1))
	case fDo:
		d.operation()
	case fID:
		r.ID = d.text()
	case fKey:
		r.Key = d.text()
	case fKeys:
		r.Keys = d.texts()
	case fMode:
		r.Mode = d.mode()
	case fMax:
		r.Max = d.positive()
	case fTTL:
		d.ttl()
	case fForever:
		d.forever()
	case fTry:
		r.Try = d.flag()
	case fWait:
		r.Wait = d.wait()
	case fWaited:
		r.Waited = d.millis(0)
	case fPreferReaders:
		r.PreferReaders = d.flag()
	case fMaxHold:
		r.MaxHold = d.millis(1)
	case fLockDelay:
		r.LockDelay = d.millis(0)
	case fDetach:
		r.Detach = d.flag()
	case fLabel:
		r.Label = d.text()
	case fDeclared:
		r.Declared = d.texts()
	case fToken:
		r.Token = lease.Token(d.integer(1, maxInteger-1))
	default:
		d.fillRare(f)
	}
}

func (d *requestDecoder) fillRare(f fields) {
	r := d.req
	switch f {
	case fName:
		r.Name = d.text()
	case fHost:
		r.Host = d.text()
	case fPID:
		r.PID = int(d.integer(0, 1<<31-1))
	case fGrace:
		if r.Grace = d.millis(0); r.Grace == 0 {
			r.Grace = lease.NoGrace
		}
	case fResume:
		r.Resume = d.text()
	case fPrefix:
		r.Prefix = d.text()
	case fAfter:
		r.After = d.text()
	case fLimit:
		r.Limit = int(d.integer(1, lease.MaxListed))
	case fContended:
		r.Contended = d.flag()
	case fBrief:
		r.Brief = d.flag()
	case fWatch:
		r.Watch = uint64(d.integer(1, maxInteger-1))
	case fBy:
		r.By = d.text()
	case fReason:
		r.Reason = d.text()
	}
}

// operation reads what to do, without copying a name that is known.
func (d *requestDecoder) operation() {
	if d.peek() != '"' {
		d.want("a string")
		return
	}
	start := d.pos
	raw, plain := d.quoted()
	if plain {
		if d.req.Do = parseOp(string(raw)); d.req.Do != 0 {
			return
		}
	}
	if d.err == "" {
		d.pos = start
		d.do = d.text()
		d.req.Do = parseOp(d.do)
	}
}

// positive reads a max. More than the limit is left to the contract to name.
func (d *requestDecoder) positive() int {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		d.want("a positive integer")
		return 0
	}
	n := d.integer(-maxInteger, 1<<31-1)
	if n < 1 && d.wrong == "" && d.err == "" {
		d.complain("max must be a positive integer, got %d", n)
	}
	return int(n)
}

// ttl reads a time to live. An explicit 0 is refused, since it could be meant as
// none, as for ever or as the default.
func (d *requestDecoder) ttl() {
	ttl := d.millis(-longest)
	switch {
	case d.wrong != "" || d.err != "":
	case ttl == 0:
		d.complain("ttl is 0: leave it out, give a number of milliseconds, or set forever")
	case ttl < 0:
		d.complain("ttl: %v is negative", ttl)
	case d.seen&fForever != 0:
		d.complain("ttl and forever exclude each other")
	default:
		d.req.TTL = ttl
	}
}

func (d *requestDecoder) forever() {
	yes := d.flag()
	switch {
	case d.wrong != "" || d.err != "":
	case d.seen&fTTL != 0:
		d.complain("ttl and forever exclude each other")
	case yes:
		d.req.TTL = lease.Forever
	}
}

// wait reads a bound on waiting. An explicit 0 is refused, since it could be
// meant as no bound or as no waiting.
func (d *requestDecoder) wait() time.Duration {
	wait := d.millis(-longest)
	switch {
	case d.wrong != "" || d.err != "":
	case wait == 0:
		d.complain("wait is 0: leave it out to wait without a bound, or set try")
	case wait < 0:
		d.complain("wait: %v is negative; leave it out to wait without a bound, or set try", wait)
	}
	return wait
}

// verdict says what is wrong with a request that is an object with a number.
func (d *requestDecoder) verdict() string {
	r := d.req
	switch {
	case d.seen&fDo == 0:
		return "do is missing: it names what to do"
	case r.Do == 0 && d.do != "":
		return "do: " + lease.QuoteKey(d.do) + " is not an operation of version 1"
	case d.wrong != "":
		return d.wrong
	case r.Do == 0:
		return "do is empty: it names what to do"
	}
	if extra := d.seen &^ (r.Do.allowed() | fN | fDo); extra != 0 {
		return "unknown field " + lease.QuoteKey(extra.String()) + " for " + r.Do.String()
	}
	return d.combination()
}

// combination checks which fields came together.
func (d *requestDecoder) combination() string {
	has := func(f fields) bool { return d.seen&f != 0 }
	r := d.req
	switch r.Do {
	case OpAcquire:
		switch {
		case has(fKey) && has(fKeys):
			return "key and keys exclude each other"
		case !has(fKey) && !has(fKeys):
			return "key is missing: acquire needs key or keys"
		case has(fID) && r.ID == "":
			return "id is empty: leave it out for a random one"
		}
	case OpRenew, OpRelease, OpDetach:
		switch {
		case has(fID) && has(fToken):
			return "id and token exclude each other"
		case has(fKey) && !has(fID):
			return "key goes with an id"
		case !has(fID) && !has(fToken):
			return "id is missing: " + r.Do.String() + " needs id or token"
		case has(fID) && r.ID == "":
			return "id is empty"
		}
	case OpCancel:
		if r.ID == "" {
			return "id is missing: cancel needs the id of the request"
		}
	case OpList, OpWatch:
		switch {
		case has(fKey) && has(fPrefix):
			return "key and prefix exclude each other"
		case has(fKey) && r.Key == "":
			return "key is empty"
		}
	case OpUnwatch:
		if r.Watch == 0 {
			return "watch is missing: unwatch needs the n of the watch"
		}
	case OpForce:
		if !has(fKey) {
			return "key is missing: force needs the key"
		}
	case OpOpen:
		if has(fResume) && r.Resume == "" {
			return "resume is empty: leave it out to begin a session"
		}
	}
	return ""
}
