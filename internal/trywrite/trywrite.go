// Package trywrite writes to a socket without ever waiting for it, for
// goroutines that must not: a service's loop, or a caller whose call returns at
// once. What the kernel does not take is left to somebody who may wait. Both
// ends of a connection use it to save a switch of goroutines on the way of every
// frame.
//
// A Writer is not safe for concurrent use; it may be used beside the
// connection's other methods.
package trywrite

import "syscall"

// Writer tries to write to one socket.
type Writer struct {
	raw syscall.RawConn
	fn  func(fd uintptr) bool // attempt, made once
	p   []byte
	n   int
}
