package proctest

import (
	"os/exec"
	"syscall"
)

// orphanless has the kernel kill the process when the thread that started it ends,
// so that a test that is killed leaves none behind.
func orphanless(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
