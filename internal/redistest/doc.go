// Package redistest gives tests a real Redis and a bad network. [Start] runs a
// redis-server of the test's own, which can be killed, frozen and restarted, and
// whose clients can be cut off at a chosen moment. [NewRelay] stands between one
// client and its server and cuts, freezes or slows down what passes.
//
// Only tests import it. Everything listens on loopback, and is gone when the test
// that started it is over, whatever its end; on Linux also when the process of the
// test is killed.
//
// Methods fail the test when they cannot do what they say, so they belong on the
// test's own goroutine. [Server.Try] and the methods of [Relay], but for
// [Relay.Restore], may be called from any.
//
// Servers are cheap, some ten milliseconds each: where tests want to share one they
// are subtests of one that starts it, and use different names in it.
package redistest
