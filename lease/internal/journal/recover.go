package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// Recovered says what Open found.
type Recovered struct {
	// Fresh means that the directory held no journal.
	Fresh bool
	// Clean means that nothing that had been committed under any policy can be
	// missing: the last run was closed properly, or there was none.
	Clean bool
	// Snapshot means that replay began with a snapshot.
	Snapshot bool
	// Records were replayed, those of the snapshot included.
	Records int
	// Segments were replayed.
	Segments int
	// TornBytes were cut off the end of the last segment: a write that never
	// completed, and that no synced Commit has acknowledged.
	TornBytes int64
	// TornFile and TornOffset say where, when TornBytes is not 0.
	TornFile   string
	TornOffset int64
}

// layout is what lies in the directory, sorted out by name.
type layout struct {
	snapshot uint64        // number of the newest snapshot, 0 when there is none
	segments []segmentFile // those that the snapshot does not replace, in order
	stale    []string      // replaced files and unfinished ones
}

type segmentFile struct {
	path   string
	number uint64
	header fileHeader
}

// Open locks dir, creating it when absent, replays the newest snapshot and the
// segments after it in order, and begins a new segment. The slice that replay
// gets is valid during the call only; an error of replay ends Open with it. A
// nil replay checks the records and drops them.
//
// Errors wrap ErrLocked, ErrFormat or ErrCorrupt where these apply; then and
// whenever replay fails, nothing in the directory was changed.
func Open(dir string, o Options, replay func(rec []byte) error) (*Journal, Recovered, error) {
	if o.Policy < Always || o.Policy > Never {
		return nil, Recovered{}, fmt.Errorf("journal: policy %d is none of Always, Interval, Never", o.Policy)
	}
	if replay == nil {
		replay = func([]byte) error { return nil }
	}
	j := &Journal{dir: filepath.Clean(dir), o: o.withDefaults()}
	if err := j.lockDir(); err != nil {
		return nil, Recovered{}, err
	}
	rec, err := j.recover(replay)
	if err != nil {
		return nil, rec, errors.Join(err, j.release())
	}
	return j, rec, nil
}

func (j *Journal) lockDir() error {
	err := j.o.FS.MkdirAll(j.dir)
	if err == nil {
		j.lock, err = j.o.FS.Lock(filepath.Join(j.dir, lockName))
	}
	if errors.Is(err, ErrLocked) {
		return fmt.Errorf("journal: %s: %w: stop that process, or use another directory", j.dir, err)
	}
	if err != nil {
		return fmt.Errorf("journal: %s cannot be used: %w: give the process a directory it may write to", j.dir, err)
	}
	return nil
}

// recover replays what is there and opens a segment to go on in.
func (j *Journal) recover(replay func([]byte) error) (Recovered, error) {
	l, err := j.scan()
	if err != nil {
		return Recovered{}, err
	}
	r := replayer{j: j, fn: replay}
	r.found.Fresh = l.snapshot == 0 && len(l.segments) == 0
	r.found.Clean = r.found.Fresh
	r.next = 1
	if err := r.snapshot(l); err != nil {
		return r.found, err
	}
	if err := j.contiguous(l.segments, l.snapshot, r.next); err != nil {
		return r.found, err
	}
	if err := r.segments(l.segments); err != nil {
		return r.found, err
	}
	j.next, j.synced = r.next, r.next-1
	for _, path := range l.stale {
		if err := j.o.FS.Remove(path); err != nil {
			return r.found, fmt.Errorf("journal: remove leftover: %w", err)
		}
		j.o.Logger.Info("journal: removed a leftover of an earlier run", "file", path)
	}
	h, err := j.prepareSegment(j.o.SegmentSize)
	if err == nil {
		err = j.publishSegment(h, j.o.SegmentSize)
	}
	if err != nil {
		return r.found, fmt.Errorf("journal: %w", err)
	}
	return r.found, nil
}

// scan sorts the directory's files and reads the segments' headers.
func (j *Journal) scan() (layout, error) {
	// An earlier run may have died between a rename and its sync. Entries that
	// are seen now are relied on from now, so they must not vanish later.
	if err := j.o.FS.SyncDir(j.dir); err != nil {
		return layout{}, fmt.Errorf("journal: sync %s: %w", j.dir, err)
	}
	names, err := j.o.FS.List(j.dir)
	if err != nil {
		return layout{}, fmt.Errorf("journal: list %s: %w", j.dir, err)
	}
	var l layout
	slices.Sort(names)
	for _, name := range names {
		if n, ok := parseName(name, snapshotPrefix, snapshotSuffix); ok {
			l.snapshot = max(l.snapshot, n)
		}
	}
	for _, name := range names {
		path := filepath.Join(j.dir, name)
		if n, ok := parseName(name, segmentPrefix, segmentSuffix); ok && n >= l.snapshot {
			l.segments = append(l.segments, segmentFile{path: path, number: n})
		} else if ok || isTemp(name) {
			l.stale = append(l.stale, path)
		} else if n, ok := parseName(name, snapshotPrefix, snapshotSuffix); ok && n < l.snapshot {
			l.stale = append(l.stale, path)
		}
	}
	for i := range l.segments {
		if err := j.readHeader(&l.segments[i]); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (j *Journal) readHeader(s *segmentFile) error {
	r, err := j.openReader(s.path, kindSegment, s.number)
	if err != nil {
		return err
	}
	s.header = r.header
	return r.close()
}

// replayer walks the files in order and remembers what it found.
type replayer struct {
	j     *Journal
	fn    func([]byte) error
	next  uint64 // number that the next frame must have
	found Recovered
}

// snapshot replays the newest snapshot, which must be whole.
func (r *replayer) snapshot(l layout) (err error) {
	if l.snapshot == 0 {
		return nil
	}
	path := r.j.snapshotPath(l.snapshot)
	in, err := r.j.openReader(path, kindSnapshot, l.snapshot)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	off := int64(headerSize)
	for seq := uint64(1); ; seq++ {
		f, err := in.frame(off)
		if err != nil {
			return err
		}
		if f.state != frameIntact || f.head.seq != seq {
			return corruptf(path, off, "frame %d of the snapshot is damaged or missing", seq)
		}
		if f.head.kind == kindEnd {
			off += f.head.size()
			break
		}
		if err := r.apply(path, off, f); err != nil {
			return err
		}
		off += f.head.size()
	}
	if off != in.size {
		return corruptf(path, off, "%d bytes follow the end of the snapshot", in.size-off)
	}
	r.found.Snapshot = true
	r.next = in.header.first
	return nil
}

// segments replays all segments; each must begin where the one before ended.
func (r *replayer) segments(list []segmentFile) error {
	for i, s := range list {
		var err error
		if i < len(list)-1 {
			err = r.inner(s, list[i+1].header)
		} else {
			err = r.last(s)
		}
		if err != nil {
			return err
		}
		r.found.Segments++
		r.j.live.Add(max(r.j.off, segmentCost))
	}
	return nil
}

// contiguous refuses a gap in the segments' numbers: base is the snapshot's, or 0.
func (j *Journal) contiguous(list []segmentFile, base, next uint64) error {
	if base > 0 && (len(list) == 0 || list[0].number != base) {
		return corruptf(j.segmentPath(base), 0, "the segment is missing, which begins where the snapshot ends")
	}
	for i, s := range list {
		switch {
		case i > 0 && s.number != list[i-1].number+1:
			return corruptf(j.segmentPath(list[i-1].number+1), 0, "the segment is missing")
		case i == 0 && base == 0 && s.header.prevEnd != 0:
			return corruptf(s.path, 0, "the segment before this one is missing, or the snapshot that replaced it")
		case i == 0 && s.header.first != next:
			return corruptf(s.path, 0, "the segment begins with frame %d instead of %d", s.header.first, next)
		}
	}
	return nil
}

// inner replays a segment that another one follows: it was whole when that began.
func (r *replayer) inner(s segmentFile, follower fileHeader) (err error) {
	in, err := r.j.openReader(s.path, kindSegment, s.number)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	off := int64(headerSize)
	for off < follower.prevEnd {
		f, err := in.frame(off)
		if err != nil {
			return err
		}
		if f.state != frameIntact || f.head.seq != r.next {
			return corruptf(s.path, off, "frame %d is damaged or missing, and the next segment shows that it had been synced", r.next)
		}
		if err := r.apply(s.path, off, f); err != nil {
			return err
		}
		off += f.head.size()
		r.next++
	}
	if off != follower.prevEnd || r.next != follower.first {
		return corruptf(s.path, off, "the segment holds frames up to %d and ends at %d; the next one says up to %d and %d",
			r.next-1, off, follower.first-1, follower.prevEnd)
	}
	r.j.off = off
	return nil
}

// last replays the segment in which the last run stopped, decides what a damaged
// end means, and makes what it replayed durable.
func (r *replayer) last(s segmentFile) error {
	in, err := r.j.openReader(s.path, kindSegment, s.number)
	if err != nil {
		return err
	}
	// It is the current segment now, until Open begins another or gives it up.
	j := r.j
	j.file, j.path, j.number, j.salt = in.f, s.path, s.number, s.header.salt
	off := int64(headerSize)
	clean := false
	for {
		f, err := in.frame(off)
		if err != nil {
			return err
		}
		if f.state != frameIntact {
			if r.found.TornBytes, err = in.tornTail(off, r.next, f); err != nil {
				return err
			}
			break
		}
		if f.head.seq != r.next {
			return corruptf(s.path, off, "frame %d stands where frame %d belongs", f.head.seq, r.next)
		}
		if f.head.kind == kindNext {
			return corruptf(j.segmentPath(s.number+1), 0, "the segment is missing; %s shows that it existed", s.path)
		}
		if err := r.apply(s.path, off, f); err != nil {
			return err
		}
		clean = f.head.kind == kindClean
		off += f.head.size()
		r.next++
	}
	if r.found.TornBytes > 0 {
		clean = false
		r.found.TornFile, r.found.TornOffset = s.path, off
		j.o.Logger.Warn("journal: cut off a write that never completed",
			"file", s.path, "offset", off, "bytes", r.found.TornBytes, "frame", r.next)
	}
	r.found.Clean = clean
	j.off = off
	if err := in.writeAgain(off); err != nil {
		return fmt.Errorf("journal: secure %s: %w", s.path, err)
	}
	return nil
}

// apply hands a frame's records on.
func (r *replayer) apply(path string, off int64, f frame) error {
	switch f.head.kind {
	case kindClean:
		return nil
	case kindData:
	default:
		return corruptf(path, off, "frame %d has the unknown kind %d", f.head.seq, f.head.kind)
	}
	var refused error
	err := records(f.body, f.head.count, func(rec []byte) error {
		if refused = r.fn(rec); refused == nil {
			r.found.Records++
		}
		return refused
	})
	switch {
	case refused != nil:
		return fmt.Errorf("journal: replay of frame %d in %s: %w", f.head.seq, path, refused)
	case err != nil:
		return corruptf(path, off, "frame %d: %s", f.head.seq, err.Error())
	}
	return nil
}
