//go:build !linux

package process

import (
	"os/exec"
	"time"
)

// The figures below come from the Linux kernel; elsewhere they are zero, and a
// run says so by showing no CPU time.

// CPUTime returns the CPU time that a process has used: not known here.
func CPUTime(int) time.Duration { return 0 }

// MachineTime returns how long the machine's cores have worked: not known here.
func MachineTime() (busy, all time.Duration) { return 0, 0 }

// Resident returns the bytes of memory that a process has in RAM: not known here.
func Resident(int) int64 { return 0 }

// Filesystem names the kind of file system that holds a folder: not known here.
func Filesystem(string) string { return "unknown" }

// Allocated returns the bytes of disk that a file occupies: not known here.
func Allocated(string) int64 { return 0 }

// DieWithParent would have the child end with this process, however that ends: it cannot be had here.
func DieWithParent(*exec.Cmd) {}
