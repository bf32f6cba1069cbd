// Package locked has values behind locks for the goroutines of one process to share. A
// change is a function from the old value to the new one. It runs exactly once, with the
// lock held, and leaves nothing locked and nothing half done when it returns an error,
// panics or calls runtime.Goexit.
//
//   - [Var] is one value.
//   - [Map] is a map whose keys change together: whatever a section changes, others see all
//     of it or none of it. Undone as a whole, and a consistent copy at any time.
//   - [KeyMap] is a map whose keys have nothing to do with one another: a lock for each,
//     reads that take none, and [KeyMap.GetOrCreate], which runs once however many ask.
//
// Use it where a function must run exactly once, because it logs or sends, or where a value
// is hot. Do not use it where several values change together and their number is not fixed:
// that is what package stm is for, which has no lock to take. For state that is changed in
// place, and has methods of its own, see package actor.
//
// # Reading
//
// Load waits for a change in flight, so that the whole function is one step for it. Peek
// does not wait, takes no lock, and returns what was stored last.
//
// # A second lock
//
// A goroutine that is inside of the function of an update or a section and wants another
// lock could wait for itself, or for one that waits for it. All calls that may wait are
// refused there, always and not only when they would wait: with a [*NestedError], returned
// where the call returns an error and else as a panic, whose text says what to use instead.
// Peek, reads of stm variables, and transactions that do not wait are allowed, so are methods
// of a Map inside of its own section. Inside of an stm transaction, which may run again, the
// same calls are refused. Nothing is passed for that: it goes by the goroutine's identity. So
// a goroutine that was started inside of such a function, and iter.Pull, are not seen: who
// waits for one that wants the same lock waits for ever. On systems where the identity is not
// known nothing is refused, and a section inside of a section of the same map waits for ever;
// see [Detecting]. No detector sees too few locks: two
// values that must agree and are changed by two updates do not.
//
// # Values
//
// Go cannot freeze values. What is behind a pointer, a slice or a map is shared by all who
// read it: replace it, and do not modify what was stored.
//
// # Concurrency
//
// All methods are safe for concurrent use, but those of a [Section], which is its
// function's own. Waiting is in order of arrival but for newcomers that find the lock free;
// who waited for more than a millisecond goes before them.
package locked
