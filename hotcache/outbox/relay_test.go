//go:build unix

package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
)

// write commits a row of the outbox.
func (s *shop) write(topic *outbox.Topic[int64], key int64, v hotcache.Version) {
	s.t.Helper()
	err := pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) error { return topic.Write(s.t.Context(), tx, key, v) })
	if err != nil {
		s.t.Fatal(err)
	}
}

// A relay that would look only every hour is woken.
func testWoken(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	r, stop := s.relay(outbox.RelayOptions{Poll: time.Hour}, topic)
	soon(t, "the relay is connected", func() bool { return r.Stats().Connected })
	for v := hotcache.Version(2); v < 12; v++ {
		s.write(topic, 7, v)
		soon(t, "the cache is told", func() bool { return l.version(7) == v })
	}
	stop()
	if n := s.waiting(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if st := r.Stats(); st.Delivered != 10 || st.Failed != 0 || st.Connected {
		t.Errorf("%+v", st)
	}
}

func testTwoRelays(t *testing.T, s *shop) {
	const rows = 2000
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	s.backlog(rows)
	var relays []*outbox.Relay
	for range 2 {
		r, _ := s.relay(outbox.RelayOptions{Batch: 20, Timeout: 20 * time.Second}, topic)
		relays = append(relays, r)
	}
	soon(t, "all is told", func() bool { return s.waiting() == 0 })
	keys, calls := l.counts()
	if keys != rows || calls != rows {
		t.Errorf("%d keys were told in %d calls, want %d", keys, calls, rows)
	}
	t.Logf("one told %d rows, the other %d", relays[0].Stats().Delivered, relays[1].Stats().Delivered)
}

// backlog adds rows for keys 1 to n.
func (s *shop) backlog(n int) {
	s.exec(`insert into `+string(s.box)+` (topic, key, version) select 'prices', convert_to(n::text, 'UTF8'), 5 from generate_series(1, $1::int) n`, n)
}

func testBacklog(t *testing.T, s *shop) {
	const rows = 20_000
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	s.backlog(rows)
	s.exec(`insert into ` + string(s.box) + ` (topic, key, version) select 'prices', '7', n from generate_series(6, 1005) n`)
	lag, err := s.box.Lag(t.Context(), s.db)
	if err != nil || lag.Rows != outbox.MaxLagRows || lag.Age <= 0 {
		t.Fatalf("Lag = %+v, %v", lag, err)
	}
	began := time.Now()
	s.relay(outbox.RelayOptions{}, topic)
	soon(t, "all is told", func() bool { return s.waiting() == 0 })
	keys, calls := l.counts()
	if keys != rows || l.version(7) != 1005 {
		t.Errorf("%d keys were told, want %d; key 7 of version %d", keys, rows, l.version(7))
	}
	if calls > rows+100 { // a thousand rows of one key are a few calls
		t.Errorf("%d calls", calls)
	}
	t.Logf("%d rows in %v, %d calls", rows+1000, time.Since(began), calls)
	if lag, err := s.box.Lag(t.Context(), s.db); err != nil || lag != (outbox.Lag{}) {
		t.Errorf("Lag = %+v, %v", lag, err)
	}
}

// Rows that cannot be delivered stand in nobody's way, however many they are.
func testPoisoned(t *testing.T, s *shop) {
	l := &ledger{fail: func(key int64) error {
		if key == 666 {
			panic("poisoned")
		}
		return nil
	}}
	topic := s.topic(l, outbox.Options[int64]{})
	s.exec(`insert into ` + string(s.box) + ` (topic, key, version) select 'prices', '\x00ff', 1 from generate_series(1, 5000);
		insert into ` + string(s.box) + ` (topic, key, version) values ('prices', '666', 1), ('of nobody', '1', 1)`)
	r, _ := s.relay(outbox.RelayOptions{Batch: 50, Poll: 20 * time.Millisecond, LastPause: 100 * time.Millisecond}, topic)
	soon(t, "all were tried", func() bool {
		return s.number(`select count(*) from `+string(s.box)+` where attempts = 0 and topic = 'prices'`) == 0
	})
	for key := int64(1); key <= 5; key++ {
		began := time.Now()
		s.write(topic, key, 2)
		soon(t, "the good row is told", func() bool { return l.version(key) == 2 })
		t.Logf("a good row took %v", time.Since(began))
	}
	if n := s.waiting(); n < 5002 {
		t.Errorf("%d rows are left, want all that could not be delivered", n)
	}
	var problem string
	if err := s.db.QueryRow(t.Context(), `select max(problem) from `+string(s.box)+` where key = '666'`).Scan(&problem); err != nil || !strings.Contains(problem, "panicked: poisoned") {
		t.Errorf("problem %q, %v", problem, err)
	}
	if st := r.Stats(); st.Failed == 0 || st.Lag.Rows == 0 || st.Err == nil {
		t.Errorf("%+v", st)
	}
}

func testGivenUp(t *testing.T, s *shop) {
	l := &ledger{fail: func(int64) error { return errOut }}
	topic := s.topic(l, outbox.Options[int64]{})
	s.backlog(3)
	r, _ := s.relay(outbox.RelayOptions{Poll: 10 * time.Millisecond, LastPause: 100 * time.Millisecond, MaxAge: 300 * time.Millisecond}, topic)
	soon(t, "all is given up", func() bool { return s.waiting() == 0 })
	soon(t, "it says so", func() bool { return r.Stats().Dropped == 3 })
}

// Writers that know nothing of this package use a trigger.
func testTrigger(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	s.exec(`create function ` + s.name + `_changed() returns trigger language plpgsql as $$ begin
			insert into ` + string(s.box) + ` (topic, key, version) values ('prices', convert_to(new.id::text, 'UTF8'), new.version);
			perform pg_notify('` + string(s.box) + `', 'prices');
			return null;
		end $$;
		create trigger changed after insert or update on ` + s.name + ` for each row execute function ` + s.name + `_changed()`)
	r, _ := s.relay(outbox.RelayOptions{Poll: time.Hour}, topic)
	soon(t, "the relay is connected", func() bool { return r.Stats().Connected })
	s.exec(`update ` + s.name + ` set version = version + 1, price = 1`)
	soon(t, "all is told", func() bool { keys, _ := l.counts(); return keys == 9 && l.version(9) == 2 })
}

// A slow cache delays another by no more than the time limit of a delivery.
func testSlowTopic(t *testing.T, s *shop) {
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	r, _ := s.relay(outbox.RelayOptions{Poll: 20 * time.Millisecond, Timeout: 200 * time.Millisecond}, topic, hanging{})
	s.exec(`insert into ` + string(s.box) + ` (topic, key, version) select 'slow', convert_to(n::text, 'UTF8'), 1 from generate_series(1, 500) n`)
	soon(t, "the slow one hangs", func() bool { return r.Stats().Failed > 0 })
	for v := hotcache.Version(2); v < 7; v++ {
		s.write(topic, 7, v)
		soon(t, "the quick one is told", func() bool { return l.version(7) == v })
	}
	if n := s.number(`select count(*) from ` + string(s.box) + ` where topic = 'slow'`); n != 500 {
		t.Errorf("%d rows of the slow one are left", n)
	}
}

// A hanging target never has an answer.
type hanging struct{}

func (hanging) Name() string { return "slow" }
func (hanging) Deliver(ctx context.Context, _ []byte, _ hotcache.Version) error {
	<-ctx.Done()
	return ctx.Err()
}

// A target that does not end with its context keeps nobody else from being told, and the relay from ending.
func testDeafTopic(t *testing.T, s *shop) {
	deaf := &deafTarget{release: make(chan struct{})}
	defer close(deaf.release)
	l := &ledger{}
	topic := s.topic(l, outbox.Options[int64]{})
	const parallel = 2
	r, stop := s.relay(outbox.RelayOptions{Timeout: 200 * time.Millisecond, FirstPause: time.Millisecond, LastPause: 10 * time.Millisecond,
		Parallel: parallel}, topic, deaf)
	for key := range 20 {
		s.exec(`insert into `+string(s.box)+` (topic, key, version) values ('deaf', $1, 1)`, []byte{byte(key)})
	}
	for v := hotcache.Version(2); v < 6; v++ {
		s.write(topic, 7, v)
		soon(t, "the cache is told", func() bool { return l.version(7) == v })
	}
	soon(t, "the deliveries have failed", func() bool { return r.Stats().Failed > 20 })
	if n := deaf.calls.Load(); n > parallel {
		t.Errorf("%d calls hang, and there are to be %d at most", n, parallel)
	}
	stop()
	if n := s.waiting(); n != 20 {
		t.Errorf("%d rows wait", n)
	}
}

type deafTarget struct {
	release chan struct{}
	calls   atomic.Int64
}

func (*deafTarget) Name() string { return "deaf" }
func (d *deafTarget) Deliver(context.Context, []byte, hotcache.Version) error {
	d.calls.Add(1)
	<-d.release
	return nil
}

func testCreate(t *testing.T, s *shop) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			db, err := pgx.Connect(t.Context(), s.w.URL())
			if err != nil {
				t.Error(err)
				return
			}
			defer db.Close(t.Context())
			if err := outbox.Table("").Create(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.exec(`create schema apart; set search_path to nowhere`)
	if err := outbox.Table("apart.box").Create(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
		return outbox.Table("apart.box").Write(t.Context(), tx, "prices", []byte("1"), 1)
	})
	if lag, lagErr := outbox.Table("apart.box").Lag(t.Context(), s.db); err != nil || lagErr != nil || lag.Rows != 1 {
		t.Errorf("%v; Lag = %+v, %v", err, lag, lagErr)
	}
}

func testNoTable(t *testing.T, s *shop) {
	r, err := outbox.NewRelay(outbox.RelayOptions{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, s.w.URL()) },
		Table:   "nowhere", Targets: []outbox.Target{hanging{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Table.Create") {
		t.Errorf("Run = %v", err)
	}
}

func TestBadInput(t *testing.T) {
	connect := func(context.Context) (*pgx.Conn, error) { return nil, errors.New("nowhere") }
	l := &ledger{}
	targets := []outbox.Target{hanging{}}
	type structKey struct{ A int }
	for name, err := range map[string]error{
		"no topic":      second(outbox.NewTopic("", l, outbox.Options[int64]{})),
		"long topic":    second(outbox.NewTopic(strings.Repeat("x", 201), l, outbox.Options[int64]{})),
		"no cache":      second(outbox.NewTopic[int64]("prices", nil, outbox.Options[int64]{})),
		"no codec":      second(outbox.NewTopic[structKey]("prices", (*hotcache.Cache[structKey, int])(nil), outbox.Options[structKey]{})),
		"bad table":     second(outbox.NewTopic("prices", l, outbox.Options[int64]{Table: `x"; drop table y`})),
		"bad grace":     second(outbox.NewTopic("prices", l, outbox.Options[int64]{Grace: -1})),
		"no connection": second(outbox.NewRelay(outbox.RelayOptions{Targets: targets})),
		"no target":     second(outbox.NewRelay(outbox.RelayOptions{Connect: connect})),
		"same names":    second(outbox.NewRelay(outbox.RelayOptions{Connect: connect, Targets: append(targets, targets...)})),
		"batch":         second(outbox.NewRelay(outbox.RelayOptions{Connect: connect, Targets: targets, Batch: -1})),
		"parallel":      second(outbox.NewRelay(outbox.RelayOptions{Connect: connect, Targets: targets, Parallel: 1 << 20})),
		"pauses":        second(outbox.NewRelay(outbox.RelayOptions{Connect: connect, Targets: targets, FirstPause: time.Hour, LastPause: time.Second})),
		"empty key":     outbox.Table("").Write(t.Context(), nil, "prices", nil, 1),
		"fresh":         outbox.Table("").Write(t.Context(), nil, "prices", []byte("1"), hotcache.Fresh),
	} {
		if !errors.Is(err, hotcache.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := outbox.Table("").Write(t.Context(), nil, "prices", make([]byte, 1<<20), 1); !errors.Is(err, hotcache.ErrTooLarge) {
		t.Errorf("a key of 1 MB: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// A server that is killed and comes back has lost nothing that was committed, and the relay finds it.
func testRestart(t *testing.T, s *shop) {
	l := &ledger{fail: func(int64) error { return errOut }}
	topic := s.topic(l, outbox.Options[int64]{})
	r, _ := s.relay(outbox.RelayOptions{Poll: 50 * time.Millisecond, Timeout: 500 * time.Millisecond, LastPause: 200 * time.Millisecond}, topic)
	s.write(topic, 1, 2)
	soon(t, "the relay has failed", func() bool { return r.Stats().Failed > 0 })
	s.w.Kill()
	soon(t, "the relay knows", func() bool { return r.Stats().Losses > 1 && !r.Stats().Connected })
	if _, err := topic.Update(t.Context(), s.db, 2, setPrice(s.name, 2, 5)); err == nil {
		t.Error("an update without a server succeeded")
	}
	l.set(nil)
	s.w.Restart()
	soon(t, "what was committed before is told", func() bool { return l.version(1) == 2 })
	s.db = s.w.connect(t)
	s.write(topic, 3, 4)
	soon(t, "what was committed after is told", func() bool { return l.version(3) == 4 && s.waiting() == 0 })
	s.w.Stop()
	soon(t, "the relay knows again", func() bool { return !r.Stats().Connected })
	t.Logf("%+v", r.Stats())
}
