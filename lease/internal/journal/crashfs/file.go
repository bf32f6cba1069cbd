package crashfs

import (
	"fmt"
	"io"
	"io/fs"
)

// file is an open file. Its methods hold the FS's lock.
type file struct {
	fs     *FS
	name   string
	node   *inode
	closed bool
}

func (f *file) enter(op Op) (Action, error) {
	if f.closed && !f.fs.crashed {
		return Action{}, fmt.Errorf("%s %s: %w", op, f.name, fs.ErrClosed)
	}
	return f.fs.enter(op, f.name)
}

// ReadAt implements journal.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if _, err := f.enter(OpRead); err != nil {
		return 0, err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements journal.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	a, err := f.enter(OpWrite)
	n := len(p)
	switch {
	case err == nil, a.Crash:
	case a.Short:
		n = len(p) / 2
	default:
		return 0, err
	}
	if n > 0 {
		f.node.edit(edit{off: off, p: append([]byte(nil), p[:n]...)})
	}
	if err != nil {
		return n, err
	}
	return len(p), nil
}

// Sync implements journal.File.
func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	a, err := f.enter(OpSync)
	if a.Crash {
		return err
	}
	if err == nil {
		for _, e := range f.node.pending {
			f.node.durable = e.apply(f.node.durable)
		}
	}
	// The system forgets what it failed to write: it will not be tried again.
	f.node.pending = nil
	return err
}

// Truncate implements journal.File.
func (f *file) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	a, err := f.enter(OpTruncate)
	if err == nil || a.Crash {
		f.node.edit(edit{off: size})
	}
	return err
}

// Preallocate implements journal.File.
func (f *file) Preallocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	a, err := f.enter(OpPreallocate)
	if (err == nil || a.Crash) && size > int64(len(f.node.data)) {
		f.node.edit(edit{off: size})
	}
	return err
}

// Size implements journal.File.
func (f *file) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	_, err := f.enter(OpSize)
	return int64(len(f.node.data)), err
}

// Close implements journal.File. It makes nothing durable.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	_, err := f.enter(OpClose)
	f.closed = true
	return err
}

// edit changes what the program sees and remembers that it is not durable.
func (n *inode) edit(e edit) {
	n.data = e.apply(n.data)
	n.pending = append(n.pending, e)
}

// apply returns data with the edit done to it, in place where it fits.
func (e edit) apply(data []byte) []byte {
	if e.p == nil {
		return resize(data, e.off)
	}
	data = resize(data, max(int64(len(data)), e.off+int64(len(e.p))))
	copy(data[e.off:], e.p)
	return data
}

// resize cuts or extends with zeros, also over what an earlier cut left in memory.
func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size:size]
	}
	grown := make([]byte, size)
	copy(grown, data)
	return grown
}
