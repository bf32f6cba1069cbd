package journal_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// FuzzReplay puts arbitrary bytes in the place of a segment, of the frames
// behind a valid header, of a snapshot and of a snapshot's frames, with the real
// checksum and with a constant one that lets the fuzzer behind it. Open must
// answer, must not allocate beyond its limits, and what it accepts it must accept
// again.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(nil), uint8(0))
	// A head that promises far more than the file holds.
	f.Add(journal.EncodeFrame(1, 0, 5, make([]byte, 8<<20))[:100], uint8(2))
	for _, constant := range []bool{false, true} {
		disk := crashfs.New(nil)
		w := newWorld(journal.Always, 1)
		w.o = fuzzOptions(constant)
		if err := w.run1(disk, 0, 12); err != nil {
			f.Fatal(err)
		}
		for _, path := range disk.Names(dir) {
			data, err := disk.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			for how := range uint8(8) {
				f.Add(data[:end(data)], how)
				if len(data) > journal.HeaderSize {
					f.Add(data[journal.HeaderSize:end(data)], how)
				}
			}
		}
	}
	f.Fuzz(fuzzReplay)
}

func fuzzOptions(constant bool) journal.Options {
	o := journal.Options{SegmentSize: 4096}
	if constant {
		o = journal.WithChecksum(o, func(uint32, []byte) uint32 { return 7 })
	}
	return o
}

func fuzzReplay(t *testing.T, data []byte, how uint8) {
	const segment, snapshot = dir + "/segment-0000000000000003.log", dir + "/snapshot-0000000000000003.snap"
	disk := crashfs.New(nil)
	asSnapshot, framesOnly, constant := how&1 != 0, how&2 != 0, how&4 != 0
	if framesOnly {
		data = append(journal.EncodeHeader(asSnapshot, 3, 1, 0, 5), data...)
	}
	if asSnapshot {
		disk.WriteFile(snapshot, data)
		disk.WriteFile(segment, journal.EncodeHeader(false, 3, 1, 0, 5))
	} else {
		disk.WriteFile(segment, data)
	}
	open := func() (int, error) {
		o := fuzzOptions(constant)
		o.FS = disk
		n := 0
		j, _, err := journal.Open(dir, o, func(rec []byte) error {
			if len(rec) > journal.MaxRecord {
				t.Errorf("a record of %d bytes", len(rec))
			}
			n++
			return nil
		})
		if err != nil {
			return n, err
		}
		return n, j.Close()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n, err := open()
	runtime.ReadMemStats(&after)
	// crashfs copies what is written; the journal itself reads through one buffer.
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(20*len(data))+4<<20 {
		t.Errorf("%d bytes of input took %d bytes of memory", len(data), used)
	}
	if err != nil {
		if !errors.Is(err, journal.ErrCorrupt) && !errors.Is(err, journal.ErrFormat) {
			t.Errorf("an error of another kind: %v", err)
		}
		return
	}
	if m, err := open(); m != n || err != nil {
		t.Errorf("%d records came back at first, then %d, %v", n, m, err)
	}
}
