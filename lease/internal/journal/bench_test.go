package journal_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

// BenchmarkCommit measures a durable commit of 1 and of 64 records of 100 bytes
// beside what the disk allows: the same number of bytes written to a preallocated
// file and synced, without a journal.
func BenchmarkCommit(b *testing.B) {
	for _, records := range []int{1, 64} {
		b.Run(fmt.Sprintf("journal/records=%d", records), func(b *testing.B) { benchJournal(b, records, journal.Always) })
		b.Run(fmt.Sprintf("raw/records=%d", records), func(b *testing.B) { benchRaw(b, records) })
		b.Run(fmt.Sprintf("unsynced/records=%d", records), func(b *testing.B) { benchJournal(b, records, journal.Never) })
	}
}

func benchJournal(b *testing.B, records int, policy journal.Policy) {
	j, _, err := journal.Open(b.TempDir(), journal.Options{Policy: policy}, nil)
	if err != nil {
		b.Fatal(err)
	}
	rec := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		for range records {
			j.Append(rec)
		}
		if err := j.Commit(false); err != nil {
			b.Fatal(err)
		}
	}
	st := j.Stats()
	b.ReportMetric(float64(st.Bytes)/float64(st.Frames), "B/frame")
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchRaw(b *testing.B, records int) {
	f, err := journal.OS().Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Preallocate(journal.DefaultSegmentSize); err != nil {
		b.Fatal(err)
	}
	p := make([]byte, records*101+44)
	for i := range p {
		p[i] = byte(i)
	}
	off := int64(0)
	for b.Loop() {
		if off+int64(len(p)) > journal.DefaultSegmentSize {
			off = 0
		}
		if _, err := f.WriteAt(p, off); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		off += int64(len(p))
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}
