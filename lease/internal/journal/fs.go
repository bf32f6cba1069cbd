package journal

import "io"

// FS is what the journal needs of a file system, small enough that a test can
// fail or crash it at every call. All names are full paths. Implementations are
// safe for use from several goroutines.
type FS interface {
	// MkdirAll creates dir, for its owner only, and the directories above it.
	// It returns nil when dir exists.
	MkdirAll(dir string) error
	// List returns the names (not paths) of the files in dir.
	List(dir string) ([]string, error)
	// Create makes an empty file for reading and writing, for its owner only,
	// in place of one that may exist.
	Create(path string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(path string) (File, error)
	// Rename gives a closed file another name, in place of a file that may exist.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(path string) error
	// SyncDir makes the creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that ends with Close or with the process. It
	// returns an error wrapping ErrLocked when somebody else has it.
	Lock(path string) (io.Closer, error)
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the contents durable, and of the metadata what is needed to
	// read them back.
	Sync() error
	// Truncate changes the length.
	Truncate(size int64) error
	// Preallocate extends the file to size bytes that read as zeros, with their
	// space reserved where the system can do that.
	Preallocate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
}
