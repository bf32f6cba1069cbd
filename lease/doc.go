// Package lease is the contract of Latchkey's lock service: what a lease is,
// what every service that grants leases promises, and the client side that is
// written once for all of them.
//
// A lease is the right to act on one or more keys until it is released or its
// time to live runs out. Each key that is granted carries a fencing [Token], an
// integer that rises with every new hold of that key, so that a resource that
// remembers the highest token it has seen can refuse a holder that was paused
// past its lease. No lock service can do that refusing for the resource; see
// Kleppmann, "How to do distributed locking" (2016), and Burrows, "The Chubby
// lock service" (OSDI 2006), whose sequencers these tokens are.
//
// # What to use
//
// Most programs want [Connect] and then [Client.Do] or [Client.Lead]: they hold
// the lease while a function runs, renew it in the background, and cancel the
// function's context, with the cause, before another holder can be granted the
// key. [Client.Hold] is the same without the function. [Client.Acquire] only
// acquires: renewal and the deadline are then the caller's.
//
// Use a lease when at most one process (or at most n) should do a thing at a
// time and processes may die. Do not use one between goroutines of a single
// process: a mutex is simpler and a thousand times cheaper.
//
// # What a Service promises
//
// The [Service] underneath is asynchronous. A session starts a request and is
// called back: once when the request waits, and once with its outcome. The
// blocking calls are built on that in this package, so that a front end needs no
// goroutine per waiter.
//
//   - In the service's own history at most one unexpired exclusive hold of a key
//     exists, and shared and counted holds exclude as [Mode] says.
//   - A lease never ends before its promised time by the service's monotonic
//     clock. The wall clock takes no part; only durations cross the wire.
//   - Requests for a key are granted in order of arrival. See [Request].
//   - Whatever ends a lease that was not released is told to its session: see
//     [Notice].
//   - A call whose outcome cannot be known fails with [ErrUnknown].
//   - With a directory, nothing is acknowledged before it is as durable as was
//     configured.
//
// # Concurrency
//
// Services, sessions and clients are safe for concurrent use. Callbacks are run
// one at a time by the service and must not block; they may call back into the
// service, which answers after they return.
package lease
