package wire

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over one JSON text. The first syntax error sticks; after it every
// method returns at once.
type scanner struct {
	data []byte
	pos  int
	err  string // what is wrong with the text, empty while nothing is
	at   int    // where
}

func (s *scanner) fail(what string) {
	if s.err == "" {
		s.err, s.at = what, s.pos
		s.pos = len(s.data)
	}
}

// peek skips white space and returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// more advances to the next entry of the object or array that bracket closes,
// and reports whether there is one.
func (s *scanner) more(bracket byte, first bool) bool {
	c := s.peek()
	switch {
	case s.err != "":
		return false
	case c == bracket:
		s.pos++
		return false
	case first:
		return true
	case c != ',':
		s.fail("want , or " + string(bracket))
		return false
	}
	s.pos++
	return true
}

// name reads the name of an object's field and the colon. It is raw: a name
// with an escape in it is returned unescaped by copying.
func (s *scanner) name() []byte {
	if s.peek() != '"' {
		s.fail("want a field name in quotes")
		return nil
	}
	raw, plain := s.quoted()
	if s.peek() != ':' {
		s.fail("want : after a field name")
		return nil
	}
	s.pos++
	if !plain {
		text, _ := unquote(raw)
		return []byte(text)
	}
	return raw
}

// quoted reads a string and returns what is between the quotes, and whether it
// is plain: ASCII without escapes.
func (s *scanner) quoted() (raw []byte, plain bool) {
	s.pos++
	start := s.pos
	plain = true
	for s.pos < len(s.data) {
		s.pos += run(s.data[s.pos:])
		if s.pos == len(s.data) {
			break
		}
		switch c := s.data[s.pos]; {
		case c == '"':
			raw = s.data[start:s.pos]
			s.pos++
			return raw, plain
		case c == '\\':
			plain = false
			if !s.escape() {
				return nil, false
			}
		case c < ' ':
			s.fail("a control character in a string must be escaped")
			return nil, false
		default:
			plain = false
			s.pos++
		}
	}
	s.fail("the string does not end")
	return nil, false
}

// run is how many bytes at the start of b are ASCII that stands for itself in a
// string. It takes most of the time of reading a frame, so it has its own loop.
func run(b []byte) int {
	for i, c := range b {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return len(b)
}

// escape checks one escape sequence.
func (s *scanner) escape() bool {
	rest := s.data[s.pos:]
	if len(rest) >= 2 {
		switch rest[1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.pos += 2
			return true
		case 'u':
			if _, ok := hex4(rest); ok {
				s.pos += 6
				return true
			}
		}
	}
	s.fail("not an escape sequence")
	return false
}

// hex4 reads \uXXXX.
func hex4(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// unquote resolves the escapes of a string that quoted accepted. The text that
// comes second says why it is not one that we take, and is empty otherwise; the
// first has replacement characters then, as encoding/json would put them.
func unquote(raw []byte) (string, string) {
	out := make([]byte, 0, len(raw))
	wrong := ""
	for i := 0; i < len(raw); {
		c := raw[i]
		switch {
		case c == '\\' && raw[i+1] == 'u':
			r, _ := hex4(raw[i:])
			i += 6
			if utf16.IsSurrogate(r) {
				low, _ := hex4(raw[i:])
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r = pair
					i += 6
				} else {
					r = utf8.RuneError
					wrong = "has half of a surrogate pair"
				}
			}
			out = utf8.AppendRune(out, r)
		case c == '\\':
			out = append(out, unescaped(raw[i+1]))
			i += 2
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(raw[i:])
			if r == utf8.RuneError && n == 1 {
				wrong = "is not valid UTF-8"
			}
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	return string(out), wrong
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// number reads a number. It is whole when it has neither fraction nor exponent
// and is below the bound of integers.
func (s *scanner) number() (n int64, whole bool) {
	start := s.pos
	if s.at0('-') {
		s.pos++
	}
	switch {
	case s.at0('0'):
		s.pos++
	case !s.digits():
		s.fail("not a number")
		return 0, false
	}
	whole = true
	if s.at0('.') {
		whole = false
		s.pos++
		if !s.digits() {
			s.fail("a number ends in its point")
			return 0, false
		}
	}
	if s.at0('e') || s.at0('E') {
		whole = false
		s.pos++
		if s.at0('+') || s.at0('-') {
			s.pos++
		}
		if !s.digits() {
			s.fail("a number has an empty exponent")
			return 0, false
		}
	}
	if !whole {
		return 0, false
	}
	return parseInteger(s.data[start:s.pos])
}

func parseInteger(text []byte) (int64, bool) {
	if len(text) > 17 { // a sign and sixteen digits reach 2^53
		return 0, false
	}
	negative := text[0] == '-'
	if negative {
		text = text[1:]
	}
	var n int64
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	if n >= maxInteger {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func (s *scanner) at0(c byte) bool { return s.pos < len(s.data) && s.data[s.pos] == c }

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && '0' <= s.data[s.pos] && s.data[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) word(w string) {
	if len(s.data)-s.pos < len(w) || string(s.data[s.pos:s.pos+len(w)]) != w {
		s.fail("not a value")
		return
	}
	s.pos += len(w)
}

// kind names the type of the value that comes next, for messages.
func (s *scanner) kind() string {
	switch s.peek() {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// skip passes over a value of any kind.
func (s *scanner) skip(depth int) {
	if depth > maxDepth {
		s.fail("nested deeper than " + strconv.Itoa(maxDepth) + " levels")
		return
	}
	switch c := s.peek(); c {
	case '"':
		s.quoted()
	case '{':
		s.pos++
		for first := true; s.more('}', first); first = false {
			s.name()
			s.skip(depth + 1)
		}
	case '[':
		s.pos++
		for first := true; s.more(']', first); first = false {
			s.skip(depth + 1)
		}
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	case 0:
		s.fail("a value is missing")
	default:
		s.number()
	}
}

// finish checks that nothing follows the value.
func (s *scanner) finish() {
	if s.peek() != 0 || s.pos < len(s.data) {
		s.fail("something follows the object")
	}
}
