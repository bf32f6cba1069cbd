//go:build !linux

package proctest

import "os/exec"

// orphanless has nothing to offer here: a process outlives a test that is killed.
func orphanless(*exec.Cmd) {}
