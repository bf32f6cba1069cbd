package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// image is a directory's files by path.
type image map[string][]byte

func capture(t *testing.T, disk *crashfs.FS) image {
	t.Helper()
	im := image{}
	for _, path := range disk.Names(dir) {
		data, err := disk.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		im[path] = data
	}
	return im
}

// disk is a new disk with the image's files on it.
func (im image) disk() *crashfs.FS {
	d := crashfs.New(nil)
	for path, data := range im {
		d.WriteFile(path, data)
	}
	return d
}

// with returns the image with one file replaced.
func (im image) with(path string, data []byte) image {
	c := maps.Clone(im)
	c[path] = data
	return c
}

func (im image) paths() []string { return slices.Sorted(maps.Keys(im)) }

// last returns the path of the newest segment.
func (im image) last() string {
	segments := slices.DeleteFunc(im.paths(), func(p string) bool { return !strings.Contains(p, "segment-") })
	return segments[len(segments)-1]
}

// sample makes a journal with a snapshot and several segments after it, and
// returns the disk as it is with everything synced but unsynced frames at the
// end, and the world that knows what must be there.
func sample(t *testing.T, clean bool, unsynced int) (image, *world) {
	t.Helper()
	w := newWorld(journal.Interval, 3)
	disk := crashfs.New(nil)
	j, err := w.open(disk, 0)
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int, must bool) {
		for range n {
			rec := w.record(len(w.records))
			rec = rec[:min(len(rec), 100)]
			w.records = append(w.records, rec)
			j.Append(rec)
			if err := j.Commit(must); err != nil {
				t.Fatal(err)
			}
			w.committed = len(w.records)
			if must {
				w.acked = w.committed
			}
		}
	}
	put(10, true)
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for third := range 3 {
		var recs [][]byte
		for i := third; i < len(w.records); i += 3 {
			recs = append(recs, append([]byte("S"), w.records[i][1:]...))
		}
		if err := s.Write(recs); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	put(30, true)
	put(unsynced, false)
	if clean {
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		return capture(t, disk), w
	}
	im := capture(t, disk)
	disk.Crash()
	_ = j.Close() // it fails; the machine is gone
	return im, w
}

// judge opens a damaged image: a refusal is right, and so is everything that was
// synced; the rest breaks the promise. What was accepted must stay accepted.
func (w *world) judge(im image, o func(journal.Options) journal.Options) (refused bool, err error) {
	c := *w
	if o != nil {
		c.o = o(c.o)
	}
	disk := im.disk()
	j, err := c.open(disk, c.acked)
	if errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrFormat) {
		for path, data := range im {
			if now, rerr := disk.ReadFile(path); rerr != nil || string(now) != string(data) {
				return true, broken("%s was changed although the journal was refused", path)
			}
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := c.commit(j); err != nil {
		return false, err
	}
	if err := j.Close(); err != nil {
		return false, err
	}
	if err := c.run1(disk.Reopen(crashfs.Lose, 1, nil), len(c.records), 0); err != nil {
		return false, fmt.Errorf("opened once and not again: %w", err)
	}
	return false, nil
}

// flips calls fn with the image damaged at every byte of every file.
func (im image) flips(fn func(damaged image, path string, at int, bit int) error) error {
	for _, path := range im.paths() {
		written := end(im[path]) + 2*64
		for at := range im[path] {
			if !soak() && at > written && at%16 != 0 {
				continue // preallocated and never written: a sample will do
			}
			for bit := range 8 {
				if !soak() && bit != (at+at/16)%8 {
					continue
				}
				data := slices.Clone(im[path])
				data[at] ^= 1 << bit
				if err := fn(im.with(path, data), path, at, bit); err != nil {
					return fmt.Errorf("%s, byte %d, bit %d: %w", filepath.Base(path), at, bit, err)
				}
			}
		}
	}
	return nil
}

// A flipped bit is refused, or has hit what was not synced, or nothing at all.
func TestBitFlips(t *testing.T) {
	for _, tc := range []struct {
		name     string
		clean    bool
		unsynced int
	}{{"clean", true, 0}, {"synced", false, 0}, {"unsynced tail", false, 3}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			im, w := sample(t, tc.clean, tc.unsynced)
			refused, total := 0, 0
			err := im.flips(func(damaged image, _ string, _, _ int) error {
				total++
				no, err := w.judge(damaged, nil)
				if no {
					refused++
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if refused == 0 || refused == total {
				t.Errorf("%d of %d damaged journals were refused", refused, total)
			}
			t.Logf("%d of %d damaged journals were refused", refused, total)
		})
	}
}

// The judge rejects a journal without checksums, a repair that cuts at the first
// damage, and one that returns another record than was appended.
func TestJudgeRejectsDefects(t *testing.T) {
	im, w := sample(t, false, 0)
	last := im.last()
	constant := func(o journal.Options) journal.Options {
		return journal.WithChecksum(o, func(uint32, []byte) uint32 { return 7 })
	}
	t.Run("no checksum", func(t *testing.T) {
		// A journal that was written and is read without checksums.
		c := *w
		c.o = constant(c.o)
		disk := crashfs.New(nil)
		c.records, c.acked, c.committed = nil, 0, 0
		if err := c.run1(disk, 0, 20); err != nil {
			t.Fatal(err)
		}
		im := capture(t, disk)
		err := im.flips(func(damaged image, _ string, _, _ int) error {
			_, err := c.judge(damaged, constant)
			return err
		})
		var v violation
		if !errors.As(err, &v) {
			t.Fatalf("the judge accepts it: %v", err)
		}
		t.Logf("rejected: %v", err)
	})
	t.Run("cut at the damage", func(t *testing.T) {
		data := slices.Clone(im[last])
		clear(data[end(data)/2:])
		_, err := w.judge(im.with(last, data), nil)
		var v violation
		if !errors.As(err, &v) {
			t.Fatalf("the judge accepts it: %v", err)
		}
		t.Logf("rejected: %v", err)
	})
	t.Run("another record", func(t *testing.T) {
		// A record of the world is changed: what the disk returns is then wrong.
		c := *w
		c.records = slices.Clone(w.records)
		c.records[20] = append([]byte("J"), c.records[21][1:]...)
		_, err := c.judge(im, nil)
		var v violation
		if !errors.As(err, &v) {
			t.Fatalf("the judge accepts it: %v", err)
		}
		t.Logf("rejected: %v", err)
	})
}

// end returns where the last byte of a file that is not zero lies, plus one.
func end(data []byte) int {
	n := len(data)
	for n > 0 && data[n-1] == 0 {
		n--
	}
	return n
}

// A last write that was cut at any byte, with zeros after it or with the file
// ending there, is cut off and reported; a second run and a second crash are fine.
func TestTornTailAtEveryByte(t *testing.T) {
	synced, w := sample(t, false, 0)
	im, _ := sample(t, false, 1) // the same and one frame more
	last := im.last()
	if last != synced.last() {
		t.Fatal("the last frame must not begin a segment; change the sample")
	}
	begin, stop := end(synced[last]), end(im[last])
	for cut := begin; cut < stop; cut++ {
		for _, short := range []bool{false, true} {
			data := slices.Clone(im[last])
			clear(data[cut:])
			if short {
				data = data[:cut]
			}
			c := *w
			refused, err := c.judge(im.with(last, data), nil)
			if refused || err != nil {
				t.Fatalf("cut at %d of %d..%d, short %v: refused %v, %v", cut, begin, stop, short, refused, err)
			}
			checkTorn(t, &c, im.with(last, data), int64(end(data)-begin), last, int64(begin))
		}
	}
}

func checkTorn(t *testing.T, w *world, im image, torn int64, file string, offset int64) {
	t.Helper()
	c := *w
	j, err := c.open(im.disk(), c.acked)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	r := c.recovered
	if len(c.records) != w.acked || r.Clean {
		t.Errorf("%d records came back, want %d; clean %v", len(c.records), w.acked, r.Clean)
	}
	// The count is rounded up to whole blocks of 64 bytes.
	if r.TornBytes < torn || r.TornBytes > torn+64 {
		t.Errorf("%d torn bytes are reported, want %d", r.TornBytes, torn)
	}
	if torn > 0 && (r.TornFile != file || r.TornOffset != offset) {
		t.Errorf("torn at %s:%d, want %s:%d", r.TornFile, r.TornOffset, file, offset)
	}
}

// Any file that is missing, empty, or in another's place is noticed.
func TestMissingAndSwappedFiles(t *testing.T) {
	for _, clean := range []bool{true, false} {
		im, w := sample(t, clean, 0)
		if len(im) < 3 {
			t.Fatalf("the sample has %d files", len(im))
		}
		for _, path := range im.paths() {
			gone := maps.Clone(im)
			delete(gone, path)
			damaged := map[string]image{"missing": gone, "empty": im.with(path, nil), "garbage": im.with(path, []byte(strings.Repeat("x", 4096)))}
			for _, other := range im.paths() {
				if other != path {
					damaged["as "+other] = im.with(path, im[other])
				}
			}
			for how, d := range damaged {
				refused, err := w.judge(d, nil)
				if err != nil || !refused {
					t.Errorf("%s %s: refused %v, %v", path, how, refused, err)
				}
			}
		}
	}
}

// A synced frame that is made to look torn, in part or as a whole, is known by
// the frames after it, the next one included.
func TestDurableFrameThatLooksTorn(t *testing.T) {
	im, w := sample(t, false, 0)
	last := im.last()
	starts := frames(im[last])
	if len(starts) < 3 {
		t.Fatalf("the last segment holds %d frames", len(starts))
	}
	for i, at := range starts[:len(starts)-1] {
		for name, lost := range map[string][2]int{"head": {at, at + 64}, "tail": {starts[i+1] - 64, starts[i+1]}, "frame": {at, starts[i+1]}} {
			data := slices.Clone(im[last])
			clear(data[lost[0]:lost[1]])
			if i == len(starts)-2 {
				// Only the last frame speaks for this one.
				data = data[:end(im[last])]
			}
			if refused, err := w.judge(im.with(last, data), nil); err != nil || !refused {
				t.Errorf("frame %d, %s: refused %v, %v", i, name, refused, err)
			}
		}
	}
}

// frames returns where the frames of a segment begin, by their closing marks.
func frames(data []byte) []int {
	starts := []int{journal.HeaderSize}
	for at := journal.HeaderSize; at < end(data); at += 64 {
		if binary.LittleEndian.Uint32(data[at+60:]) == 0xd5a63e97 && at+64 < end(data) {
			starts = append(starts, at+64)
		}
	}
	return starts
}

// Segments that are whole in themselves and do not fit together are refused, and
// so is what follows the end of a snapshot.
func TestFilesThatDoNotFit(t *testing.T) {
	const salt = 5
	one, two := journal.EncodeFrame(1, 0, salt, []byte("a")), journal.EncodeFrame(2, 1, salt, []byte("b"))
	first := slices.Concat(journal.EncodeHeader(false, 1, 1, 0, salt), one, two)
	whole := int64(len(first))
	for _, tc := range []struct {
		name    string
		next    uint64
		prevEnd int64
		fits    bool
	}{
		{"fits", 3, whole, true},
		{"a frame more", 4, whole, false},
		{"a frame less", 2, whole, false},
		{"longer", 3, whole + 64, false},
		{"shorter", 3, whole - 64, false},
		{"within a frame", 3, whole - 1, false},
		{"nonsense", 3, -1, false},
	} {
		disk := crashfs.New(nil)
		disk.WriteFile(filepath.Join(dir, "segment-0000000000000001.log"), first)
		disk.WriteFile(filepath.Join(dir, "segment-0000000000000002.log"), journal.EncodeHeader(false, 2, tc.next, tc.prevEnd, salt))
		j, _, err := journal.Open(dir, journal.Options{FS: disk, SegmentSize: 4096}, nil)
		if tc.fits != (err == nil) || !tc.fits && !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%s: got %v", tc.name, err)
		}
		if j != nil {
			closeJournal(t, j)
		}
	}
	im, w := sample(t, false, 0)
	for _, path := range im.paths() {
		if strings.Contains(path, "snapshot-") {
			if refused, err := w.judge(im.with(path, append(slices.Clone(im[path]), 1)), nil); err != nil || !refused {
				t.Errorf("%s: refused %v, %v", path, refused, err)
			}
		}
	}
}

// Frames that no writer makes are refused, however right their checksums are.
func TestOversizedRecordAndFrame(t *testing.T) {
	const salt = 5
	path := filepath.Join(dir, "segment-0000000000000001.log")
	big := make([]byte, journal.MaxRecord)
	var many [][]byte
	for range journal.MaxFrame / journal.MaxRecord {
		many = append(many, big)
	}
	for name, frame := range map[string][]byte{
		"record": journal.EncodeFrame(1, 0, salt, append(big, 1)),
		"frame":  journal.EncodeFrame(1, 0, salt, many...),
		"number": journal.EncodeFrame(2, 0, salt, []byte("x")),
		"synced": journal.EncodeFrame(1, 1, salt, []byte("x")),
	} {
		disk := crashfs.New(nil)
		disk.WriteFile(path, append(journal.EncodeHeader(false, 1, 1, 0, salt), frame...))
		if _, _, err := journal.Open(dir, journal.Options{FS: disk}, nil); !errors.Is(err, journal.ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", name, err)
		}
	}
}

// A record that holds what would be a frame, and claims that everything was
// synced, proves nothing when it is all that is left of a torn write.
func TestFrameInsideARecord(t *testing.T) {
	disk := crashfs.New(nil)
	o := journal.Options{FS: disk, SegmentSize: 4096}
	j, _, _ := replay(t, dir, o)
	forged := journal.EncodeFrame(1000, 999, 0, []byte("x"))
	// The record's first byte lies 42 behind the frame's, which begins a block.
	rec := append(make([]byte, 22), bytes.Repeat(forged, 20)...)
	j.Append(rec)
	if err := j.Commit(false); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "segment-0000000000000001.log")
	data, err := disk.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	closeJournal(t, j)
	begin := strings.Index(string(data), string(forged[:40]))
	if begin < 0 || begin%64 != 0 {
		t.Fatalf("the forged frame lies at %d", begin)
	}
	clear(data[journal.HeaderSize : journal.HeaderSize+64]) // the frame's own head
	disk = crashfs.New(nil)
	disk.WriteFile(path, data)
	o.FS = disk
	j, r, recs := replay(t, dir, o)
	if len(recs) != 0 || r.TornBytes == 0 {
		t.Errorf("%d records came back, %d torn bytes", len(recs), r.TornBytes)
	}
	closeJournal(t, j)
}

// The refusal names the file, the offset and what to do.
func TestCorruptErrorSaysWhatToDo(t *testing.T) {
	im, w := sample(t, false, 0)
	last := im.last()
	data := slices.Clone(im[last])
	data[journal.HeaderSize+50] ^= 1
	_, err := w.open(im.with(last, data).disk(), 0)
	if !errors.Is(err, journal.ErrCorrupt) {
		t.Fatalf("got %v, want ErrCorrupt", err)
	}
	for _, part := range []string{last, "offset 64", "--token-floor", "backup", "had been synced"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// newer turns a file's header into one of format 2.
func newer(data []byte) []byte {
	data = slices.Clone(data)
	binary.LittleEndian.PutUint32(data[8:], 2)
	binary.LittleEndian.PutUint32(data[12:], crc32.Checksum(data[:12], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

func TestNewerFormatIsRefused(t *testing.T) {
	im, w := sample(t, true, 0)
	for _, path := range im.paths() {
		refused, err := w.judge(im.with(path, newer(im[path])), nil)
		if err != nil || !refused {
			t.Errorf("%s: refused %v, %v", path, refused, err)
		}
		_, err = w.open(im.with(path, newer(im[path])).disk(), 0)
		if !errors.Is(err, journal.ErrFormat) || !strings.Contains(err.Error(), "written by a newer version (format 2, this binary reads 1)") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
