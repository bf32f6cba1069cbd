//go:build !linux

package proctest

import "syscall"

// orphanless has nothing to offer here: a process outlives a test that is killed.
func orphanless() *syscall.SysProcAttr { return nil }
