// Package journal keeps a sequence of records on disk so that what was
// acknowledged survives a crash. It knows bytes, not leases.
//
// Use it when one goroutine owns a state in memory and wants to rebuild that
// state after a crash from a snapshot and the records that came after it. Do
// not use it as a queue (nothing reads while it is being written), for records
// above [MaxRecord], or from several goroutines: [Journal.Err], [Journal.Size]
// and [Journal.Stats] are safe from anywhere, everything else belongs to the
// owner. A snapshot's writer is the one goroutine that runs beside the owner.
//
// # Use
//
// The owner appends records and commits them as one frame. When Commit returns
// nil under [Always] (or with mustSync), everything appended so far is on disk.
// After any failed write or sync the journal is failed for good: a disk that
// lost a write once may report success the next time without having written.
//
// # On disk
//
// A directory holds LOCK, segments (segment-N.log) and at most one finished
// snapshot (snapshot-N.snap), which replaces all segments below N. Both kinds
// of file start with the same 64 bytes: magic, format version and a checksum of
// these two (that much every version shares), then kind, number, first frame
// number, where the segment before this one ends, a random salt, and a checksum.
// A file gets its final name only when its header is durable.
//
// Frames follow, each a multiple of 64 bytes, so that a frame's head never
// crosses a 512-byte sector: kind, record count, frame number, the highest
// frame number known to be durable when this one was written, body length,
// body checksum, head checksum and, last, a magic number. The body is the
// records, each behind its length; zeros fill up to a closing mark. Checksums
// are CRC-32C started from the file's salt, so that no record can contain
// something that passes for a frame.
//
// # Torn or corrupt
//
// Only the last segment can end in the middle of a write, because a segment is
// synced before the next one is created and the next one says where it ended.
// A bad frame there is a torn tail only when both hold:
//
//   - no later frame says that it was written after the bad one was durable;
//   - the damage has the shape of a write cut short. Segments are preallocated
//     and read as zeros until written, so such a frame lacks its end or a whole
//     sector. A frame that is there to its last byte and fails its checksum was
//     changed afterwards.
//
// A torn tail is cut off, counted and logged. Everything else is [ErrCorrupt]:
// the journal refuses to open rather than lose acknowledged records. The one
// damage that looks torn and is not: the last frame of an unclean end, when its
// records themselves hold an aligned sector of 512 zero bytes, or when the disk
// returns a written sector as zeros.
//
// After recovery writing goes on in a new segment. Its header says where the
// valid part of the one before ends, so what lies behind a cut is never read
// again, whatever a second crash does to it. What was replayed from an unclean
// end is written once more and synced before anything is built on it: a failed
// sync may have left it in the page cache alone.
package journal
