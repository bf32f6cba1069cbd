//go:build unix

package siege

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache/outbox"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A database is a table, its outbox, and another table that is behind.
type database struct {
	*pgtest.Server
	t     *testing.T
	db    *pgx.Conn
	lag   atomic.Int64 // nanoseconds
	most  atomic.Int64 // that the replica was behind
	kills atomic.Int64
	down  atomic.Bool
}

// A state is the table as it was.
type state struct {
	at       time.Time // by the server
	taken    time.Time
	ids      []int64
	versions []int64
	gone     []bool
}

func newDatabase(t *testing.T) *database {
	d := &database{Server: pgtest.Start(t, "max_connections=300"), t: t}
	d.db = d.Connect()
	d.lag.Store(int64(leastLag))
	_, err := d.db.Exec(t.Context(), `
		create table rows (id bigint primary key, version bigint not null, gone boolean not null);
		insert into rows select id, 1, false from generate_series(1, `+strconv.Itoa(keys)+`) id;
		create table replica as table rows;
		create table replica_at as select clock_timestamp() as at`)
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Table("").Create(t.Context(), d.db); err != nil {
		t.Fatal(err)
	}
	d.replicate()
	return d
}

const leastLag = 20 * time.Millisecond

// away kills the server, in the middle of whatever it does.
func (d *database) away() {
	d.kills.Add(1)
	d.down.Store(true)
	d.Kill()
}

// back has the server take up what it had committed.
func (d *database) back() {
	d.t.Helper()
	d.Restart()
	d.db = d.Connect()
	d.down.Store(false)
}

// replicate has the second table follow the first until the end of the test.
func (d *database) replicate() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		var late []state
		for ctx.Err() == nil {
			kills := d.kills.Load()
			err := d.follow(ctx, &late)
			if ctx.Err() == nil && kills == d.kills.Load() && !d.down.Load() {
				d.t.Errorf("the replica: %v", err)
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	})
	d.t.Cleanup(func() { cancel(); running.Wait() })
}

// follow is the life of two connections of the replica.
func (d *database) follow(ctx context.Context, late *[]state) error {
	source, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		return err
	}
	defer source.Close(context.Background())
	sink, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		return err
	}
	defer sink.Close(context.Background())
	for {
		s, err := look(ctx, source)
		if err != nil {
			return err
		}
		*late = append(*late, s)
		ripe := 0
		for ripe < len(*late) && time.Since((*late)[ripe].taken) >= time.Duration(d.lag.Load()) {
			ripe++
		}
		if ripe > 0 {
			s = (*late)[ripe-1]
			*late = (*late)[ripe:]
			if err := s.apply(ctx, sink); err != nil {
				return err
			}
			d.most.Store(max(d.most.Load(), int64(time.Since(s.taken))))
		}
		<-time.After(5 * time.Millisecond)
	}
}

func look(ctx context.Context, db *pgx.Conn) (s state, err error) {
	s.taken = time.Now()
	err = db.QueryRow(ctx, `select statement_timestamp(), array_agg(id), array_agg(version), array_agg(gone) from rows`).
		Scan(&s.at, &s.ids, &s.versions, &s.gone)
	return s, err
}

func (s *state) apply(ctx context.Context, db *pgx.Conn) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `update replica r set version = n.version, gone = n.gone
			from unnest($1::bigint[], $2::bigint[], $3::boolean[]) n(id, version, gone) where r.id = n.id and r.version <> n.version`,
			s.ids, s.versions, s.gone)
		if err == nil {
			_, err = tx.Exec(ctx, `update replica_at set at = $1`, s.at)
		}
		return err
	})
}

// versions are those in the primary.
func (d *database) versions() map[int64]uint64 {
	d.t.Helper()
	s, err := look(d.t.Context(), d.db)
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[int64]uint64{}
	for i, id := range s.ids {
		out[id] = uint64(s.versions[i])
	}
	return out
}

// number asks for one number.
func (d *database) number(sql string) (n int64) {
	d.t.Helper()
	if err := d.db.QueryRow(d.t.Context(), sql).Scan(&n); err != nil {
		d.t.Fatal(err)
	}
	return n
}
