//go:build unix

package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/latchkey-go/latchkey/hotcache"
)

const envBoard = "LATCHKEY_EXAMPLE_BOARD"

// A board is memory that all processes share, with the version of the last finished change of each product. It belongs
// to the check, not to the shop: with it a process knows without a message, and so at once, what others have finished.
type board struct{ memory []byte }

func openBoard(path string, rows int) (*board, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := rows * 8
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return &board{memory}, nil
}

func (b *board) close() { _ = syscall.Munmap(b.memory) }

func (b *board) row(id int64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&b.memory[id*8]))
}

// finished returns the last version of a product whose change has finished.
func (b *board) finished(id int64) hotcache.Version { return hotcache.Version(b.row(id).Load()) }

// finish notes that a change has finished.
func (b *board) finish(id int64, v hotcache.Version) {
	for {
		old := b.row(id).Load()
		if old >= uint64(v) || b.row(id).CompareAndSwap(old, uint64(v)) {
			return
		}
	}
}
