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
// # What a loader must do for it
//
// Return a version that rises with each write of the row, and read the primary when it is asked for a least version.
// A loader without versions returns 0. Then an invalidation still voids every load that began before it, and every
// load after it is asked to read the primary, for [Rules.FloorTTL]; what is lost is that two writes which finish in
// another order than they were made cannot be told apart, and GetAtLeast.
package hotcache
