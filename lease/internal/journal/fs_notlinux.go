//go:build !linux

package journal

import "os"

// datasync is a full sync here; on darwin that is F_FULLFSYNC.
func datasync(f *os.File) error { return f.Sync() }

// preallocate sets the length only: it saves the size change at each sync, but
// does not reserve the space.
func preallocate(f *os.File, size int64) error { return f.Truncate(size) }
