// Package stm provides transactional variables: several values that goroutines read
// and change together, without naming a lock.
//
//	err := stm.Atomically(ctx, func(tx stm.Tx) error {
//		if from.Get(tx) < amount {
//			return errTooLittle // nothing has happened
//		}
//		stm.Add(tx, from, -amount)
//		stm.Add(tx, to, amount)
//		return nil
//	})
//
// [Atomically] runs a function as a transaction: others see all of what it sets, or
// nothing. No lock is held while the function runs. When another transaction has
// changed what it has read, it runs again, so it must have no effects but on
// variables; [Tx.AfterCommit] is for the others. A run never sees half of another
// transaction, not even a run that is going to be thrown away (opacity), so that
// what holds between variables may be relied upon in every line.
//
// Use it when variables must agree with each other, or when readers must never wait.
// When the function has to run exactly once, or when one value is changed very often
// by everybody, package locked is the better choice. State with methods of its own
// that shall be changed in place belongs to package actor.
//
// # Values
//
// A value is shared by all who read it, and Go has no way to freeze it: replace a
// value, never change what it refers to. Clone a slice or a map before changing it,
// or hold an immutable struct. The race detector finds many offences.
//
// # Waiting
//
// A transaction waits for others in few places: for a commit of a variable that it
// touches, which takes nanoseconds; between runs that lost, a little; after ten of
// them, or three for a [View], for its turn at a gate behind which it cannot lose;
// and, when its function returns [Retry], for a change of what it has read. The last
// two end with its context. While a transaction is behind the gate, others cannot
// commit to the variables that it has read, so a function must not wait for anything,
// least of all for another goroutine's transaction. [Reruns] tells how often functions
// were run again.
//
// # Nesting
//
// Atomically inside of a transaction joins it. What would wait for a lock or an actor
// is refused inside of a transaction, and so is Retry inside of a lock, with a
// [NestedError]. This needs to know the goroutine; a goroutine that a transaction's
// function starts, and what iter.Pull runs, is another one. Where goroutines are not
// told apart, which is logged once, pass [Tx.Context] to a nested Atomically, and do
// not call [SetNow] and [AddNow] inside of a transaction.
//
// # Sources
//
// Retry and OrElse are those of Harris, Marlow, Peyton Jones and Herlihy, Composable
// Memory Transactions (2005); opacity is defined by Guerraoui and Kapałka, On the
// Correctness of Transactional Memory (2008). How it is built, and why that is right,
// is in docs/decisions/0013-stm.md.
package stm
