package rmap

import "time"

// Limits of every map, whatever its store. What exceeds one is refused with [ErrTooLarge] before anything is written.
const (
	// MaxName is the length of a map's name in bytes: it becomes part of keys, channels and metric labels.
	MaxName = 512
	// MaxKey is the length of an encoded key in bytes. Keys are kept by every process and repeated in every change.
	MaxKey = 64 << 10
	// MaxValue is the length of an encoded value in bytes. Each write of it is sent to every process.
	MaxValue = 1 << 20
	// MaxOps is how many operations and conditions one batch may have.
	MaxOps = 1024
	// MaxWrite is the size of one write in bytes, all keys and values together, well below what a store's subscribers
	// are allowed to lag behind.
	MaxWrite = 4 << 20
	// DefaultMaxEntries is how many entries a map may have unless its options say otherwise: every process holds all.
	DefaultMaxEntries = 1_000_000
	// MaxTTL is the longest time to live: further away, milliseconds of Unix time leave the range that all stores
	// calculate with exactly.
	MaxTTL = 100 * 365 * 24 * time.Hour
	// MinTTL is the shortest, the grain of all deadlines.
	MinTTL = time.Millisecond
	// PurgeBatch is how many entries past their deadline one write removes on its way.
	PurgeBatch = 128
	// TombstoneTTL is how long the generation and the number of a destroyed map are remembered.
	TombstoneTTL = 24 * time.Hour
)
