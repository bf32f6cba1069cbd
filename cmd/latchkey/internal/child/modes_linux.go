package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Missing says what Run cannot do on this system; empty when nothing is missing.
const Missing = ""

// dieWithParent has the system kill the command when this process dies.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// systemClock goes on while the machine sleeps.
const systemClock = unix.CLOCK_BOOTTIME

func getModes(fd int) (*unix.Termios, error) { return unix.IoctlGetTermios(fd, unix.TCGETS) }

func setModes(fd int, m *unix.Termios) error { return unix.IoctlSetTermios(fd, unix.TCSETSW, m) }

// adoptOrphans makes this process the parent of what the command leaves behind,
// so that it can tell at once when the group is empty, whatever the first
// process of the machine or the container does about orphans.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
