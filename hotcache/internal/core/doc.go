// Package core makes the decisions of the cache, and nothing else: which answer a node gives, who may fill a key and
// what may be filled, what a process may serve from its memory, which reads share a load, where a hot key is read.
//
// It is pure: state, now and an event in, answers and actions out. It reads no clock, starts no goroutine and does no
// I/O, so the live cache and the simulator drive the same decisions, and a run can be repeated exactly. Times are
// durations since a start of the driver's choosing; only durations cross from one machine to another.
//
// There are two sides. A [Home] is a node: it owns the keys that the ring gives it. A [Front] is a process that reads:
// it has the loads in flight, what it knows of each node's invalidations, and how long it may trust that.
//
// Three guards, each for what the one before cannot see. The fill lease (who may fill): an invalidation voids it, so a
// load that read before the commit stores nothing; this is memcache's lease for stale sets (Nishtala et al., NSDI
// 2013, 3.2.1). The floor (what may be filled): an invalidation leaves the least version that may be stored, so a load
// from a replica that lags is refused and asked again from the primary. The position in the feed (what memory may
// serve): every invalidation has a number in its node's feed, and a process serves from its memory only while it can
// prove that it has heard all of them.
package core
