package wire

import (
	"bytes"
	"errors"
	"io"
)

// ErrTooLong is the error of a Reader that met more bytes than its limit without
// a newline. What follows cannot be told apart any more.
var ErrTooLong = errors.New("frame too long")

// Buffer sizes of a Reader: small for the many connections that are idle, larger
// for those that send in bursts, so that a burst costs one read.
const (
	smallBuffer = 4 << 10
	burstBuffer = 64 << 10
)

// Reader cuts a stream into lines. It never holds more than its limit and never
// reads while a whole line is buffered.
type Reader struct {
	src  io.Reader
	max  int
	buf  []byte
	from int   // start of what is unread in buf
	to   int   // end of it
	seen int   // no newline lies between from and seen
	end  int   // the next newline, or -1 when none is known
	err  error // what the source said last; told when no line is left
}

// NewReader reads lines of up to max bytes from r.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{src: r, max: max, end: -1}
}

// Next returns the next line without its newline. It is valid until the next
// call. A last line that no newline ends is not returned: it may be half of one.
func (r *Reader) Next() ([]byte, error) {
	for !r.Ready() {
		if r.to-r.from > r.max {
			return nil, ErrTooLong
		}
		if r.err != nil {
			return nil, r.err
		}
		r.fill()
	}
	line := r.buf[r.from:r.end]
	r.from, r.seen, r.end = r.end+1, r.end+1, -1
	if len(line) > r.max {
		return nil, ErrTooLong
	}
	return line, nil
}

// Await waits until something has come, a whole line or a part of one.
func (r *Reader) Await() error {
	for r.from == r.to {
		if r.err != nil {
			return r.err
		}
		r.fill()
	}
	return nil
}

// Ready reports whether a whole line is buffered, so that Next will not read.
func (r *Reader) Ready() bool {
	if r.end >= 0 {
		return true
	}
	if i := bytes.IndexByte(r.buf[r.seen:r.to], '\n'); i >= 0 {
		r.end = r.seen + i
		return true
	}
	r.seen = r.to
	return false
}

// Peek reads once unless a whole line is buffered, and returns what the source
// said last: an error that Next is going to return once no line is left.
func (r *Reader) Peek() error {
	if r.err == nil && !r.Ready() && r.to-r.from <= r.max {
		r.fill()
	}
	return r.err
}

// fill makes room and reads once.
func (r *Reader) fill() {
	if r.from == r.to {
		r.from, r.to, r.seen = 0, 0, 0
		if len(r.buf) > burstBuffer {
			r.buf = nil // one large frame must not cost memory for ever
		}
	}
	switch {
	case r.buf == nil:
		r.buf = make([]byte, min(smallBuffer, r.max+1))
	case r.from > 0:
		n := copy(r.buf, r.buf[r.from:r.to])
		r.from, r.to, r.seen = 0, n, n
	}
	if r.to == len(r.buf) {
		r.grow()
	}
	for range 100 { // as bufio does: a reader that gives nothing for ever is broken
		n, err := r.src.Read(r.buf[r.to:])
		r.to += n
		r.err = err
		if n > 0 || err != nil {
			if r.to == len(r.buf) && len(r.buf) < burstBuffer {
				r.grow() // the peer sends faster than we read: take more at once
			}
			return
		}
	}
	r.err = io.ErrNoProgress
}

func (r *Reader) grow() {
	size := min(2*len(r.buf), r.max+1)
	if size <= len(r.buf) {
		return
	}
	buf := make([]byte, size)
	copy(buf, r.buf[:r.to])
	r.buf = buf
}
