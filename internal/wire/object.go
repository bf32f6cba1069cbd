package wire

import (
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/lease"
)

// Value is the JSON text of one value, as it came.
type Value []byte

// Object calls member with every member of the JSON object in line, in order. It
// is for protocols that are laxer than ours: members may repeat and have any
// type. The error says what is wrong with the text; members before it were told.
func Object(line []byte, member func(name []byte, v Value)) error {
	s := scanner{data: line}
	if s.peek() != '{' {
		return protocolError("not a JSON object")
	}
	s.pos++
	for first := true; s.more('}', first); first = false {
		name := s.name()
		s.peek()
		start := s.pos
		s.skip(1)
		if s.err == "" {
			member(name, Value(line[start:s.pos]))
		}
	}
	s.finish()
	if s.err != "" {
		return protocolError("not JSON: %s at byte %d", s.err, s.at+1)
	}
	return nil
}

// Null reports whether the value is null, or was not there.
func (v Value) Null() bool { return len(v) == 0 || v[0] == 'n' }

// True reports whether the value is true.
func (v Value) True() bool { return len(v) > 0 && v[0] == 't' }

// False reports whether the value is false.
func (v Value) False() bool { return len(v) > 0 && v[0] == 'f' }

// IsText reports whether the value is a string.
func (v Value) IsText() bool { return len(v) > 0 && v[0] == '"' }

// IsNumber reports whether the value is a number.
func (v Value) IsNumber() bool { return len(v) > 0 && (v[0] == '-' || '0' <= v[0] && v[0] <= '9') }

// Text is what a string says. The second result says why it is not a text that we
// take, and is empty otherwise.
func (v Value) Text() (string, string) {
	if !v.IsText() {
		return "", "must be a string, got " + v.Clip()
	}
	return unquoteText(v[1 : len(v)-1])
}

// Each calls entry with every entry of an array, and reports whether it is one.
func (v Value) Each(entry func(Value)) bool {
	if len(v) == 0 || v[0] != '[' {
		return false
	}
	s := scanner{data: v, pos: 1}
	for first := true; s.more(']', first); first = false {
		s.peek()
		start := s.pos
		s.skip(1)
		entry(v[start:s.pos])
	}
	return true
}

// Positive reads an integer of at least 1. The error is lease.ErrRefused and
// begins with the name; unit, which may be empty, follows what it must be. One
// beyond 2^63 is cut to the greatest, which every limit then cuts or refuses.
func (v Value) Positive(name, unit string) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < 1 {
		return 0, lease.Refuse("%s must be a positive integer%s, got %s", name, unit, v.Clip())
	}
	return n, nil
}

// Clip renders a value for an error message.
func (v Value) Clip() string {
	const most = 64
	if len(v) <= most {
		return string(v)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return string(v[:cut]) + "…"
}

// AppendText appends s as a JSON string.
func AppendText(b []byte, s string) []byte { return quote(b, s) }

// AppendName appends the name of the next field, after a comma where one is due. The
// name is one of ours: it is not escaped.
func AppendName(b []byte, n string) []byte { return name(b, n) }

// AppendComma appends the comma before the next value, where one is due.
func AppendComma(b []byte) []byte { return comma(b) }
