package held

import (
	"bytes"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// offset is where the runtime's descriptor of a goroutine has its id, once that is
// known; unknown before, and absent when it cannot be found.
var (
	offset  atomic.Uintptr
	finding sync.Mutex
)

const (
	unknown = 0 // no id is the first word of a descriptor: that is the stack
	absent  = ^uintptr(0)

	// reach is how far into the descriptor the id is looked for. The descriptor is
	// more than 400 bytes in every release since Go 1.5.
	reach = 384
)

// id returns the goroutine's id, and 0 when it cannot be told.
func id() uint64 {
	off := offset.Load()
	if off == unknown {
		off = find()
	}
	if off == absent {
		return 0
	}
	return gword(off)
}

// Detecting reports whether nested locks are detected in this process.
func Detecting() bool { return id() != 0 }

// find looks for the one word of the descriptor that is the id in each of several
// goroutines.
func find() uintptr {
	finding.Lock()
	defer finding.Unlock()
	if off := offset.Load(); off != unknown {
		return off
	}
	off := absent
	if hasWords {
		off = search()
	}
	if off == absent {
		slog.Warn("nested locks are not detected in this process: the runtime's goroutine ids were not found",
			"go", runtime.Version(), "arch", runtime.GOARCH)
	}
	offset.Store(off)
	return off
}

func search() uintptr {
	var candidates []uintptr
	for off := uintptr(8); off < reach; off += 8 {
		candidates = append(candidates, off)
	}
	for range 8 {
		candidates = elsewhere(candidates)
	}
	if len(candidates) != 1 {
		return absent
	}
	return candidates[0]
}

// elsewhere keeps the candidates that are the id of a new goroutine.
func elsewhere(candidates []uintptr) []uintptr {
	kept := make(chan []uintptr)
	go func() {
		var out []uintptr
		want := printed()
		for _, off := range candidates {
			if want != 0 && gword(off) == want {
				out = append(out, off)
			}
		}
		kept <- out
	}()
	return <-kept
}

// printed is the goroutine's id as the runtime prints it: right, and slow.
func printed() uint64 {
	var b [64]byte
	fields := bytes.Fields(b[:runtime.Stack(b[:], false)])
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
