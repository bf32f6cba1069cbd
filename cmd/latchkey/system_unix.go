//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// endSignals ask the program to end.
var endSignals = [...]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// canColour says that terminals of this system understand SGR codes.
const canColour = true

// terminalWidth is the number of columns, zero when f is no terminal.
func terminalWidth(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// private makes what is created meanwhile accessible to this user alone.
func private(create func() error) error {
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return create()
}

// isRefused says of an error of dialling that nobody listens.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// isInUse says of an error of listening that somebody else listens there.
func isInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
