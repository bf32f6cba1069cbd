// Package leaselocal is a lease.Service in this process. Without a directory it
// keeps everything in memory; with one it is durable: grants, releases and
// losses are in its journal before anyone is told of them.
//
//	svc, err := leaselocal.Open(leaselocal.Options{Dir: "/var/lib/app/leases"})
//	if err != nil { … }
//	defer svc.Close()
//	client, err := lease.Connect(ctx, svc, lease.ClientOptions{})
//
// Use it inside one process, and as what a broker serves. A directory belongs
// to one service at a time; a second one refuses to open it.
//
// # How it works
//
// The decisions are the engine's, a state machine that one goroutine at a time
// owns. Commands gather in an inbox; whoever owns the engine takes all that is
// there, applies it, appends the records to the journal, syncs once, and only
// then calls back. So one sync covers a release and the grant that it causes,
// and everything else that came meanwhile. Without a journal nothing blocks, and
// the goroutine that submits a command to an idle service runs it itself.
//
// # After a crash
//
// Leases come back under their ids with their full ttl from the start, because
// how long the service was away cannot be known. Sessions get their grace anew.
// Should a write or a sync ever fail, the journal is not trusted any more:
// nothing is granted until the service is opened again.
//
// Sessions opened here need no proof of life unless they ask for a grace: they
// live as long as the process does.
package leaselocal
