package journal

import (
	"errors"
	"fmt"
)

var (
	// ErrLocked means that another process, or another Journal in this one, has
	// the directory open.
	ErrLocked = errors.New("directory is in use by another process")

	// ErrFormat means that the directory was written by a newer version of this
	// program, or is not a journal's at all.
	ErrFormat = errors.New("unreadable format")

	// ErrCorrupt means that records which had been acknowledged are damaged or
	// missing. Nothing was changed on disk.
	ErrCorrupt = errors.New("corrupt")

	// ErrFailed means that an earlier write or sync failed. It is wrapped
	// together with the first cause; only opening the directory again helps.
	ErrFailed = errors.New("journal has failed")

	// ErrClosed means that the journal was closed by its owner.
	ErrClosed = errors.New("journal is closed")

	// ErrTooLarge means that a record is longer than MaxRecord or that more than
	// MaxPending bytes were appended without a commit.
	ErrTooLarge = errors.New("too large")

	// ErrSnapshotRunning means that an earlier snapshot has not ended yet.
	ErrSnapshotRunning = errors.New("a snapshot is already being written")

	// ErrSnapshotBusy means that the snapshot's writer is behind and nothing was
	// taken; try again after a signal from Snapshot.Ready.
	ErrSnapshotBusy = errors.New("snapshot writer is busy")

	// ErrSnapshotEnded means that the snapshot was committed or aborted before.
	ErrSnapshotEnded = errors.New("snapshot has ended")
)

// corruptf says what is wrong where, and what a person can do about it.
func corruptf(file string, offset int64, format string, args ...any) error {
	return fmt.Errorf("journal: %w: %s at offset %d: %s; the directory was left as it is: "+
		"restore a backup of it and start with --token-floor above the last token handed out",
		ErrCorrupt, file, offset, fmt.Sprintf(format, args...))
}
