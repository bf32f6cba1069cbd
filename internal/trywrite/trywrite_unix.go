//go:build unix

package trywrite

import (
	"net"
	"syscall"
)

// New returns a Writer for a TCP or unix socket, and nil for any other
// connection: one in memory, or one that wraps a socket and means its own Write.
func New(conn net.Conn) *Writer {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	w := &Writer{raw: raw}
	w.fn = w.attempt
	return w
}

// Write returns how much of p the kernel took. An error counts as none taken:
// the write that follows finds it again.
func (w *Writer) Write(p []byte) int {
	w.p, w.n = p, 0
	if w.raw.Write(w.fn) != nil {
		w.n = 0
	}
	w.p = nil
	return w.n
}

// attempt makes one system call. It returns true whatever came of it, which
// tells the runtime not to wait.
func (w *Writer) attempt(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), w.p)
		if err == syscall.EINTR {
			continue
		}
		w.n = max(n, 0)
		return true
	}
}
