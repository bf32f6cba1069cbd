package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// frameState says what lies at a place where a frame may begin.
type frameState int

const (
	frameIntact  frameState = iota
	frameBlank              // zeros, or the end of the file
	frameTorn               // cut short, as by a write that did not complete
	frameDamaged            // there to its end, and changed
)

type frame struct {
	head  frameHeader
	body  []byte // the records, valid until the next call
	state frameState
}

// reader reads one file's frames, holding one of them in memory.
type reader struct {
	path   string
	f      File
	size   int64
	header fileHeader
	sum    checksum
	buf    []byte
}

func (j *Journal) openReader(path string, kind uint32, number uint64) (*reader, error) {
	f, err := j.o.FS.Open(path)
	if err != nil {
		return nil, fmt.Errorf("journal: open %s: %w", path, err)
	}
	r := &reader{path: path, f: f, sum: j.o.sum}
	err = r.readHeader()
	if err == nil && (r.header.kind != kind || r.header.number != number) {
		err = corruptf(path, 0, "the header is that of another file")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *reader) readHeader() error {
	var err error
	if r.size, err = r.f.Size(); err != nil {
		return fmt.Errorf("journal: size of %s: %w", r.path, err)
	}
	p := make([]byte, min(headerSize, r.size))
	if err := readAt(r.f, p, 0); err != nil {
		return fmt.Errorf("journal: read %s: %w", r.path, err)
	}
	r.header, err = decodeHeader(r.path, p)
	return err
}

func (r *reader) close() error {
	if err := r.f.Close(); err != nil {
		return fmt.Errorf("journal: close %s: %w", r.path, err)
	}
	return nil
}

// read returns n bytes from off, in memory that the next read uses again.
func (r *reader) read(off, n int64) ([]byte, error) {
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	p := r.buf[:n]
	if err := readAt(r.f, p, off); err != nil {
		return nil, fmt.Errorf("journal: read %s at offset %d: %w", r.path, off, err)
	}
	return p, nil
}

// frame reads the frame at off and judges it by itself.
func (r *reader) frame(off int64) (frame, error) {
	p, err := r.read(off, frameHead)
	if err != nil {
		return frame{}, err
	}
	h, ok := decodeFrameHeader(p, r.header.salt, r.sum)
	switch {
	case !ok && blank(p):
		return frame{state: frameBlank}, nil
	case !ok && p[frameHead-1] == 0:
		return frame{state: frameTorn}, nil
	case !ok, h.size() > MaxFrame, h.synced >= h.seq:
		return frame{state: frameDamaged}, nil
	case off+h.size() > r.size:
		// The head is there and the file ends: its length never became durable.
		return frame{head: h, state: frameTorn}, nil
	}
	if p, err = r.read(off, h.size()); err != nil {
		return frame{}, err
	}
	f := frame{head: h, body: p[frameHead : frameHead+int64(h.length)]}
	tail := p[len(p)-frameTail:]
	switch {
	case binary.LittleEndian.Uint32(tail) == tailMark && h.bodySum == r.sum(r.header.salt, p[frameHead:len(p)-frameTail]):
		f.state = frameIntact
	case tail[frameTail-1] == 0, sectorMissing(p, off):
		f.state = frameTorn
	default:
		f.state = frameDamaged
	}
	return f, nil
}

// sectorMissing tells whether a whole sector of p, which lies at off, is zero.
// The parts of a sector at both ends of p hold a mark and are never all zero
// unless they are missing.
func sectorMissing(p []byte, off int64) bool {
	for len(p) > 0 {
		n := min(int64(len(p)), sectorSize-off%sectorSize)
		if blank(p[:n]) {
			return true
		}
		p, off = p[n:], off+n
	}
	return false
}

// tornTail judges the end of the last segment: frame number seq was expected at
// off and f was found. It returns how many bytes a torn write left there, or an
// error when what is missing had been durable.
func (r *reader) tornTail(off int64, seq uint64, f frame) (int64, error) {
	end := off
	for at := off; at < r.size; {
		p, err := r.read(at, min(copyChunk, r.size-at))
		if err != nil {
			return 0, err
		}
		for i := 0; i < len(p); i += frameAlign {
			block := p[i:min(i+frameAlign, len(p))]
			if blank(block) {
				continue
			}
			end = at + int64(i+len(block))
			if len(block) < frameHead {
				continue
			}
			later, ok := decodeFrameHeader(block, r.header.salt, r.sum)
			if ok && later.synced >= seq {
				return 0, corruptf(r.path, off, "frame %d is damaged or missing, and frame %d at offset %d shows that it had been synced",
					seq, later.seq, at+int64(i))
			}
		}
		at += int64(len(p))
	}
	if f.state == frameDamaged {
		return 0, corruptf(r.path, off, "frame %d is there to its end and fails its checksum, so it was changed after it was written", seq)
	}
	return end - off, nil
}

// writeAgain rewrites the file's first end bytes in place and syncs. The run before may have seen its sync fail; the system then forgets that
// the pages were never written, and only writing makes it try again.
func (r *reader) writeAgain(end int64) error {
	for at := int64(0); at < end; {
		p, err := r.read(at, min(copyChunk, end-at))
		if err != nil {
			return err
		}
		if _, err := r.f.WriteAt(p, at); err != nil {
			return err
		}
		at += int64(len(p))
	}
	return r.f.Sync()
}

// blank tells whether p is all zeros: its first byte is, and each is like the next.
func blank(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[:len(p)-1], p[1:])
}
