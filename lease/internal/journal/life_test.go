package journal_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

const dir = "/data"

// world is what must be true of a journal across any number of runs: which
// records exist, and which of them were promised to be kept.
//
// Each record carries its index and, for the rest, bytes that differ from run to
// run, so that a record that was lost and then comes back is noticed.
type world struct {
	policy    journal.Policy
	records   [][]byte // record i, as it was last appended
	acked     int      // records 0..acked-1 survive a power cut
	committed int      // records 0..committed-1 survive the death of the process
	run       uint32

	recovered journal.Recovered
	rnd       *rand.Rand
	o         journal.Options
}

func newWorld(policy journal.Policy, seed uint64) *world {
	return &world{
		policy: policy, rnd: rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15, ^seed*0xd1b54a32d192ed03)),
		o: journal.Options{Policy: policy, SegmentSize: 4096},
	}
}

// record makes record i of this run.
func (w *world) record(i int) []byte {
	n := w.rnd.IntN(200)
	if w.rnd.IntN(30) == 0 {
		n = 6000 // more than a segment
	}
	p := make([]byte, 9, 17+n)
	p[0] = 'J'
	binary.LittleEndian.PutUint32(p[1:], uint32(i))
	binary.LittleEndian.PutUint32(p[5:], w.run)
	for len(p) < 9+n {
		p = binary.LittleEndian.AppendUint64(p, w.rnd.Uint64())
	}
	return p[:9+n]
}

// violation is a promise that the journal broke, as against an error it returned.
type violation struct{ what string }

func (v violation) Error() string { return v.what }

func broken(format string, args ...any) error { return violation{fmt.Sprintf(format, args...)} }

// state collects a replay and checks its order.
type state struct {
	w    *world
	recs map[int][]byte
	next int // index of the next journal record, -1 before the first
}

func (s *state) apply(rec []byte) error {
	if len(rec) < 9 {
		return broken("replay of a record that was never appended: %x", rec)
	}
	i := int(binary.LittleEndian.Uint32(rec[1:]))
	if i >= len(s.w.records) {
		return broken("replay of record %d of %d", i, len(s.w.records))
	}
	switch {
	case rec[0] == 'S' && s.next >= 0:
		return broken("a snapshot record was replayed after record %d", s.next-1)
	case rec[0] == 'J' && s.next >= 0 && i != s.next:
		return broken("record %d was replayed where %d belongs", i, s.next)
	case rec[0] == 'J':
		s.next = i + 1
	}
	if string(rec[1:]) != string(s.w.records[i][1:]) {
		return broken("record %d was altered, or comes from a run that lost it", i)
	}
	s.recs[i] = append([]byte(nil), rec...)
	return nil
}

// open recovers and checks what came back. mustKeep is how many records must be there.
func (w *world) open(fs journal.FS, mustKeep int) (*journal.Journal, error) {
	o := w.o
	o.FS = fs
	s := &state{w: w, recs: map[int][]byte{}, next: -1}
	j, rec, err := journal.Open(dir, o, s.apply)
	w.recovered = rec
	if err != nil {
		return nil, err
	}
	for i := range len(s.recs) {
		if s.recs[i] == nil {
			err = broken("%d records came back, but not record %d", len(s.recs), i)
		}
	}
	if len(s.recs) < mustKeep {
		err = broken("%d records came back, %d had been promised", len(s.recs), mustKeep)
	}
	if rec.Clean && len(s.recs) < w.committed {
		err = broken("the end was called clean, and %d of %d records came back", len(s.recs), w.committed)
	}
	if err != nil {
		_ = j.Close() // the violation is what counts
		return nil, err
	}
	w.records = w.records[:len(s.recs)]
	w.acked, w.committed = len(s.recs), len(s.recs)
	w.run++
	return j, nil
}

// live drives a journal as its owner would, for steps steps or until an error.
func (w *world) live(j *journal.Journal, steps int) error {
	var snap *journal.Snapshot
	pieces := 0
	for range steps {
		var err error
		switch k := w.rnd.IntN(10); {
		case k < 6:
			err = w.commit(j)
		case k == 6:
			if err = j.Sync(); err == nil {
				w.acked = w.committed
			}
		case snap == nil:
			if w.rnd.IntN(2) == 0 {
				w.add(j) // not yet committed when the snapshot begins
			}
			if snap, err = j.Snapshot(); err == nil {
				pieces = 0
				err = w.piece(j, snap, 0)
			} else if j.Err() == nil {
				snap, err = nil, nil // a failed beginning leaves the journal usable
			}
		case pieces < 2:
			pieces++
			err = w.piece(j, snap, pieces)
		default:
			err = w.endSnapshot(j, snap)
			snap = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commit appends a few records and commits them.
func (w *world) commit(j *journal.Journal) error {
	for range 1 + w.rnd.IntN(4) {
		w.add(j)
	}
	must := w.rnd.IntN(4) == 0
	if err := j.Commit(must); err != nil {
		return err
	}
	w.committed = len(w.records)
	if must || w.policy == journal.Always {
		w.acked = w.committed
	}
	return nil
}

func (w *world) add(j *journal.Journal) {
	rec := w.record(len(w.records))
	w.records = append(w.records, rec)
	j.Append(rec)
}

// piece hands over a third of the state as it is now; the last piece is at times
// preceded by an append that no commit has written yet.
func (w *world) piece(j *journal.Journal, s *journal.Snapshot, third int) error {
	if third == 2 && w.rnd.IntN(2) == 0 {
		w.add(j)
	}
	var recs [][]byte
	for i, rec := range w.records {
		if i%3 == third {
			p := append([]byte(nil), rec...)
			p[0] = 'S'
			recs = append(recs, p)
		}
	}
	if err := s.Write(recs); err != nil {
		return nil // the snapshot cannot succeed; its Commit will say so
	}
	// The writer has dealt with the piece: calls come in the same order each time.
	<-s.Ready()
	return nil
}

// endSnapshot commits or, at times, aborts.
func (w *world) endSnapshot(j *journal.Journal, s *journal.Snapshot) error {
	if w.rnd.IntN(5) == 0 {
		s.Abort()
		return nil
	}
	outcome := make(chan error, 1)
	s.Commit(func(err error) { outcome <- err })
	if err := <-outcome; err == nil {
		w.acked, w.committed = len(w.records), len(w.records)
	}
	return j.Err()
}

// asViolation tells a broken promise from an error that the disk explains.
func asViolation(err error) error {
	var v violation
	if errors.As(err, &v) || errors.Is(err, journal.ErrCorrupt) || errors.Is(err, journal.ErrFormat) || errors.Is(err, journal.ErrLocked) {
		return err
	}
	return nil
}
