// Package hotcache is a read-through cache that survives a hot key and never gives back what was invalidated.
//
//	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, Price]{})
//	price, err := cache.Get(ctx, id)
//	err = cache.Invalidate(ctx, id, version) // after the commit
//
// A read goes through this process's memory, then the key's node, then the loader. Without nodes there is one in this
// process; with nodes in Redis (package hotcacheredis) all processes share what was loaded.
//
// # What it promises
//
// A Get that begins after an Invalidate of the key has returned never gets an older version, replica lag, loads under
// way, hot copies and lost messages included: see [Cache.Invalidate]. A key that many want at once is loaded once, by
// one process, and a load that fails is shared too. A process that dies while it loads is replaced within a second. When
// nodes are out, reads go on, with no more loads at a time than [Options.MaxDirectLoads].
//
// # Hot keys
//
// A key that gets more than [Options.HotShare] of the fleet's reads would make its node the busiest. Every process counts
// a sample of its reads (Space-Saving), all tell one another, and so all agree within a window which keys are hot. Those
// are copied to [Options.Copies] nodes, from their home, never by loads of their own, and each process reads the less
// busy of two of them, as far as it can tell by its own questions. A copy is used only while the process can prove that
// it would have heard of an invalidation, so a write is one command, whether the key is hot or not. [Cache.HotKeys] tells
// what is hot, and how surely.
//
// # What a loader must do for it
//
// Return a version that rises with each write of the row, deleted and inserted anew included, and read the primary when it
// is asked for a least version. A loader without versions returns 0, and its rows are invalidated with 0. Then an
// invalidation still voids every load that began before it, and every load after it is asked to read the primary, for
// [Rules].FloorTTL at least; what is lost is that two writes which finish in another order than they were made cannot be
// told apart, and that a reader has a version to carry to [Cache.GetAtLeast].
//
// # Elsewhere
//
// Package outbox makes sure that an invalidation happens at all, whichever process dies. Package hotcacheprom shows caches
// as metrics. The guide, docs/hotcache.md, has the rules of all times in one table, what happens when something breaks, and
// how to add a node.
package hotcache
