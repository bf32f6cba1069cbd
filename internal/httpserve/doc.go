// Package httpserve is the HTTP front end of a lease service: a JSON API for
// programs without a client of their own, metrics for Prometheus, and a status
// page for people.
//
// It calls a [lease.Service] directly, with no socket in between, and works
// whether or not anything else serves it. Use it from shells, from browsers on
// the same host and from languages that have no client. A program that must know
// at once when it loses a lock should use a client of the native protocol: over
// HTTP a hold lives until its ttl and nobody is told of its loss.
//
// # Holds
//
// All holds taken over HTTP belong to one session named "http", and each is
// detached: it lives until its ttl, 5 s unless the request says otherwise,
// whatever becomes of the connection or of this process. A request that waits is
// given up when its caller hangs up. A request id is unique among all callers; a
// repeat gets the same grant.
//
// # live-mutex
//
// Routes, fields and status codes are those of live-mutex's front end where it
// has them, and /metrics has its names. So a max over lease.MaxHolders, which
// the native protocol refuses, is cut to that here and counted.
//
// # Who may call
//
// A request must name a loopback or configured host, so that a web page cannot
// reach the broker under a name of its own (DNS rebinding), must come from no
// foreign origin, and changes nothing unless its body is declared as JSON, which
// a web page cannot send elsewhere without asking first.
//
// # Concurrency
//
// A [Server] is safe for concurrent use. It starts no goroutine: what waits or
// streams does so on the goroutine of its request.
package httpserve
