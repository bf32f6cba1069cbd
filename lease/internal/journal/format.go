package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

const (
	formatVersion = 1
	fileMagic     = "latchjnl"
	headerSize    = 64
	sectorSize    = 512

	frameAlign = 64
	frameHead  = 40
	frameTail  = 4

	// Every byte of the two marks has several bits set: no single flipped bit
	// makes one look unwritten.
	headMark uint32 = 0xb7e4c96d
	tailMark uint32 = 0xd5a63e97
)

// The kinds of file and of frame. The numbers are on disk.
const (
	kindSegment  uint32 = 1
	kindSnapshot uint32 = 2

	kindData  uint32 = 1 // records
	kindClean uint32 = 2 // last frame of a run that was closed properly
	kindNext  uint32 = 3 // stands where a segment was left for the next one
	kindEnd   uint32 = 4 // last frame of a snapshot
)

// checksum sums p, starting from a file's salt.
type checksum func(salt uint32, p []byte) uint32

func crc32c(salt uint32, p []byte) uint32 {
	return crc32.Update(salt, crc32.MakeTable(crc32.Castagnoli), p)
}

// fileHeader is the start of a segment or a snapshot.
type fileHeader struct {
	kind    uint32
	number  uint64
	first   uint64 // number of the segment's first frame; of a snapshot: of the first frame it does not replace
	prevEnd int64  // where the segment before ends, 0 when there is none
	salt    uint32
}

// encode builds the header. The sums here are always real ones, unlike those of frames,
// because a format must be recognised whatever a test does to frames.
func (h fileHeader) encode() []byte {
	p := make([]byte, headerSize)
	copy(p, fileMagic)
	binary.LittleEndian.PutUint32(p[8:], formatVersion)
	binary.LittleEndian.PutUint32(p[12:], crc32c(0, p[:12]))
	binary.LittleEndian.PutUint32(p[16:], h.kind)
	binary.LittleEndian.PutUint64(p[20:], h.number)
	binary.LittleEndian.PutUint64(p[28:], h.first)
	binary.LittleEndian.PutUint64(p[36:], uint64(h.prevEnd))
	binary.LittleEndian.PutUint32(p[44:], h.salt)
	binary.LittleEndian.PutUint32(p[60:], crc32c(0, p[:60]))
	return p
}

func decodeHeader(path string, p []byte) (fileHeader, error) {
	le := binary.LittleEndian
	if len(p) < headerSize {
		return fileHeader{}, corruptf(path, 0, "the file is shorter than its header")
	}
	if string(p[:8]) != fileMagic || le.Uint32(p[12:]) != crc32c(0, p[:12]) {
		return fileHeader{}, corruptf(path, 0, "the file does not start with a journal's mark")
	}
	if v := le.Uint32(p[8:]); v > formatVersion {
		return fileHeader{}, fmt.Errorf("journal: %w: %s was written by a newer version (format %d, this binary reads %d): use that version, or another directory",
			ErrFormat, path, v, formatVersion)
	} else if v != formatVersion {
		return fileHeader{}, fmt.Errorf("journal: %w: %s has format %d, this binary reads %d", ErrFormat, path, v, formatVersion)
	}
	if le.Uint32(p[60:]) != crc32c(0, p[:60]) {
		return fileHeader{}, corruptf(path, 0, "the file's header fails its checksum")
	}
	return fileHeader{
		kind:    le.Uint32(p[16:]),
		number:  le.Uint64(p[20:]),
		first:   le.Uint64(p[28:]),
		prevEnd: int64(le.Uint64(p[36:])),
		salt:    le.Uint32(p[44:]),
	}, nil
}

// frameHeader is what stands before a frame's records.
type frameHeader struct {
	kind    uint32
	count   uint32
	seq     uint64
	synced  uint64
	length  uint32 // of the records, without the filling
	bodySum uint32
}

// size is the whole frame's length in the file.
func (h frameHeader) size() int64 { return frameSize(int64(h.length)) }

func frameSize(body int64) int64 {
	n := frameHead + body + frameTail
	return (n + frameAlign - 1) / frameAlign * frameAlign
}

func (h frameHeader) put(p []byte, salt uint32, sum checksum) {
	le := binary.LittleEndian
	le.PutUint32(p[0:], h.kind)
	le.PutUint32(p[4:], h.count)
	le.PutUint64(p[8:], h.seq)
	le.PutUint64(p[16:], h.synced)
	le.PutUint32(p[24:], h.length)
	le.PutUint32(p[28:], h.bodySum)
	le.PutUint32(p[32:], sum(salt, p[:32]))
	le.PutUint32(p[36:], headMark)
}

// decodeFrameHeader reports false for anything but an intact head.
func decodeFrameHeader(p []byte, salt uint32, sum checksum) (frameHeader, bool) {
	le := binary.LittleEndian
	if le.Uint32(p[36:]) != headMark || le.Uint32(p[32:]) != sum(salt, p[:32]) {
		return frameHeader{}, false
	}
	return frameHeader{
		kind:    le.Uint32(p[0:]),
		count:   le.Uint32(p[4:]),
		seq:     le.Uint64(p[8:]),
		synced:  le.Uint64(p[16:]),
		length:  le.Uint32(p[24:]),
		bodySum: le.Uint32(p[28:]),
	}, true
}

// batch collects records into frames, laid out as they will be in the file.
type batch struct {
	buf    []byte
	frames []span
	open   bool // the last frame takes more records
}

// span is one frame of a batch.
type span struct {
	start, end int
	length     uint32
	count      uint32
}

// add copies rec into the last frame, or into a new one when it would grow past limit.
func (b *batch) add(rec []byte, limit int) {
	need := len(rec) + binary.MaxVarintLen32
	if b.open && frameSize(int64(len(b.buf)-b.frames[len(b.frames)-1].start-frameHead+need)) > int64(limit) {
		b.seal()
	}
	if !b.open {
		b.begin()
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(rec)))
	b.buf = append(b.buf, rec...)
	b.frames[len(b.frames)-1].count++
}

// begin starts a frame, which may stay without records.
func (b *batch) begin() {
	b.frames = append(b.frames, span{start: len(b.buf)})
	b.buf = append(b.buf, make([]byte, frameHead)...)
	b.open = true
}

// seal fills the last frame up and closes it.
func (b *batch) seal() {
	if !b.open {
		return
	}
	s := &b.frames[len(b.frames)-1]
	s.length = uint32(len(b.buf) - s.start - frameHead)
	s.end = s.start + int(frameSize(int64(s.length)))
	b.buf = append(b.buf, make([]byte, s.end-frameTail-len(b.buf))...)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, tailMark)
	b.open = false
}

// stamp writes a sealed frame's head and returns the frame.
func (b *batch) stamp(s span, kind uint32, seq, synced uint64, salt uint32, sum checksum) []byte {
	p := b.buf[s.start:s.end]
	h := frameHeader{kind: kind, count: s.count, seq: seq, synced: synced, length: s.length}
	h.bodySum = sum(salt, p[frameHead:len(p)-frameTail])
	h.put(p, salt, sum)
	return p
}

// markFrame builds a frame without records.
func markFrame(kind uint32, seq, synced uint64, salt uint32, sum checksum) []byte {
	var b batch
	b.begin()
	b.seal()
	return b.stamp(b.frames[0], kind, seq, synced, salt, sum)
}

func (b *batch) reset() {
	if cap(b.buf) > keepBuffer {
		b.buf = nil
	}
	b.buf, b.frames, b.open = b.buf[:0], b.frames[:0], false
}

// readAt fills p from off; what lies behind the end of the file reads as zeros,
// as it does in a preallocated file.
func readAt(f io.ReaderAt, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n < len(p) && errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	if n == len(p) {
		return nil
	}
	return err
}

// records calls fn for each record of a body. Its error says what is malformed,
// or is fn's own.
func records(body []byte, count uint32, fn func([]byte) error) error {
	for i := range count {
		n, w := binary.Uvarint(body)
		if w <= 0 || n > MaxRecord || n > uint64(len(body)-w) {
			return fmt.Errorf("record %d of %d is malformed", i+1, count)
		}
		if err := fn(body[w : w+int(n)]); err != nil {
			return err
		}
		body = body[w+int(n):]
	}
	if len(body) != 0 {
		return fmt.Errorf("%d bytes follow the last record", len(body))
	}
	return nil
}
