// Package pgtest gives tests a real PostgreSQL. [Start] runs a server of the test's
// own, which can be stopped, killed in the middle of what it does, and restarted.
//
// Only tests import it. The server listens on loopback, and is gone when the test
// that started it is over, whatever its end; on Linux also when the process of the
// test is killed.
//
// Methods fail the test when they cannot do what they say, so they belong on the
// test's own goroutine.
//
// A server takes a second or two to make: tests that want one share it, as subtests
// of one that starts it, and use different tables in it.
package pgtest
