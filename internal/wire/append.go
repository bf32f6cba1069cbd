package wire

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/lease"
)

// name appends the name of the next field. What comes before tells whether a
// comma is due: only an object or array just opened ends in a bracket of that
// kind.
func name(b []byte, n string) []byte {
	b = comma(b)
	b = append(b, '"')
	b = append(b, n...)
	return append(b, '"', ':')
}

func comma(b []byte) []byte {
	if c := b[len(b)-1]; c == '{' || c == '[' {
		return b
	}
	return append(b, ',')
}

func putInt(b []byte, n string, v int64) []byte {
	return strconv.AppendInt(name(b, n), v, 10)
}

// addInt, addText and addFlag leave a zero value out.
func addInt(b []byte, n string, v int64) []byte {
	if v == 0 {
		return b
	}
	return putInt(b, n, v)
}

func addFlag(b []byte, n string, v bool) []byte {
	if !v {
		return b
	}
	return append(name(b, n), "true"...)
}

func addText(b []byte, n, v string) []byte {
	if v == "" {
		return b
	}
	return putText(b, n, v)
}

func putText(b []byte, n, v string) []byte {
	return quote(name(b, n), v)
}

// quote appends a JSON string. Bytes that are not UTF-8 become the replacement
// character.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, s[from:i]...)
				b = append(b, "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		b = appendEscape(b, c)
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// quoteAsIs is quote for what the peer must judge: bytes that are not UTF-8
// stay, so that it refuses them, since replacing them would make one key of two.
func quoteAsIs(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			b = appendEscape(b, c)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

func appendEscape(b []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	}
	return append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
}

// floor is a duration in whole milliseconds, rounded down and not below zero: a
// time that is left, or that has passed.
func floor(d time.Duration) int64 { return max(int64(d/time.Millisecond), 0) }

// ceil is a duration in whole milliseconds, rounded away from zero: a time that
// is asked for. Nothing that was asked for becomes nothing.
func ceil(d time.Duration) int64 {
	ms, rest := int64(d/time.Millisecond), d%time.Millisecond
	switch {
	case rest > 0:
		ms++
	case rest < 0:
		ms--
	}
	return ms
}

// AppendRequest appends the frame of r with its newline.
func AppendRequest(b []byte, r *Request) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, r.N, 10)
	b = append(b, `,"do":"`...)
	b = append(b, r.Do.String()...)
	b = append(b, '"')
	switch r.Do {
	case OpAcquire:
		b = appendAcquire(b, r)
	case OpRenew, OpRelease, OpDetach, OpCancel:
		b = addAsIs(b, "id", r.ID)
		b = addAsIs(b, "key", r.Key)
		b = addInt(b, "token", int64(r.Token))
		b = addTTL(b, r.TTL)
	case OpOpen:
		b = addAsIs(b, "name", r.Name)
		b = addAsIs(b, "host", r.Host)
		b = addInt(b, "pid", int64(r.PID))
		if r.Grace == lease.NoGrace {
			b = putInt(b, "grace", 0)
		} else {
			b = addInt(b, "grace", ceil(r.Grace))
		}
		b = addAsIs(b, "resume", r.Resume)
	case OpList, OpWatch:
		b = addAsIs(b, "key", r.Key)
		b = addAsIs(b, "prefix", r.Prefix)
		b = addAsIs(b, "after", r.After)
		b = addInt(b, "limit", int64(r.Limit))
		b = addFlag(b, "contended", r.Contended)
		b = addFlag(b, "brief", r.Brief)
	case OpUnwatch:
		b = putInt(b, "watch", int64(r.Watch))
	case OpForce:
		b = quoteAsIs(name(b, "key"), r.Key)
		b = addInt(b, "token", int64(r.Token))
		b = addAsIs(b, "by", r.By)
		b = addAsIs(b, "reason", r.Reason)
	}
	return append(b, '}', '\n')
}

func appendAcquire(b []byte, r *Request) []byte {
	b = addAsIs(b, "id", r.ID)
	if r.Keys != nil {
		b = addList(b, "keys", r.Keys)
	} else {
		b = quoteAsIs(name(b, "key"), r.Key)
	}
	if r.Mode != lease.Exclusive {
		b = putText(b, "mode", r.Mode.String())
	}
	b = addInt(b, "max", int64(r.Max))
	b = addTTL(b, r.TTL)
	b = addFlag(b, "try", r.Try)
	b = addInt(b, "wait", ceil(r.Wait))
	b = addInt(b, "waited", floor(r.Waited))
	b = addFlag(b, "prefer_readers", r.PreferReaders)
	b = addInt(b, "max_hold", ceil(r.MaxHold))
	b = addInt(b, "lock_delay", ceil(r.LockDelay))
	b = addFlag(b, "detach", r.Detach)
	b = addAsIs(b, "label", r.Label)
	if len(r.Declared) > 0 {
		b = addList(b, "declared", r.Declared)
	}
	return b
}

func addTTL(b []byte, ttl time.Duration) []byte {
	if ttl == lease.Forever {
		return addFlag(b, "forever", true)
	}
	return addInt(b, "ttl", ceil(ttl))
}

func addAsIs(b []byte, n, v string) []byte {
	if v == "" {
		return b
	}
	return quoteAsIs(name(b, n), v)
}

func addList(b []byte, n string, list []string) []byte {
	b = append(name(b, n), '[')
	for _, v := range list {
		b = quoteAsIs(comma(b), v)
	}
	return append(b, ']')
}
