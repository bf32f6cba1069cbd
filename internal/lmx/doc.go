// Package lmx speaks the protocol of live-mutex brokers to clients of those, over
// a lease.Service. It is one protocol of several on the same connections: whoever
// owns the sockets hands it lines and takes frames from it, as Peer.
//
// A frame is a JSON object in a line. What it may say, what the clients rely on
// and where this broker differs on purpose is docs/live-mutex.md.
//
// Each connection has a session of its own that ends with it. The uuid of a
// request is the id of its hold. The service decides everything about locks; this
// package keeps only what the protocol has beyond them: the last max of a key
// while it is in use, who may reject a grant, which ids have ended, and the
// readers/writers monitor of a key.
//
// One mutex guards all of that. It is never held while the service is called or a
// frame is sent, since both may call back.
package lmx
