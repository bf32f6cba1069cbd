// Package leaseremote is a [lease.Service] behind a broker: the Go client of the
// native protocol, over TCP or a unix socket.
//
// Use it when processes on one or several machines share leases and a broker
// (latchkey serve) runs where all of them reach it. Use leaselocal when one
// process is all there is. Most programs give the service to [lease.Connect] and
// never call it themselves.
//
//	svc, err := leaseremote.Dial(ctx, "127.0.0.1:6970", leaseremote.Options{})
//	if err != nil {
//		return err
//	}
//	defer svc.Close()
//	client, err := lease.Connect(ctx, svc, lease.ClientOptions{})
//
// # Connections
//
// Each session has a connection of its own. One more, opened at first use, serves
// List, Watch, Force and Stats. A session with a grace pings every third of it,
// one frame whatever it holds; a broker that is silent from one ping to the next
// counts as a broken connection.
//
// # When the connection breaks
//
// The session connects again, at once and then after 20 ms to 1 s, and resumes
// under its id. Every call that had no answer is sent again under its request id,
// which the broker treats as the same request:
//
//   - An acquire gets the grant that was made, or its place in the queue. Its age
//     is sent along, so that it also gets its place back from a restarted broker.
//   - A release that is answered "not held" when it is sent a second time has
//     done its work the first time, if the hold was there when it was made. It
//     succeeds, unless the hold was told lost or its time was up by then. What
//     this cannot see is a force in between.
//   - Holds that ended meanwhile are told as losses, and leases that the session
//     has no use for, since their call was given up, are released.
//
// If the session has ended meanwhile (the grace passed, or the broker keeps
// nothing over a restart), every hold that is not detached is told as
// [lease.ErrSessionLost]. Requests that wait have lost nothing: the session
// opens anew under the same [lease.Session] value, with another ID, and sends
// them again with their age.
//
// While the connection is away, requests that may wait do so; [lease.Request]
// Wait still bounds them. Everything else is given up when the session cannot
// have survived any longer: with [lease.ErrUnavailable] if it was never sent, and
// [lease.ErrUnknown] if it was. Nothing is retried by a timer.
//
// # Concurrency
//
// Everything is safe for concurrent use. No call of a session waits for the
// network, but for Lend, which waits a few milliseconds at most. The callbacks of
// one session are run one at a time, by the goroutine that reads its connection,
// its own or that of a lone caller, or by one that made a call which is answered
// on the spot; those of a Watch by the goroutine that reads the other connection.
// They must not block, and must not call Close of the service. Between the calls
// of a lone caller a notice can be two milliseconds late.
package leaseremote
