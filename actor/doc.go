// Package actor keeps mutable state with one goroutine that owns it. Others send it
// functions, and it runs them one at a time: an [Object] for a value with methods of
// its own, a [Map] where a plain map is all that is needed.
//
// Use it when the state cannot be replaced as a whole, as a growing log, a parser, or
// a library's object that is not safe for concurrent use. A value that can be replaced
// costs far less in package locked or stm. It is no queue and no worker pool: one
// message runs at a time, and a slow one holds up all the others.
//
//	people, err := actor.New(ctx, NewPeople, actor.Options{})
//	age, err := actor.Ask(ctx, people, func(p *People) (int, error) { return p.Age("ada") })
//
// The checked examples have the rest.
//
// # Messages
//
// [Ask] waits for the answer, Tell only for room in the mailbox, and [Send] gives a
// [Future] to wait on later. The variants with Try do not wait for room either and
// return [ErrFull]. Messages of one goroutine run in the order in which it sent them,
// so that an ask tells that all tells before it are done.
//
// A message runs at most once, and on the owner. If the context of an ask ends before
// the message was started, it is skipped; if it ends while it runs, the ask returns
// [ErrUnknown] and the message runs to its end. What a message returns crosses over as
// it is: nothing is copied but the structure of a Map in its Keys and Copy. A pointer,
// slice or map into the owned state must not be returned or kept; Go cannot freeze it,
// and nothing notices. Return copies.
//
// # Errors
//
// Errors of this package begin with the owner's name, which is [Options].Name; those of
// functions are passed on as they are. Nil functions, nil contexts, and handles that were
// not made by New or NewMap panic in whoever uses them.
//
// The error of an ask or a future goes to whoever waits for it. That of a tell, and
// that of an ask whose caller has left, goes to [Options].OnError, by default to the
// log. A panic becomes a [PanicError] with the owner's stack, runtime.Goexit becomes
// [ErrGoexit], and either way the owner goes on with the state as the message left
// it: nothing is undone.
//
// # What is refused
//
// An ask from inside a message to its own owner would wait for itself. To run it at
// once instead would let it see the state that the outer message has half changed, so
// it is refused, with a [NestedError]: call the method directly. The same holds for
// every ask, and every wait for room, for an answer or for the end of an owner, that
// would close a circle of owners waiting for one another. Of two owners that ask each
// other in the same instant, both may be refused.
//
// Whatever may wait is refused inside an update or section of package locked, too;
// what never waits (TryTell, TrySend) is allowed. Inside an stm transaction, whose
// function may run again, all are refused: use its AfterCommit.
//
// What a goroutine is inside of is not passed on: a goroutine started by a message,
// iter.Pull, and a wait on a channel such as [Future.Done] are not seen.
//
// # Ends
//
// Close refuses new messages, runs those that are queued, and ends the goroutine. If the
// object is an [io.Closer], the owner calls its Close as its last act, on the same
// goroutine, and Close returns its error: nobody else need close a file that is owned. An
// owner that nothing refers to any more ends as well, in the same way but for its errors,
// which go to OnError; that is some time after the garbage collector noticed, and programs
// should not wait for it.
package actor
