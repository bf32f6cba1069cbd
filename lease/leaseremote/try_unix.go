//go:build unix

package leaseremote

import (
	"net"
	"syscall"
)

func newTryWriter(conn net.Conn) *tryWriter {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil // in memory, or one that wraps another and means its Write
	}
	if err != nil {
		return nil
	}
	t := &tryWriter{raw: raw}
	t.fn = t.attempt
	return t
}

// write returns how much of p the kernel took. An error is left to the write
// that follows to find again.
func (t *tryWriter) write(p []byte) int {
	t.p, t.n = p, 0
	if t.raw.Write(t.fn) != nil {
		t.n = 0
	}
	t.p = nil
	return t.n
}

// attempt makes one system call. It returns true whatever came of it, which
// tells the runtime not to wait.
func (t *tryWriter) attempt(fd uintptr) bool {
	for {
		n, err := syscall.Write(int(fd), t.p)
		if err == syscall.EINTR {
			continue
		}
		t.n = max(n, 0)
		return true
	}
}
