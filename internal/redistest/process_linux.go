package redistest

import "syscall"

// orphanless has the kernel kill the server when the thread that started it ends,
// so that a test that is killed leaves none behind.
func orphanless() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
