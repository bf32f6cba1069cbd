// Package history records what concurrent callers of a lease.Service saw, and
// checks that one order of events explains all of it.
//
//	rec := history.Record(svc)
//	… use rec as the service, from many goroutines …
//	history.Check(t, rec.History())
//
// The check is linearizability (Herlihy and Wing, "Linearizability: a correctness
// condition for concurrent objects", 1990), decided by porcupine. The model knows
// holders, modes and limits, leases on many keys as one step, tokens that rise in
// the order of the grants, cancels that leave nothing, forces, ends of sessions,
// and holds that end by themselves, which they may do at any time from the
// deadline that their holder was promised, but not before. A call whose outcome
// is unknown may have happened at any time since, or not at all. Besides that it
// checks what needs no search: that no token is given twice, that a fence is
// above what it fences, that requests which conflict are granted in order of
// arrival, and that every request is answered once.
//
// What a service loses on purpose is not explained: a broker in memory that is
// restarted forgets holds before their time. A history covers a service that
// keeps what it acknowledged, over any number of connections and restarts.
package history
