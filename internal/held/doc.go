// Package held knows which goroutine is inside which in-process lock, transaction
// or actor. Packages stm, locked and actor use it to refuse, at the door, what would
// wait for itself; nobody else does.
//
// What a goroutine is inside of is a stack of frames. They are kept in the table, so
// that entering costs no allocation. Only the goroutine itself reads or changes its
// own.
//
// This is the one place of the module with process-wide state: a table of goroutines
// that are inside of something, and the place of the goroutine's id in the runtime's
// memory, which is found and tested at first use. Where it is not found, nothing is
// detected; [Detecting] says so, and it is logged once.
package held
