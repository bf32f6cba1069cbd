//go:build unix

package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
	"github.com/latchkey-go/latchkey/internal/proctest"
)

// A standing Invalidator says that it is asked, and stands still.
type standing struct{ stage *proctest.Stage }

func (s standing) Invalidate(ctx context.Context, _ int64, _ hotcache.Version) error {
	s.stage.Say("is to tell the cache")
	<-ctx.Done()
	return ctx.Err()
}

// writer is a process that changes a row and comes as far as the cache.
func writer(stage *proctest.Stage, args []string) error {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	topic, err := outbox.NewTopic("prices", standing{stage}, outbox.Options[int64]{
		Table: outbox.Table(args[1] + "_outbox"), Grace: 300 * time.Millisecond, Timeout: time.Hour,
	})
	if err != nil {
		return err
	}
	_, err = topic.Update(ctx, db, 7, setPrice(args[1], 7, 500))
	return err
}

// relayThatHangs is a process with a relay that comes as far as the cache.
func relayThatHangs(stage *proctest.Stage, args []string) error {
	topic, err := outbox.NewTopic("prices", standing{stage}, outbox.Options[int64]{Table: outbox.Table(args[1] + "_outbox")})
	if err != nil {
		return err
	}
	r, err := outbox.NewRelay(outbox.RelayOptions{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, args[0]) },
		Table:   outbox.Table(args[1] + "_outbox"), Targets: []outbox.Target{topic}, Timeout: time.Second,
	})
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// Weakness 3: a process that is killed between its commit and the cache leaves the invalidation to others. The real
// cache had the old price in memory.
func testWriterKilled(t *testing.T, s *shop) {
	cache, err := hotcache.New(func(ctx context.Context, id int64, _ hotcache.Version) (price int64, _ hotcache.Version, err error) {
		db, err := pgx.Connect(ctx, s.w.URL())
		if err != nil {
			return 0, 0, err
		}
		defer db.Close(ctx)
		var v int64
		err = db.QueryRow(ctx, `select price, version from `+s.name+` where id = $1`, id).Scan(&price, &v)
		return price, hotcache.Version(v), err
	}, hotcache.Options[int64, int64]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if price, err := cache.Get(t.Context(), 7); price != 100 || err != nil {
		t.Fatalf("Get = %d, %v", price, err)
	}
	w := proctest.Fork(t, "writer", s.w.URL(), s.name)
	w.Wants("is to tell the cache")
	w.Kill()
	if price, err := cache.Get(t.Context(), 7); price != 100 || err != nil || s.waiting() != 1 {
		t.Fatalf("Get before anybody tells = %d, %v, with %d rows", price, err, s.waiting())
	}
	began := time.Now()
	s.relay(outbox.RelayOptions{Poll: 100 * time.Millisecond}, s.topic(cache, outbox.Options[int64]{}))
	soon(t, "the relay has told the cache", func() bool {
		price, err := cache.Get(t.Context(), 7)
		return price == 500 && err == nil
	})
	t.Logf("it took %v", time.Since(began))
	soon(t, "the row is gone", func() bool { return s.waiting() == 0 })
}

// A relay that is killed with rows in its hands leaves them to another.
func testRelayKilled(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	first := proctest.Fork(t, "relay", s.w.URL(), s.name)
	s.write(topic, 7, 2)
	first.Wants("is to tell the cache")
	began := time.Now()
	first.Kill()
	s.relay(outbox.RelayOptions{Poll: 50 * time.Millisecond}, topic)
	soon(t, "the other has told the cache", func() bool { return l.version(7) == 2 && s.waiting() == 0 })
	if n := s.number(`select count(*) from ` + string(s.box)); n != 0 {
		t.Errorf("%d rows", n)
	}
	t.Logf("it took %v", time.Since(began))
}
