//go:build unix

package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
)

func testUpdate(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	for want := hotcache.Version(2); want < 5; want++ {
		v, err := topic.Update(t.Context(), s.db, 7, setPrice(s.name, 7, 200))
		if v != want || err != nil || l.version(7) != want {
			t.Fatalf("Update = %d, %v, and the cache was told of %d; want %d", v, err, l.version(7), want)
		}
	}
	if n := s.waiting(); n != 0 {
		t.Errorf("%d rows are left in the outbox", n)
	}
}

// What is cached of a row has the version that a delete of it returns, and goes all the same.
func testDelete(t *testing.T, s *shop) {
	cache, err := hotcache.New(func(ctx context.Context, id int64, _ hotcache.Version) (price int64, v hotcache.Version, err error) {
		err = s.db.QueryRow(ctx, `select price, version from `+s.name+` where id = $1`, id).Scan(&price, &v)
		if errors.Is(err, pgx.ErrNoRows) {
			err = hotcache.ErrNotFound
		}
		return price, v, err
	}, hotcache.Options[int64, int64]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	topic := s.topic(cache, outbox.Options[int64]{})
	if _, err := topic.Update(t.Context(), s.db, 7, setPrice(s.name, 7, 200)); err != nil {
		t.Fatal(err)
	}
	if price, err := cache.Get(t.Context(), 7); price != 200 || err != nil {
		t.Fatalf("Get = %d, %v", price, err)
	}
	remove := func(ctx context.Context, tx pgx.Tx) (v hotcache.Version, err error) {
		err = tx.QueryRow(ctx, `delete from `+s.name+` where id = 7 returning version`).Scan(&v)
		return v, err
	}
	if v, err := topic.Delete(t.Context(), s.db, 7, remove); v != 3 || err != nil {
		t.Errorf("Delete = %d, %v; want 3, one more than the row had", v, err)
	}
	if price, err := cache.Get(t.Context(), 7); !errors.Is(err, hotcache.ErrNotFound) {
		t.Errorf("Get of a row that was deleted = %d, %v", price, err)
	}
	if _, err := topic.Delete(t.Context(), s.db, 7, remove); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("Delete of a missing row: %v", err)
	}
	v, err := topic.Delete(t.Context(), s.db, 8, func(context.Context, pgx.Tx) (hotcache.Version, error) { return 0, nil })
	if v != 0 || err != nil || s.waiting() != 0 {
		t.Errorf("Delete of who counts nothing = %d, %v; %d rows are left", v, err, s.waiting())
	}
}

// Weakness 5: nothing is told of a transaction that comes to nothing.
func testRolledBack(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	change := setPrice(s.name, 7, 200)
	mine := errors.New("no")
	v, err := topic.Update(t.Context(), s.db, 7, func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
		v, _ := change(ctx, tx)
		return v, mine
	})
	if v != 0 || !errors.Is(err, mine) {
		t.Errorf("Update = %d, %v", v, err)
	}
	func() {
		defer func() {
			if p := recover(); p != mine {
				t.Errorf("recovered %v", p)
			}
		}()
		topic.Update(t.Context(), s.db, 7, func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
			change(ctx, tx)
			panic(mine)
		})
	}()
	_, err = topic.Update(t.Context(), s.db, 404, setPrice(s.name, 404, 200))
	if !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("Update of a missing row: %v", err)
	}
	_, err = topic.Update(t.Context(), s.db, 7, func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
		return 5, tx.Commit(ctx)
	})
	if err == nil || !strings.Contains(err.Error(), "ended the transaction itself") {
		t.Errorf("Update of who commits himself: %v", err)
	}
	if _, calls := l.counts(); calls != 0 || s.waiting() != 0 {
		t.Errorf("%d invalidations, %d rows in the outbox", calls, s.waiting())
	}
	if n := s.number(`select version from ` + s.name + ` where id = 7`); n != 1 {
		t.Errorf("the row has version %d", n)
	}
}

func testSavepoint(t *testing.T, s *shop) {
	topic := s.topic(&ledger{}, outbox.Options[int64]{})
	tx, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	for id, end := range map[int64]func(pgx.Tx) error{
		1: func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		2: func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
	} {
		inner, err := tx.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(topic.Write(t.Context(), inner, id, 2), end(inner)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.number(`select convert_from(key, 'UTF8')::bigint from ` + string(s.box)); n != 1 || s.waiting() != 1 {
		t.Errorf("%d rows, one for key %d; want one for key 1", s.waiting(), n)
	}
}

// A transaction that the server refuses for its conflict with another has told nothing.
func testRefused(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{Tx: pgx.TxOptions{IsoLevel: pgx.Serializable}})
	other := s.w.connect(t)
	change := setPrice(s.name, 7, 200)
	_, err := topic.Update(t.Context(), s.db, 7, func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
		if _, err := tx.Exec(ctx, `select from `+s.name); err != nil { // takes the snapshot
			return 0, err
		}
		if _, err := topic.Update(ctx, other, 7, setPrice(s.name, 7, 300)); err != nil {
			t.Fatal(err)
		}
		return change(ctx, tx)
	})
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "40001" {
		t.Fatalf("Update = %v, want a serialization failure", err)
	}
	if l.version(7) != 2 || s.waiting() != 0 {
		t.Errorf("the cache was told of %d, %d rows are left; want 2 and none", l.version(7), s.waiting())
	}
	if v, err := topic.Update(t.Context(), s.db, 7, change); v != 3 || err != nil {
		t.Errorf("the next Update = %d, %v", v, err)
	}
}

// Weakness 3: what was committed and could not be told is told later.
func testCacheIsOut(t *testing.T, s *shop) {
	l := &ledger{fail: func(int64) error { return errOut }}
	topic := s.topic(l, outbox.Options[int64]{Grace: 50 * time.Millisecond})
	v, err := topic.Update(t.Context(), s.db, 7, setPrice(s.name, 7, 200))
	var not *hotcache.NotInvalidatedError
	if v != 2 || !errors.As(err, &not) || not.Version != 2 || !errors.Is(err, errOut) {
		t.Fatalf("Update = %d, %v", v, err)
	}
	r, _ := s.relay(outbox.RelayOptions{Poll: 20 * time.Millisecond, LastPause: 200 * time.Millisecond}, topic)
	soon(t, "the relay has failed three times", func() bool { return r.Stats().Failed >= 3 })
	if !errors.Is(r.Stats().Err, errOut) {
		t.Errorf("the relay says %v", r.Stats().Err)
	}
	l.set(nil)
	soon(t, "the relay has told it", func() bool { return l.version(7) == 2 && s.waiting() == 0 })
}

// A cache that is back after a long time is told soon.
func testBackAfterLong(t *testing.T, s *shop) {
	topic := s.topic(&ledger{fail: func(int64) error { return errOut }}, outbox.Options[int64]{})
	s.exec(`insert into ` + string(s.box) + ` (topic, key, version, attempts) values ('prices', '7', 2, 20)`)
	s.relay(outbox.RelayOptions{}, topic)
	soon(t, "it has failed once more", func() bool { return s.number(`select count(*) from `+string(s.box)+` where problem is not null`) == 1 })
	if ms := s.number(`select (1000 * extract(epoch from due - clock_timestamp()))::bigint from ` + string(s.box)); ms > 2600 {
		t.Errorf("the next attempt is in %d ms", ms)
	}
}

// atCommit has every commit that changed a row run something.
func (s *shop) atCommit(statement string) {
	s.exec(`create function ` + s.name + `_late() returns trigger language plpgsql as $$ begin ` + statement + `; return null; end $$;
		create constraint trigger late after update on ` + s.name + ` deferrable initially deferred
		for each row execute function ` + s.name + `_late()`)
}

func testCommitUnknown(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	s.atCommit(`perform pg_sleep(60)`)
	other := s.w.connect(t)
	for name, cut := range map[string]func(ctx context.Context, cancel func(), pid uint32){
		"the caller gives up": func(_ context.Context, cancel func(), _ uint32) { cancel() },
		"the connection is cut": func(ctx context.Context, _ func(), pid uint32) {
			if _, err := other.Exec(ctx, `select pg_terminate_backend($1)`, pid); err != nil {
				t.Error(err)
			}
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		db := s.w.connect(t)
		pid := db.PgConn().PID()
		var cutting sync.WaitGroup
		cutting.Go(func() {
			soon(t, "it commits", func() (commits bool) {
				err := other.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')`, pid).Scan(&commits)
				return commits || err != nil
			})
			cut(t.Context(), cancel, pid)
		})
		v, err := topic.Update(ctx, db, 7, setPrice(s.name, 7, 200))
		cutting.Wait()
		cancel()
		var unknown *outbox.CommitUnknownError
		if v != 2 || !errors.As(err, &unknown) || unknown.Version != 2 {
			t.Errorf("%s: Update = %d, %v", name, v, err)
		}
		s.exec(`select pg_terminate_backend(pid) from pg_stat_activity where pid = $1`, pid)
	}
	if _, calls := l.counts(); calls != 0 {
		t.Errorf("%d invalidations of nobody knows what", calls)
	}
}

// What the server refuses at the commit is known not to have happened.
func testCommitRefused(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	s.atCommit(`raise exception 'too cheap'`)
	v, err := topic.Update(t.Context(), s.db, 7, setPrice(s.name, 7, 1))
	var refused *pgconn.PgError
	var unknown *outbox.CommitUnknownError
	if v != 0 || !errors.As(err, &refused) || errors.As(err, &unknown) {
		t.Errorf("Update = %d, %v", v, err)
	}
	if _, calls := l.counts(); calls != 0 || s.waiting() != 0 {
		t.Errorf("%d invalidations, %d rows", calls, s.waiting())
	}
}

// Weakness 2: a replica that lags does not bring an old row back.
func testReplicaLags(t *testing.T, s *shop) {
	old, err := s.w.connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Rollback(context.WithoutCancel(t.Context()))
	if _, err := old.Exec(t.Context(), `select from `+s.name); err != nil { // takes the snapshot
		t.Fatal(err)
	}
	primary := s.w.connect(t)
	var mu sync.Mutex // connections serve one at a time
	lagging, fresh := 0, 0
	cache, err := hotcache.New(func(ctx context.Context, id int64, min hotcache.Version) (price int64, _ hotcache.Version, err error) {
		mu.Lock()
		defer mu.Unlock()
		var v int64
		query, from := `select price, version from `+s.name+` where id = $1`, old.QueryRow
		if lagging++; min > 0 {
			from = primary.QueryRow
			fresh++
		}
		err = from(ctx, query, id).Scan(&price, &v)
		return price, hotcache.Version(v), err
	}, hotcache.Options[int64, int64]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	topic := s.topic(cache, outbox.Options[int64]{})
	for i := range int64(20) {
		if _, err := cache.Get(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		v, err := topic.Update(t.Context(), s.db, 7, setPrice(s.name, 7, 1000+i))
		if err != nil {
			t.Fatal(err)
		}
		price, got, err := cache.GetVersion(t.Context(), 7)
		if err != nil || got < v || price != 1000+i {
			t.Fatalf("after version %d: price %d, version %d, %v", v, price, got, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if fresh < 20 {
		t.Errorf("%d of %d loads went to the primary", fresh, lagging)
	}
}

// Weakness 3: who no longer waits does not keep the cache from being told.
func testCancelled(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.set(func(int64) error { cancel(); return nil }) // after the commit; the row is still to be taken away
	if v, err := topic.Update(ctx, s.db, 7, setPrice(s.name, 7, 200)); v != 2 || err != nil || s.waiting() != 0 {
		t.Errorf("Update = %d, %v; %d rows are left", v, err, s.waiting())
	}
	if v, err := topic.Update(ctx, s.db, 7, setPrice(s.name, 7, 200)); v != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("Update of who has gone before = %d, %v", v, err)
	}
}
