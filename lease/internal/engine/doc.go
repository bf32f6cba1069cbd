// Package engine decides everything about leases: who is granted what, in which
// order, and when it ends. It is a pure state machine: commands and the present
// time go in, effects and journal records come out. It reads no clock, starts no
// goroutine, takes no lock and opens no file, so that the same commands at the
// same times always give the same effects and a test can drive years in
// microseconds.
//
// Time is a Duration since the service started, taken from a monotonic clock by
// the owner; the wall clock cannot enter. The owner calls [Engine.Advance] before
// each command with a time that never falls.
//
// Read it in this order: [Engine.Acquire] decides a request (acquire.go), pass
// hands freed keys on (queue.go), end is the one way a hold ends (hold.go).
//
// The engine is not safe for concurrent use: one goroutine owns it at a time.
package engine
