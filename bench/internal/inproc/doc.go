// Package inproc measures ways for goroutines of one process to share state: one
// value, one map, one counter, by ours, by the standard library's and by peers'.
//
// A cell is one subject under one load: an operation, a number of goroutines, and
// whether they share one object, have one each, or have a key each in one map. All
// cells of an operation run once a round, in an order drawn anew, for a few
// milliseconds each, so that a disturbance of the machine hits all alike. Every
// operation of every subject is reached by one call of a function value, which the
// row without sharing pays as well.
//
// All goroutines of a cell are ready before its clock starts, and each does a fixed
// number of operations, so that each of them does its part. After each round what is
// stored is compared with what was done: a lost update cannot look fast, and voids
// the whole table.
//
// A figure is nanoseconds of wall time for each operation that any goroutine
// finished. With one goroutine, and with more than two, it is the lower quartile of
// the rounds. With two it is the median of those rounds only in which both truly ran
// at once, which the CPU time tells; a subject that makes its goroutines take turns
// has no such rounds, and its cell is marked and holds the lower quartile.
package inproc
