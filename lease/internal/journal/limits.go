package journal

const (
	// MaxRecord is the longest record in bytes. A lease record is some hundred
	// bytes; a thousand times that is a mistake of the caller.
	MaxRecord = 1 << 20

	// MaxFrame bounds a frame in bytes, and with it what replay ever allocates
	// at once. Records that do not fit go on in another frame.
	MaxFrame = 16 << 20

	// MaxPending bounds the bytes appended and not yet committed. Reaching it
	// means that the owner forgot to commit; the journal fails.
	MaxPending = 64 << 20

	// DefaultSegmentSize is what Options.SegmentSize means when it is zero.
	DefaultSegmentSize = 16 << 20

	// minSegmentSize keeps a segment large enough for its header and a few
	// frames; tests use segments this small.
	minSegmentSize = 4 << 10

	// segmentCost is the least that a segment counts for in Size, so that many
	// short runs make the owner compact, and not only many records.
	segmentCost = 4 << 10

	// snapshotQueue is how many chunks the owner may be ahead of the writer.
	snapshotQueue = 4

	// keepBuffer is the largest commit buffer kept for the next commit.
	keepBuffer = 4 << 20

	// zeroAheadMin and zeroAheadMax bound what is written ahead of the frames at
	// a time.
	zeroAheadMin = 32 << 10
	zeroAheadMax = 1 << 20

	// copyChunk is the unit in which files are scanned and written again.
	copyChunk = 1 << 20
)

// zeros is what is written ahead of the frames; nothing writes to it.
var zeros [zeroAheadMax]byte
