//go:build !linux

package redistest

import "syscall"

// orphanless has nothing to offer here: a server outlives a test that is killed.
func orphanless() *syscall.SysProcAttr { return nil }
