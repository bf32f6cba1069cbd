package wire

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/lease"
)

// decoder reads typed values and keeps the first complaint about one, so that
// the rest of the frame is still read: the number that an answer must carry may
// come last.
type decoder struct {
	scanner
	field []byte // the name of the field whose value is read, for complaints
	wrong string // the first complaint
}

func (d *decoder) complain(format string, args ...any) {
	if d.wrong == "" {
		d.wrong = fmt.Sprintf(format, args...)
	}
}

// want complains about a value of another type, and skips it.
func (d *decoder) want(what string) {
	got := d.kind()
	d.skip(1)
	if d.err == "" {
		d.complain("%s must be %s, got %s", d.field, what, got)
	}
}

func (d *decoder) text() string {
	if d.peek() != '"' {
		d.want("a string")
		return ""
	}
	raw, plain := d.quoted()
	if plain || d.err != "" {
		return string(raw)
	}
	text, wrong := unquoteText(raw)
	if wrong != "" {
		d.complain("%s %s", d.field, wrong)
	}
	return text
}

// unquoteText is unquote with a short way for text that is not ASCII but has
// no escapes.
func unquoteText(raw []byte) (string, string) {
	for _, c := range raw {
		if c == '\\' {
			return unquote(raw)
		}
	}
	if utf8.Valid(raw) {
		return string(raw), ""
	}
	return unquote(raw)
}

// integer reads an integer between low and high.
func (d *decoder) integer(low, high int64) int64 {
	switch c := d.peek(); {
	case c != '-' && (c < '0' || c > '9'):
		d.want("an integer")
		return 0
	}
	start := d.pos
	n, whole := d.number()
	switch {
	case d.err != "":
		return 0
	case !whole:
		d.complain("%s must be an integer below 2^53, got %s", d.field, cut(d.data[start:d.pos]))
		return 0
	case n < low:
		d.complain("%s must be at least %d, got %d", d.field, low, n)
		return 0
	case n > high:
		d.complain("%s must be at most %d, got %d", d.field, high, n)
		return 0
	}
	return n
}

func cut(text []byte) string {
	if len(text) > 32 {
		return string(text[:32]) + "…"
	}
	return string(text)
}

// longest is the longest duration that a field can carry: about 292 years. What
// is sensible is the contract's to say.
const longest = int64((1<<63 - 1) / time.Millisecond)

// millis reads a duration: an integer number of milliseconds from low on.
func (d *decoder) millis(low int64) time.Duration {
	if c := d.peek(); c != '-' && (c < '0' || c > '9') {
		d.want("an integer number of milliseconds")
		return 0
	}
	return time.Duration(d.integer(low, longest)) * time.Millisecond
}

// token reads the token of a hold; zero is none, and no request names it.
func (d *decoder) token() lease.Token {
	return lease.Token(d.integer(0, maxInteger-1))
}

func (d *decoder) flag() bool {
	switch d.peek() {
	case 't':
		d.word("true")
		return d.err == ""
	case 'f':
		d.word("false")
		return false
	}
	d.want("true or false")
	return false
}

func (d *decoder) mode() lease.Mode {
	name := d.text()
	for _, m := range [...]lease.Mode{lease.Exclusive, lease.Shared, lease.Counted} {
		if m.String() == name {
			return m
		}
	}
	d.complain("%s must be exclusive, shared or counted, got %s", d.field, lease.QuoteKey(name))
	return 0
}

// list reads an array; entry reads one value of it.
func (d *decoder) list(of string, entry func()) {
	if d.peek() != '[' {
		d.want("an array of " + of)
		return
	}
	d.pos++
	for first := true; d.more(']', first); first = false {
		entry()
	}
}

func (d *decoder) texts() []string {
	out := []string{}
	d.list("strings", func() { out = append(out, d.text()) })
	return out
}

func (d *decoder) tokens() []lease.Token {
	var out []lease.Token
	d.list("integers", func() { out = append(out, d.token()) })
	return out
}

// object reads a nested object; entry reads the value of the field name. Field
// names are the nested ones while it runs.
func (d *decoder) object(entry func(name string)) {
	if d.peek() != '{' {
		d.want("an object")
		return
	}
	outer := d.field
	d.pos++
	for first := true; d.more('}', first); first = false {
		d.field = d.name()
		entry(string(d.field))
	}
	d.field = outer
}
