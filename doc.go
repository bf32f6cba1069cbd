// Package latchkey is the map of a module for shared mutable state that stays correct: between goroutines, between
// processes, between machines. The package itself holds nothing; import what the table points at.
//
// # Choose
//
//	you need                                            take
//	goroutines of this process share values that must   package stm: transactional variables
//	agree with each other
//	the same, and the function must run exactly once,   package locked; Var is one value, Map a map whose keys
//	or the value is fought over                           change together, KeyMap one with a lock for each key
//	the same, and the state changes in place            package actor; Object is a value that one goroutine owns,
//	                                                      Map a map
//	only one process, or N of them, may do this at a    package lease; the service that suits:
//	time, and what it writes can be told from what a      leaselocal    in this process, durable with a directory
//	slower one wrote before                               leaseremote   a broker over TCP or a unix socket
//	every process reads small data all the time, and    package rmap: a map with a copy in each process; the store
//	it must not stay wrong in silence                     that suits:
//	                                                      rmaplocal     in this process
//	                                                      rmapredis     a Redis
//	rows of a database near those who read them, some   package hotcache: a cache with a loader; nodes that suit:
//	of them by everybody, and nothing after it was        none          in this process
//	invalidated                                           hotcacheredis one Redis or several
//	a broker for the npm package live-mutex, whose      the command latchkey serve; docs/live-mutex.md is for those
//	clients are left as they are                          who move over
//
// docs/choose.md says more of the first three, which cost nothing but themselves: they import the standard library alone.
//
// # Rules that hold everywhere
//
// A number settles every argument: a lease carries a fencing token that only rises, and the protected resource refuses
// whoever holds an older one; a map's copy goes by its revision; a cache stores no row that is older than the version
// which was invalidated. Nothing is silently wrong: a lost lease cancels a context, an outcome that nobody can know
// is an error that says so, and a lock inside of another is refused by name instead of hanging one day. Nothing is
// acknowledged before it is as durable as was asked. What is read without asking says how old it may be.
package latchkey
