package wire

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Grant is an answer about one key, the frame that a client sees most. ID and
// Key are parts of the line.
type Grant struct {
	N         uint64
	ID, Key   []byte
	Token     lease.Token
	TTL       time.Duration // zero in the answer to release and cancel
	Elapsed   time.Duration
	Remaining time.Duration
	Waited    time.Duration
	Detached  bool
}

// ScanGrant fills g from a line that is an answer about one key and has exactly
// the shape in which AppendReply writes it. It allocates nothing. False says
// nothing about the line: decode it with DecodeReply.
//
// Text with escapes is left to DecodeReply. Other text is not checked: compare it
// with what is expected, and decode the line if it differs.
func ScanGrant(line []byte, g *Grant) bool {
	s := shape{rest: line, ok: true}
	s.want(`{"n":`)
	g.N = uint64(s.number())
	s.want(`,"ok":true,"id":"`)
	g.ID = s.plain()
	s.want(`,"key":"`)
	g.Key = s.plain()
	s.want(`,"token":`)
	g.Token = lease.Token(s.number())
	g.TTL, g.Elapsed, g.Remaining, g.Waited, g.Detached = 0, 0, 0, 0, false
	switch {
	case s.has(`,"forever":true,"elapsed":`):
		g.TTL, g.Remaining = lease.Forever, lease.Forever
		g.Elapsed = s.millis()
	case s.has(`,"ttl":`):
		g.TTL = s.millis()
		s.want(`,"elapsed":`)
		g.Elapsed = s.millis()
		s.want(`,"remaining":`)
		g.Remaining = s.millis()
	}
	if g.TTL != 0 {
		s.want(`,"waited":`)
		g.Waited = s.millis()
		g.Detached = s.has(`,"detached":true`)
	}
	s.want(`}`)
	return s.ok && len(s.rest) == 0 && g.N != 0 && g.Token != 0 && len(g.ID) > 0 && len(g.Key) > 0
}

// shape is what is left of a line that is hoped to have a certain shape. Once it
// has not, nothing is read any more.
type shape struct {
	rest []byte
	ok   bool
}

// has passes over text if it comes next.
func (s *shape) has(text string) bool {
	if !s.ok || len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

// want passes over text that must come next.
func (s *shape) want(text string) {
	s.ok = s.has(text)
}

// plain reads text without escapes up to the quote that ends it.
func (s *shape) plain() []byte {
	for i, c := range s.rest {
		switch {
		case c == '"':
			text := s.rest[:i]
			s.rest = s.rest[i+1:]
			return text
		case c == '\\' || c < ' ':
			s.ok = false
			return nil
		}
	}
	s.ok = false
	return nil
}

// number reads an integer that is not negative and below 2^53.
func (s *shape) number() int64 {
	n := 0
	for n < len(s.rest) && '0' <= s.rest[n] && s.rest[n] <= '9' {
		n++
	}
	if n == 0 || n > 1 && s.rest[0] == '0' {
		s.ok = false
		return 0
	}
	v, whole := parseInteger(s.rest[:n])
	s.rest = s.rest[n:]
	s.ok = s.ok && whole
	return v
}

// millis reads a duration.
func (s *shape) millis() time.Duration {
	n := s.number()
	if n > longest {
		s.ok = false
	}
	return time.Duration(n) * time.Millisecond
}
