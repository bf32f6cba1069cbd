//go:build unix

package child

import (
	"os"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of this process.
type terminal struct {
	fd    int
	ours  int // process group of this process
	eager bool
	given bool // the command's group was put in the foreground
	modes *unix.Termios
}

// openTerminal returns nil when there is no controlling terminal.
//
// The command's group is put in the foreground from the start when it reads
// from the terminal and this process is in the foreground itself. Not when its
// output goes into a pipe: what is at the other end, such as a pager, may need
// the terminal as well; the command then gets it when it reads from it.
func openTerminal(stdin, stdout *os.File) *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, ours: unix.Getpgrp()}
	modes, err := getModes(fd)
	if err == nil {
		t.modes = modes
	}
	_, err = getModes(int(stdin.Fd()))
	t.eager = err == nil && !isPipe(stdout) && t.foreground() == t.ours
	return t
}

func isPipe(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0
}

func (t *terminal) close() { _ = unix.Close(t.fd) }

// foreground is the process group in the foreground, zero when there is none.
func (t *terminal) foreground() int {
	pgrp, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return pgrp
}

// give puts a group in the foreground if this process's is there, and reports
// whether it is there now.
func (t *terminal) give(pgrp int) bool {
	switch t.foreground() {
	case pgrp:
		return true
	case t.ours:
		t.given = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, pgrp) == nil
		return t.given
	}
	t.given = false
	return false
}

// take puts this process's group back in the foreground if it gave the place
// away, and reports whether it had.
func (t *terminal) take() bool {
	if !t.given {
		return false
	}
	t.given = false
	if fg := t.foreground(); fg == t.ours {
		return false
	}
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.ours) == nil
}

// restoreModes undoes what a killed command, such as an editor, did to the
// terminal.
func (t *terminal) restoreModes() {
	if t.modes != nil {
		_ = setModes(t.fd, t.modes)
	}
}
