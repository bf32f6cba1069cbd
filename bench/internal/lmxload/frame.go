package lmxload

import (
	"bytes"
	"strconv"
)

// frame is what matters of a frame from a broker. It points into the line.
type frame struct {
	kind    []byte // the type, without quotes as all that is text
	uuid    []byte
	key     []byte
	problem []byte // the value of error or warning, as it stands
	token   uint64
	again   bool // a re-election

	acquired, unlocked, info answer
}

// answer is a boolean that may be missing.
type answer byte

const (
	missing answer = iota
	no
	yes
)

// parse scans one line, without its end, and reports whether it is an object in
// the compact form that both brokers write. Values that do not matter may be
// anything.
func (f *frame) parse(b []byte) bool {
	*f = frame{}
	last := len(b) - 1
	if last < 1 || b[0] != '{' || b[last] != '}' {
		return false
	}
	for i := 1; i < last; {
		n := textLen(b[i:last])
		if n == 0 || b[i+n] != ':' {
			return false
		}
		name := b[i+1 : i+n-1]
		i += n + 1
		if n = valueLen(b[i:last]); n == 0 {
			return false
		}
		if !f.take(name, b[i:i+n]) {
			return false
		}
		i += n
		if i < last {
			if b[i] != ',' || i+1 == last {
				return false
			}
			i++
		}
	}
	return true
}

func (f *frame) take(name, v []byte) (ok bool) {
	switch string(name) {
	case "type":
		f.kind, ok = text(v)
	case "uuid":
		f.uuid, ok = text(v)
	case "key":
		f.key, ok = text(v)
	case "acquired":
		f.acquired, ok = boolean(v)
	case "unlocked":
		f.unlocked, ok = boolean(v)
	case "lockInfo":
		f.info, ok = boolean(v)
	case "reelection":
		f.again, ok = true, true
	case "fencingToken":
		n, err := strconv.ParseUint(string(v), 10, 53)
		f.token, ok = n, err == nil
	case "error", "warning":
		f.problem, ok = v, true
	default:
		ok = true
	}
	return ok
}

func text(v []byte) ([]byte, bool) {
	if v[0] != '"' {
		return nil, false
	}
	return v[1 : len(v)-1], true
}

func boolean(v []byte) (answer, bool) {
	switch string(v) {
	case "true":
		return yes, true
	case "false":
		return no, true
	}
	return missing, false
}

// textLen is the length of the string that b begins with, quotes included; zero
// when there is none.
func textLen(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return 0
	}
	for i := 1; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// valueLen is the length of the value that b begins with; zero when there is
// none.
func valueLen(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case '"':
		return textLen(b)
	case '{', '[':
		return nestedLen(b)
	}
	if n := bytes.IndexByte(b, ','); n >= 0 {
		return n
	}
	return len(b)
}

func nestedLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := textLen(b[i:])
			if n == 0 {
				return 0
			}
			i += n - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}
