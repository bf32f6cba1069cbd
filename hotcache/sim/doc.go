// Package sim tries a cache in a world that it makes up: servers that read, nodes with a queue, a database with a
// replica, and what goes wrong between them, on a virtual clock. A run of a million reads takes seconds, and the same
// seed gives the same bytes.
//
// What is tried is a policy. "ours" is package hotcache: the simulator drives the very core that the live cache drives
// (Front, Home, Hot and Ring) and makes none of its decisions. "source" is the usual way to write such a cache by hand,
// as the baseline: delete on write, memory that only a time to live ends, a key made hot by each server for itself
// when its count is above a share, copies at random places that are each filled from the database.
//
// Use it to see what a skew, a number of copies or a fault does to the load of nodes and database and to staleness,
// before it is tried on people. It is no benchmark: times are those of its settings, and a server costs nothing.
//
// It is one event loop without goroutines. Nothing in it is safe for concurrent use.
package sim
