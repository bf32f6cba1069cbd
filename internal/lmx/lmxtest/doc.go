// Package lmxtest speaks the live-mutex protocol from a client's side, frame by
// frame, so that tests can say what no client library says: odd input, several
// frames in one write, characters cut in two, answers that nobody acknowledges.
//
// A World is one broker under test and the clients that a test has connected to
// it. The same test can so be run against our broker in this process, inside a
// synctest bubble where waiting costs nothing, and against any other broker of the
// protocol, to see what it does there. Clients are to be used by one goroutine.
package lmxtest
