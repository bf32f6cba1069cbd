// Package lmxload puts load on a broker that speaks the live-mutex protocol,
// the same load on every broker, and judges what it answers.
//
// It says what the JavaScript client says, byte for byte: a version frame first,
// then for each hold a lock frame, lock-received once the grant is there, and an
// unlock frame. It shares the machine with the broker, so it is made light: one
// goroutine a connection, frames put together from constants and scanned without
// a JSON package, one read for all that came and one write for all that it leads
// to.
//
// A frame that answers nothing asked, an error, a warning, an unlock of what the
// broker does not know, a grant of a key that somebody holds, a token that does
// not rise: each is a wrong answer, see rounds.ErrWrong.
//
// A Conn is for one goroutine.
package lmxload
