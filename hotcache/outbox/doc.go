// Package outbox makes sure that an invalidation happens at all. Whoever changes a row of PostgreSQL writes, in the same
// transaction, a second row that says which key of a cache is no longer good. If the transaction is rolled back there
// was never anything to tell; if it is committed, the second row stays until the cache was told, whichever process dies.
//
//	box := outbox.Table("")                         // "latchkey_outbox"; Create makes it
//	prices, err := outbox.NewTopic("prices", cache, outbox.Options[int64]{})
//	version, err := prices.Update(ctx, pool, id, func(ctx context.Context, tx pgx.Tx) (v hotcache.Version, err error) {
//		err = tx.QueryRow(ctx, `update products set price = $2, version = version + 1
//			where id = $1 returning version`, id, price).Scan(&v)
//		return v, err
//	})
//
// [Topic.Update] commits, tells the cache at once and takes the second row away. [Topic.Delete] does so for a row that
// is deleted, whose version it raises by one, for with that of the row itself nothing happens. [Topic.Write] is for
// transactions that the caller runs. What was committed and not told is told by a [Relay]: every process may run one,
// they share the work without a leader, and one of them is enough.
//
//	relay, err := outbox.NewRelay(outbox.RelayOptions{
//		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
//		Targets: []outbox.Target{prices},
//	})
//	go relay.Run(ctx)
//
// # How long it takes
//
// A row of Topic.Write wakes the relays by NOTIFY as it is committed; where that gets lost, they look every
// [RelayOptions.Poll]. A row of Topic.Update is left alone for [Options.Grace], in which Update itself tells the cache.
// A relay that dies leaves what it had taken to the others, [RelayOptions.Timeout] and half a second later. So a
// process that is killed between the commit and the cache delays the invalidation by Grace + Poll, and each relay that
// is killed over it delays it by that time and a Poll. An invalidation that fails is done again, with pauses that
// double up to [RelayOptions.LastPause].
//
// Rows may be told twice, and in any order; versions make both harmless.
//
// # Other programs
//
// A trigger does the same for programs that do not use this package:
//
//	create function products_changed() returns trigger language plpgsql as $$
//	begin
//		insert into latchkey_outbox (topic, key, version)
//			values ('prices', convert_to(coalesce(new.id, old.id)::text, 'UTF8'), coalesce(new.version, old.version + 1));
//		perform pg_notify('latchkey_outbox', 'prices');
//		return null;
//	end $$;
//	create trigger products_changed after insert or update or delete on products
//		for each row execute function products_changed();
//
// The key is what the codec of the topic makes of it: for whole numbers and text, the text.
// The version of a delete is above that of the row, which is what the cache has.
package outbox
