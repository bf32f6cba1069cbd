package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// endSignals ask the program to end.
var endSignals = [...]os.Signal{os.Interrupt, syscall.SIGTERM}

// canColour is false: consoles understand SGR codes only once they are asked to.
const canColour = false

// terminalWidth is the number of columns, zero when f is no console.
func terminalWidth(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info) != nil {
		return 0
	}
	return int(info.Window.Right-info.Window.Left) + 1
}

// private has nothing to do: a file has the access rights of its directory.
func private(create func() error) error { return create() }

// isRefused says of an error of dialling that nobody listens.
func isRefused(err error) bool { return errors.Is(err, windows.WSAECONNREFUSED) }

// isInUse says of an error of listening that somebody else listens there.
func isInUse(err error) bool { return errors.Is(err, windows.WSAEADDRINUSE) }
