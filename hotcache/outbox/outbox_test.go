//go:build unix

package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Play(map[string]proctest.Part{"writer": writer, "relay": relayThatHangs})
	goleak.VerifyTestMain(m)
}

// A world is one server, with a table of rows and an outbox for each test.
type world struct {
	*pgtest.Server
	number int
}

// A shop is a table of rows with versions, and its outbox.
type shop struct {
	t    *testing.T
	w    *world
	db   *pgx.Conn
	name string
	box  outbox.Table
}

func (w *world) shop(t *testing.T) *shop {
	w.number++
	s := &shop{t: t, w: w, db: w.connect(t), name: fmt.Sprintf("shop%d", w.number)}
	s.box = outbox.Table(s.name + "_outbox")
	s.exec(`create table ` + s.name + ` (id bigint primary key, price bigint not null, version bigint not null);
		insert into ` + s.name + ` select id, 100, 1 from generate_series(1, 9) id`)
	if err := s.box.Create(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	db, err := pgx.Connect(t.Context(), w.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.WithoutCancel(t.Context())) })
	return db
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) number(sql string, args ...any) (n int64) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// waiting is how many rows the outbox has.
func (s *shop) waiting() int64 {
	s.t.Helper()
	return s.number(`select count(*) from ` + string(s.box))
}

// topic names a cache; its grace is long unless the test says something else.
func (s *shop) topic(cache outbox.Invalidator[int64], o outbox.Options[int64]) *outbox.Topic[int64] {
	s.t.Helper()
	o.Table = s.box
	topic, err := outbox.NewTopic("prices", cache, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return topic
}

// setPrice is a change of a row.
func setPrice(table string, id, price int64) func(context.Context, pgx.Tx) (hotcache.Version, error) {
	return func(ctx context.Context, tx pgx.Tx) (v hotcache.Version, err error) {
		var version int64
		err = tx.QueryRow(ctx, `update `+table+` set price = $2, version = version + 1 where id = $1 returning version`, id, price).Scan(&version)
		return hotcache.Version(version), err
	}
}

// relay runs one until the test is over, or until the function that it returns is called.
func (s *shop) relay(o outbox.RelayOptions, targets ...outbox.Target) (*outbox.Relay, func()) {
	s.t.Helper()
	o.Table, o.Targets = s.box, targets
	o.Connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, s.w.URL()) }
	r, err := outbox.NewRelay(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- r.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			s.t.Errorf("the relay: %v", err)
		}
	})
	s.t.Cleanup(stop)
	return r, stop
}

// soon waits for a condition on which nobody calls.
func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for began := time.Now(); !cond(); {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(5 * time.Millisecond) // between two looks; what counts is the condition
	}
}

// A ledger is an Invalidator that notes what it is told, and fails while it is to.
type ledger struct {
	mu    sync.Mutex
	told  map[int64]hotcache.Version
	calls int
	fail  func(key int64) error
}

func (l *ledger) Invalidate(_ context.Context, key int64, v hotcache.Version) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	if l.fail != nil {
		if err := l.fail(key); err != nil {
			return err
		}
	}
	if l.told == nil {
		l.told = map[int64]hotcache.Version{}
	}
	l.told[key] = max(l.told[key], v)
	return nil
}

func (l *ledger) version(key int64) hotcache.Version {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told[key]
}

func (l *ledger) set(fail func(int64) error) { l.mu.Lock(); defer l.mu.Unlock(); l.fail = fail }

func (l *ledger) counts() (keys, calls int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told), l.calls
}

var errOut = errors.New("the cache is out")

func TestOutbox(t *testing.T) {
	w := &world{Server: pgtest.Start(t)}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s *shop)
	}{
		{"Update", testUpdate}, {"Delete", testDelete}, {"BackAfterLong", testBackAfterLong}, {"RolledBack", testRolledBack}, {"Savepoint", testSavepoint}, {"Refused", testRefused},
		{"CacheIsOut", testCacheIsOut}, {"CommitUnknown", testCommitUnknown}, {"CommitRefused", testCommitRefused},
		{"ReplicaLags", testReplicaLags}, {"Cancelled", testCancelled}, {"Create", testCreate},
		{"Woken", testWoken}, {"TwoRelays", testTwoRelays}, {"Backlog", testBacklog}, {"Poisoned", testPoisoned},
		{"GivenUp", testGivenUp}, {"Trigger", testTrigger}, {"SlowTopic", testSlowTopic}, {"DeafTopic", testDeafTopic},
		{"WriterKilled", testWriterKilled}, {"RelayKilled", testRelayKilled}, {"NoTable", testNoTable},
		{"Restart", testRestart}, // the last: it disturbs the others
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, w.shop(t)) })
	}
}
