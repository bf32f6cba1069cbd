// Package tcpserve serves a lease.Service to the native protocol on stream
// connections: TCP, unix sockets, or anything else that is a net.Conn. It turns
// frames into calls and callbacks into frames, and knows nothing of what stands
// behind the service.
//
// A connection has two goroutines. The reader decodes every frame that one read
// brought, calls the service for each, and then writes what was answered in the
// meantime itself, so that a lone caller's answer costs no switch of goroutines
// and a burst costs one read and one write. The writer sends what the service
// calls back later. A request that waits costs no goroutine.
//
// Everything that a client can make grow has a limit: connections, the size of a
// frame, unanswered requests, watches, and bytes that it does not read. A client
// that sends faster than it reads is read slower; one that is sent more grants
// than it reads is cut off; one that watches and does not read misses events and
// is told so with a gap.
package tcpserve
