// Package wire is the native protocol of Latchkey as bytes: JSON objects, one a
// line, and the codes of package lease as failures. Both ends of a connection
// use it; clients/PROTOCOL.md describes the same thing for other languages, and
// clients/vectors holds frames that both are tested against.
//
// A client's frames are a [Hello] and then [Request] values; a server's are a
// [Hello] and then [Reply] values. The Append functions encode onto a buffer, the
// Decode functions fill a struct from one line, and a [Reader] cuts a stream into
// lines. They use a scanner of their own instead of reflection, since a frame is
// handled in about a microsecond; fuzz tests hold it to what encoding/json says,
// apart from these rules, which are stricter:
//
//   - Names match exactly, letter case included.
//   - Null is refused, and so is a name that appears twice in a request.
//   - Numbers are integers below 2^53.
//   - Strings are valid UTF-8 without half a surrogate pair: two keys that differ
//     must never become one by replacement.
//   - In a request, fields that the verb does not have are refused by name. In
//     a reply, unknown fields are ignored, so that an old client can talk to a
//     newer server.
//
// Decoding errors come in two kinds. One with [lease.ErrProtocol] means that the
// peer does not speak the protocol or that its framing is lost: the connection
// has no future. One with [lease.ErrRefused] concerns that request alone.
//
// Readers are for one goroutine; everything else is a pure function.
package wire

import "github.com/latchkey-go/latchkey/lease"

// Version is the version of the protocol, exchanged in the hello. Within a
// version new fields are sent only to a peer that listed their feature.
const Version = 1

// Sizes of frames, the newline not counted.
const (
	// MaxRequest bounds what a client may send, hello included.
	MaxRequest = lease.MaxFrame
	// MaxReply bounds what a server sends: a page of a listing is cut to fit.
	MaxReply = 1 << 20
	// maxDepth bounds the nesting of a value. The protocol needs four levels.
	maxDepth = 32
	// maxInteger is the bound that integers stay below in magnitude: every
	// language's numbers hold them exactly.
	maxInteger = 1 << 53
)
