// Package lmxload puts load on a broker that speaks the live-mutex protocol,
// the same load on every broker, and judges what it answers.
//
// It says what the JavaScript client says, byte for byte: a version frame first,
// then for each hold a lock frame, lock-received once the grant is there, and an
// unlock frame. It shares the machine with the broker, so it is made light: one
// thread for all connections, on sockets of its own, frames put together from
// constants and scanned without a JSON package, one read for all that came on a
// connection and one write for all that it leads to. It needs Linux.
//
// A frame that answers nothing asked, an error, a warning, an unlock of what the
// broker does not know, a grant of a key that somebody holds, a token that does
// not rise: each is a wrong answer, see rounds.ErrWrong.
//
// Nothing here is safe for concurrent use.
package lmxload
