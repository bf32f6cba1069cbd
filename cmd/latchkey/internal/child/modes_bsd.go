//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package child

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Missing says what Run cannot do on this system; empty when nothing is missing.
const Missing = ""

// dieWithParent does nothing: this system has no parent-death signal, and leaves
// it to the guard.
func dieWithParent(*syscall.SysProcAttr) {}

// systemClock goes on while the machine sleeps on macOS and OpenBSD at least.
const systemClock = unix.CLOCK_MONOTONIC

func getModes(fd int) (*unix.Termios, error) { return unix.IoctlGetTermios(fd, unix.TIOCGETA) }

func setModes(fd int, m *unix.Termios) error { return unix.IoctlSetTermios(fd, unix.TIOCSETAW, m) }

// adoptOrphans does nothing: orphans belong to the first process here.
func adoptOrphans() {}
