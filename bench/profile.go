package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
)

// profilePath is where a profile of the row goes, without its ending.
func (e *env) profilePath(who string) string {
	return filepath.Join(e.profile, e.row+"."+who)
}

// profileClient profiles this process until the returned function is called. It
// does nothing unless profiles were asked for.
func (e *env) profileClient() (stop func() error, err error) {
	if e.profile == "" {
		return func() error { return nil }, nil
	}
	return startProfile(e.profilePath("client"))
}

// startProfile records CPU time until stop, which also writes the heap: to
// prefix.cpu.pprof and prefix.heap.pprof.
func startProfile(prefix string) (stop func() error, err error) {
	cpu, err := os.Create(prefix + ".cpu.pprof")
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		heap, err := os.Create(prefix + ".heap.pprof")
		if err != nil {
			return errors.Join(cpu.Close(), fmt.Errorf("profile: %w", err))
		}
		runtime.GC() // so that the heap shows what is live
		return errors.Join(cpu.Close(), pprof.WriteHeapProfile(heap), heap.Close())
	}, nil
}
