package journal

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
)

// Policy says when Commit makes frames durable.
type Policy int

const (
	// Always syncs in every Commit.
	Always Policy = iota
	// Interval writes in Commit; the owner calls Sync on its own timer.
	Interval
	// Never writes in Commit and leaves the rest to the operating system.
	Never
)

// Options configures Open. The zero value is usable.
type Options struct {
	// FS is the file system; nil means the operating system's.
	FS FS
	// Policy says when Commit syncs; the zero value is Always.
	Policy Policy
	// SegmentSize is how many bytes a segment is preallocated to and when the
	// next one begins; 0 means DefaultSegmentSize. Values below 4 KiB are raised.
	SegmentSize int64
	// Logger gets what was cut off or removed at Open and what a snapshot could
	// not delete; nil discards.
	Logger *slog.Logger

	// sum replaces the checksum of frames; only tests set it.
	sum checksum
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = OS()
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = DefaultSegmentSize
	}
	o.SegmentSize = max(o.SegmentSize, minSegmentSize)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.sum == nil {
		o.sum = crc32c
	}
	return o
}

// Stats counts since Open.
type Stats struct {
	// Frames and Records were written to segments; Bytes is their size in the file.
	Frames, Records, Bytes uint64
	// Syncs are those of segments, snapshots not included.
	Syncs uint64
	// Segments were created.
	Segments uint64
	// Snapshots were completed; SnapshotFailures were not, aborted ones excluded.
	Snapshots, SnapshotFailures uint64
	// SnapshotBytes is the size of the newest completed snapshot, 0 before the first.
	SnapshotBytes uint64
}

type counters struct {
	frames, records, bytes, syncs, segments    atomic.Uint64
	snapshots, snapshotFailures, snapshotBytes atomic.Uint64
}

// Journal is an open directory. See the package comment for who may call what.
type Journal struct {
	dir  string
	o    Options
	lock io.Closer

	// The current segment. off is where its next frame goes, capacity where it ends.
	file     File
	path     string
	number   uint64
	salt     uint32
	off      int64
	capacity int64
	zeroed   int64 // up to here the file has been written, with frames or zeros

	next   uint64 // number of the next frame
	synced uint64 // highest frame known to be durable
	batch  batch  // appended and not yet written
	snap   *Snapshot

	closed   bool
	closeErr error
	failure  atomic.Pointer[error] // set once, by the owner
	live     atomic.Int64          // see Size; the snapshot's writer subtracts
	count    counters
}

// Append copies rec into the current frame. Nothing reaches the file before
// Commit. A record above MaxRecord, or more than MaxPending bytes without a
// Commit, fails the journal, because the owner's state and the log would differ.
func (j *Journal) Append(rec []byte) {
	if j.usable() != nil {
		return
	}
	if len(rec) > MaxRecord {
		j.fail(fmt.Errorf("append: a record of %d bytes (limit %d): %w", len(rec), MaxRecord, ErrTooLarge))
		return
	}
	if len(j.batch.buf)+len(rec) > MaxPending {
		j.fail(fmt.Errorf("append: more than %d bytes without a commit: %w", MaxPending, ErrTooLarge))
		return
	}
	j.batch.add(rec, j.frameLimit())
}

// frameLimit lets a frame fill a segment at most.
func (j *Journal) frameLimit() int { return int(min(MaxFrame, j.o.SegmentSize-headerSize)) }

// Commit writes what was appended as one frame, or as several when it exceeds
// MaxFrame or a segment; a crash may then keep the first of them only. Under
// Always, or with mustSync, it returns nil only when that and everything before
// is durable. Without anything to write or to sync it does nothing.
func (j *Journal) Commit(mustSync bool) error {
	if err := j.usable(); err != nil {
		return err
	}
	if err := j.write(); err != nil {
		return j.fail(err)
	}
	if mustSync || j.o.Policy == Always {
		return j.sync()
	}
	return nil
}

// Sync makes everything committed so far durable, under every policy.
func (j *Journal) Sync() error {
	if err := j.usable(); err != nil {
		return err
	}
	return j.sync()
}

// Err returns why the journal failed, wrapping ErrFailed and the first cause,
// or nil.
func (j *Journal) Err() error {
	if p := j.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Size returns the bytes in segments that no snapshot has replaced, a segment
// counting for 4 KiB at least. The owner decides by it when to compact.
func (j *Journal) Size() int64 { return j.live.Load() }

// Stats returns the counters.
func (j *Journal) Stats() Stats {
	c := &j.count
	return Stats{
		Frames: c.frames.Load(), Records: c.records.Load(), Bytes: c.bytes.Load(),
		Syncs: c.syncs.Load(), Segments: c.segments.Load(),
		Snapshots: c.snapshots.Load(), SnapshotFailures: c.snapshotFailures.Load(), SnapshotBytes: c.snapshotBytes.Load(),
	}
}

// Close aborts a snapshot under way, commits what was appended, marks the end as
// clean, syncs and unlocks. A failed journal is unlocked without a mark. A second
// Close does nothing and returns what the first returned.
func (j *Journal) Close() error {
	if j.closed {
		return j.closeErr
	}
	if j.snap != nil {
		j.snap.Abort()
	}
	err := j.Commit(true)
	if err == nil {
		err = j.markClean()
	}
	j.closed = true
	j.closeErr = errors.Join(err, j.release())
	return j.closeErr
}

// markClean ends the log with a frame that says so. It may lie behind the
// segment's preallocated part: the file just grows.
func (j *Journal) markClean() error {
	p := markFrame(kindClean, j.next, j.synced, j.salt, j.o.sum)
	if _, err := j.file.WriteAt(p, j.off); err != nil {
		return j.fail(fmt.Errorf("write %s: %w", j.path, err))
	}
	j.next++
	return j.sync()
}

// release gives up the file and the lock.
func (j *Journal) release() error {
	var err error
	if j.file != nil {
		err = j.file.Close()
		j.file = nil
	}
	return errors.Join(err, j.lock.Close())
}

func (j *Journal) usable() error {
	if err := j.Err(); err != nil {
		return err
	}
	if j.closed {
		return fmt.Errorf("journal: %s: %w", j.dir, ErrClosed)
	}
	return nil
}

// fail makes cause the reason for every later refusal, unless there is one already.
func (j *Journal) fail(cause error) error {
	if j.Err() == nil {
		err := fmt.Errorf("journal: %s: %w: %w", j.dir, ErrFailed, cause)
		j.failure.Store(&err)
		j.batch = batch{}
	}
	return j.Err()
}

// write brings the pending frames into segments, syncing none but those it leaves.
func (j *Journal) write() error {
	j.batch.seal()
	for frames := j.batch.frames; len(frames) > 0; {
		n, size := 0, int64(0)
		for n < len(frames) && j.off+size+int64(frames[n].end-frames[n].start) <= j.capacity {
			size += int64(frames[n].end - frames[n].start)
			n++
		}
		if n == 0 {
			need := headerSize + int64(frames[0].end-frames[0].start)
			if err := j.rotate(max(need, j.o.SegmentSize)); err != nil {
				return err
			}
			continue
		}
		if err := j.writeRun(frames[:n]); err != nil {
			return err
		}
		frames = frames[n:]
	}
	j.batch.reset()
	return nil
}

// writeRun writes neighbouring frames that fit into the current segment.
func (j *Journal) writeRun(frames []span) error {
	for _, s := range frames {
		j.batch.stamp(s, kindData, j.next, j.synced, j.salt, j.o.sum)
		j.next++
		j.count.frames.Add(1)
		j.count.records.Add(uint64(s.count))
	}
	p := j.batch.buf[frames[0].start:frames[len(frames)-1].end]
	if err := j.zeroAhead(j.off + int64(len(p))); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(p, j.off); err != nil {
		return fmt.Errorf("write %s: %w", j.path, err)
	}
	before := max(j.off, segmentCost)
	j.off += int64(len(p))
	j.live.Add(max(j.off, segmentCost) - before)
	j.count.bytes.Add(uint64(len(p)))
	return nil
}

// zeroAhead writes zeros behind end, from time to time. The first write into a
// preallocated block makes the file system note that it is in use, and the sync
// then waits for that note too; measured on ext4, a sync of a block that was
// written before takes 0.6 of the time. What is written ahead grows with the
// segment, so that a short life pays little.
func (j *Journal) zeroAhead(end int64) error {
	if end <= j.zeroed {
		return nil
	}
	to := min(j.capacity, end+min(max(end, zeroAheadMin), zeroAheadMax))
	if to > end {
		if _, err := j.file.WriteAt(zeros[:to-end], end); err != nil {
			return fmt.Errorf("write %s: %w", j.path, err)
		}
	}
	j.zeroed = max(to, end)
	return nil
}

// sync makes the current segment durable; the ones before it are already. A
// failed sync is never tried again: the system may have dropped what it could
// not write and would report success.
func (j *Journal) sync() error {
	if j.synced == j.next-1 {
		return nil
	}
	if err := j.file.Sync(); err != nil {
		return j.fail(fmt.Errorf("sync %s: %w", j.path, err))
	}
	j.synced = j.next - 1
	j.count.syncs.Add(1)
	return nil
}
