package proctest

import "syscall"

// orphanless has the kernel kill the process when the thread that started it ends,
// so that a test that is killed leaves none behind.
func orphanless() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
