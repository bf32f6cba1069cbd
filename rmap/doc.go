// Package rmap is a replicated map: every process reads its own copy in nanoseconds, and a store keeps the copies
// current. It is for small data that is read all the time and written now and then: feature flags, routes, limits,
// prices, the members of a cluster. It is not for data larger than memory, since every process holds all of it; not for
// data written more often than read; and not a cache, which package hotcache is.
//
//	store := rmaplocal.New(rmaplocal.Options{}) // or rmapredis.Open(ctx, "redis://127.0.0.1:6379", rmapredis.Options{})
//	flags, err := rmap.Join(ctx, store, "flags", rmap.Options[string, bool]{})
//	flags.Set(ctx, "dark-mode", true)
//	on, ok := flags.Get("dark-mode")
//
// # What a copy promises
//
// Writes go to the store, which numbers them and broadcasts each; a copy applies exactly the next one, and when
// something is missing it is mended: by the store's log of the latest changes if that suffices, and by reading the
// whole map if not. A [Revision] names every change for good: a generation, which is a life of the map, a number, and a
// nonce that tells it from another of the same number. So an expiry, a restart without data, a rollback, and a lost
// message are all seen. They are seen at the next change at the latest, and without one within a heartbeat and two
// of the feed's time limits; until then [Map.Lag] says how old the copy may be.
//
// Reads never wait: [Map.Get], [Map.All] and [Map.Snapshot] serve what the copy has. [Map.Sync] makes every finished
// write visible first, [Map.WaitFor] a given one, and [Map.SetAndWait] one's own. [Map.Lookup] and [Map.Fresh] refuse
// a copy that is too old, by [Options.MaxStale].
//
// # Writes
//
// Every write returns its revision. A failed one is a [WriteError], which says whether it was applied, or that nobody
// knows: no write is ever tried again behind your back. Conditions (absent, a value, a revision) are checked in the
// store, in the same atomic step. [Map.Batch] does several writes as one change.
//
// # Concurrency
//
// All methods may be called from any goroutine at any time. Values are shared by all who read them: replace a value,
// and never change a slice or a map that was stored or read. A map has one goroutine, which ends with [Map.Close].
package rmap
