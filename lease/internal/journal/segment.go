package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	lockName       = "LOCK"
	segmentPrefix  = "segment-"
	segmentSuffix  = ".log"
	snapshotPrefix = "snapshot-"
	snapshotSuffix = ".snap"
	tempSuffix     = ".tmp"
)

func (j *Journal) segmentPath(number uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%s%016d%s", segmentPrefix, number, segmentSuffix))
}

func (j *Journal) snapshotPath(number uint64) string {
	return filepath.Join(j.dir, fmt.Sprintf("%s%016d%s", snapshotPrefix, number, snapshotSuffix))
}

// parseName returns the number in a name made from prefix and suffix.
func parseName(name, prefix, suffix string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return 0, false
	}
	digits, ok = strings.CutSuffix(digits, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0
}

// isTemp tells whether name is a file of ours that never got its final name.
func isTemp(name string) bool {
	base, ok := strings.CutSuffix(name, tempSuffix)
	if !ok {
		return false
	}
	_, segment := parseName(base, segmentPrefix, segmentSuffix)
	_, snapshot := parseName(base, snapshotPrefix, snapshotSuffix)
	return segment || snapshot
}

func newSalt() uint32 {
	var p [4]byte
	// Read never returns an error: it ends the program instead.
	_, _ = rand.Read(p[:])
	return binary.LittleEndian.Uint32(p[:])
}

// rotate syncs the current segment and goes on in a new one of at least size bytes.
func (j *Journal) rotate(size int64) error {
	if err := j.sync(); err != nil {
		return err
	}
	h, err := j.prepareSegment(size)
	if err != nil {
		return err
	}
	return j.publishSegment(h, size)
}

// prepareSegment makes the next segment under a temporary name, durable but for
// its directory entry. When it fails, nothing has changed for the current one.
func (j *Journal) prepareSegment(size int64) (fileHeader, error) {
	h := fileHeader{kind: kindSegment, number: j.number + 1, first: j.next, prevEnd: j.off, salt: newSalt()}
	temp := j.segmentPath(h.number) + tempSuffix
	err := j.fillSegment(temp, h, size)
	if err != nil {
		// Best effort: the next Open removes it as well.
		_ = j.o.FS.Remove(temp)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w; make room: it takes %d MiB", err, (size+1<<20-1)>>20)
		}
		return h, fmt.Errorf("create %s: %w", temp, err)
	}
	return h, nil
}

func (j *Journal) fillSegment(temp string, h fileHeader, size int64) (err error) {
	f, err := j.o.FS.Create(temp)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	if err := f.Preallocate(size); err != nil {
		return err
	}
	if _, err := f.WriteAt(h.encode(), 0); err != nil {
		return err
	}
	return f.Sync()
}

// publishSegment gives the prepared segment its name and makes it the current
// one. When it fails, the journal has failed: the new segment may or may not
// exist after a crash, and it says that the current one ends here.
func (j *Journal) publishSegment(h fileHeader, size int64) error {
	path := j.segmentPath(h.number)
	if err := j.o.FS.Rename(path+tempSuffix, path); err != nil {
		return fmt.Errorf("rename to %s: %w", path, err)
	}
	if err := j.o.FS.SyncDir(j.dir); err != nil {
		return fmt.Errorf("sync %s: %w", j.dir, err)
	}
	f, err := j.o.FS.Open(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if j.file != nil {
		if err := j.leaveSegment(h); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	j.file, j.path, j.number, j.salt = f, path, h.number, h.salt
	j.off, j.capacity, j.zeroed = headerSize, size, headerSize
	j.live.Add(segmentCost)
	j.count.segments.Add(1)
	return nil
}

// leaveSegment marks the current segment as one that another follows, so that
// its absence is noticed, frees what is left of it and closes it. The mark lies
// behind the segment's end: with the follower there it is never read, and need
// not be synced.
func (j *Journal) leaveSegment(follower fileHeader) error {
	mark := markFrame(kindNext, follower.first, follower.first-1, j.salt, j.o.sum)
	_, err := j.file.WriteAt(mark, j.off)
	if err == nil {
		err = j.file.Truncate(j.off + int64(len(mark)))
	}
	if err = errors.Join(err, j.file.Close()); err != nil {
		err = fmt.Errorf("leave %s: %w", j.path, err)
	}
	j.file = nil
	return err
}
