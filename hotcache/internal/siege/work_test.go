//go:build unix

package siege

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
)

// maxDirect is how many loads of a process may go past nodes that are out.
const maxDirect = 8

func pick(r *rand.Rand) int64 {
	if r.IntN(2) == 0 {
		return 1 + r.Int64N(hot)
	}
	return 1 + r.Int64N(keys)
}

// errAway is what the loader says when there is no database.
var errAway = errors.New("the database is away")

// isAway tells whether an error says that the database, or a connection to it, is gone.
func isAway(err error) bool {
	var said *pgconn.PgError
	if errors.As(err, &said) {
		const shutdown, full = "57P", "53300" // a class: it goes down, has crashed, or begins; and it still has the connections of before
		return strings.HasPrefix(said.Code, shutdown) || said.Code == full
	}
	return !errors.Is(err, pgx.ErrNoRows) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

// withoutDatabase tells whether the database is away now.
func (p *process) withoutDatabase() bool {
	return p.ledger.counted("database kills") > p.ledger.counted("database is back")
}

var errRefused = errors.New("the database refuses, as it does now and then")

// load is the loader. Without a least version it reads the replica.
func (p *process) load(ctx context.Context, key int64, min hotcache.Version) (row, hotcache.Version, error) {
	p.ledger.count("loads", 1)
	rise(p.ledger.counts["most loads at a time"], uint64(p.loading.Add(1)))
	defer p.loading.Add(-1)
	v, gone, err := p.query(ctx, key, min)
	if err != nil {
		if ctx.Err() != nil {
			p.ledger.count("loads cut short", 1)
		} else if isAway(err) && p.ledger.counted("database kills") > 0 {
			p.ledger.count("loads without the database", 1)
			err = fmt.Errorf("%w: %w", errAway, err)
		}
		return row{}, 0, err
	}
	p.dies("load")
	if p.working.Err() == nil && rand.IntN(200) == 0 {
		return row{}, 0, errRefused
	}
	takes := time.Duration(rand.IntN(3000)) * time.Microsecond
	switch x := rand.IntN(400); {
	case x == 0:
		takes = time.Duration(rand.IntN(1000)) * time.Millisecond // a lease must be renewed meanwhile
	case x < 60:
		takes = time.Duration(rand.IntN(60)) * time.Millisecond
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		p.ledger.count("loads cut short", 1)
		return row{}, 0, ctx.Err()
	}
	if gone {
		return row{}, hotcache.Version(v), fmt.Errorf("row %d: %w", key, hotcache.ErrNotFound)
	}
	return row{v, textOf(key, v)}, hotcache.Version(v), nil
}

// query reads a row from where the loader must.
func (p *process) query(ctx context.Context, key int64, min hotcache.Version) (v uint64, gone bool, err error) {
	if min == 0 {
		var near bool
		err = p.db.QueryRow(ctx, `select version, gone, at > clock_timestamp() - $2::bigint * interval '1 microsecond' from replica, replica_at
			where id = $1`, key, maxLag.Microseconds()).Scan(&v, &gone, &near)
		if err != nil || near {
			p.ledger.count("loads of the replica", 1)
			return v, gone, err
		}
		p.ledger.count("replica too far behind", 1)
	}
	p.ledger.count("loads of the primary", 1)
	err = p.db.QueryRow(ctx, `select version, gone from rows where id = $1`, key).Scan(&v, &gone)
	return v, gone, err
}

// readOn reads until the end of the process.
func (p *process) readOn(r *rand.Rand) {
	for p.life.Err() == nil {
		for range 4 {
			p.read(r, pick(r))
		}
		<-time.After(time.Duration(500+r.IntN(2000)) * time.Microsecond)
	}
}

// read reads a key in one of the ways there are. What was finished or committed is looked up before the read begins.
func (p *process) read(r *rand.Rand, key int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	need, committed := p.ledger.finished(key).Load(), p.ledger.committed(key).Load()
	p.ledger.count("reads", 1)
	away, kills := p.withoutDatabase(), p.ledger.counted("database kills")
	answered := false
	defer func() {
		if away && answered && p.withoutDatabase() && kills == p.ledger.counted("database kills") {
			p.ledger.count("answers without the database", 1)
		}
	}()
	defer p.ledger.took("longest read in ms", time.Now())
	switch x := r.IntN(100); {
	case x < 84:
		got, v, err := p.cache.GetVersion(ctx, key)
		answered = p.judge(ctx, "Get", key, need, got, v, err)
	case x < 92:
		p.ledger.count("least", 1)
		got, v, err := p.cache.GetAtLeast(ctx, key, hotcache.Version(committed))
		p.judge(ctx, "GetAtLeast", key, max(need, committed), got, v, err)
	case x < 94:
		p.ledger.count("fresh", 1)
		got, v, err := p.cache.GetAtLeast(ctx, key, hotcache.Fresh)
		p.judge(ctx, "GetAtLeast Fresh", key, max(need, committed), got, v, err)
	default:
		p.ledger.count("peeks", 1)
		if got, ok, _ := p.cache.Peek(ctx, key); ok {
			p.judge(ctx, "Peek", key, need, got, hotcache.Version(got.Version), nil)
		}
	}
}

// judge judges one answer, which must be need at least, and tells whether it is one.
func (p *process) judge(ctx context.Context, how string, key int64, need uint64, got row, v hotcache.Version, err error) bool {
	absent := errors.Is(err, hotcache.ErrNotFound)
	switch {
	case p.life.Err() != nil:
		return false // it may have been closed
	case absent:
		p.ledger.count("absent", 1)
	case errors.Is(err, hotcache.ErrOverloaded):
		p.ledger.count("shed", 1)
		return false
	case errors.Is(err, hotcache.ErrLoadFailed), errors.Is(err, errRefused), errors.Is(err, errAway):
		p.ledger.count("load failed", 1)
		return false
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		p.ledger.count("load too slow", 1) // its process was frozen, say
		return false
	case err != nil:
		p.ledger.complain(p.Slot, "%s of %d: %v", how, key, err)
		return false
	case got.Version != uint64(v) || got.Text != textOf(key, uint64(v)):
		p.ledger.complain(p.Slot, "%s of %d gave %q as version %d", how, key, got.Text, v)
	}
	if uint64(v) < need {
		s := p.cache.Stats()
		p.ledger.complain(p.Slot, "%s of %d gave version %d (absent: %v), and %d was finished before; lag %+v, reads %v", how, key, v, absent,
			need, p.cache.Lag(), s.Reads)
	}
	return true
}

// writeOn writes until the calm.
func (p *process) writeOn(r *rand.Rand) {
	for p.working.Err() == nil {
		p.write(r, pick(r))
		<-time.After(time.Duration(r.Int64N(int64(p.Pause))))
	}
}

// write changes a row in one of the ways there are, and reads what it wrote.
func (p *process) write(r *rand.Rand, key int64) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gone := r.IntN(8) == 0
	p.ledger.count("writes", 1)
	defer p.ledger.took("longest write in ms", time.Now())
	if gone {
		p.ledger.count("deletes", 1)
	}
	v, ok := p.change(ctx, r, key, gone)
	if !ok {
		return
	}
	rise(p.ledger.committed(key), uint64(v))
	got, at, err := p.cache.GetAtLeast(ctx, key, v)
	p.judge(ctx, "GetAtLeast of the writer", key, uint64(v), got, at, err)
}

// change changes a row, and tells whether that is committed.
func (p *process) change(ctx context.Context, r *rand.Rand, key int64, gone bool) (hotcache.Version, bool) {
	if r.IntN(2) == 0 {
		p.ledger.count("updates", 1)
		v, err := p.topic.Update(ctx, p.db, key, change(key, gone))
		return v, p.came(err)
	}
	var v hotcache.Version
	err := pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) (err error) {
		if v, err = change(key, gone)(ctx, tx); err != nil {
			return err
		}
		return p.topic.Write(ctx, tx, key, v)
	})
	if err != nil {
		return 0, p.came(err)
	}
	rise(p.ledger.committed(key), uint64(v))
	switch x := r.IntN(100); {
	case x < 40:
		p.ledger.count("told direct", 1)
		err = teller{p}.Invalidate(ctx, key, v)
	case x < 60:
		p.ledger.count("told without version", 1)
		if err = p.cache.Invalidate(ctx, key, 0); err == nil {
			rise(p.ledger.finished(key), uint64(v))
		}
	default:
		p.ledger.count("left to the outbox", 1)
	}
	return v, p.came(err)
}

// came looks at what came of a write, and tells whether it is committed.
func (p *process) came(err error) bool {
	var untold *hotcache.NotInvalidatedError
	var unknown *outbox.CommitUnknownError
	switch {
	case err == nil:
		return true
	case errors.As(err, &untold):
		p.ledger.count("not invalidated", 1)
		return true
	case errors.As(err, &unknown):
		p.ledger.count("commit unknown", 1)
	case isAway(err) && p.ledger.counted("database kills") > 0:
		p.ledger.count("writes without the database", 1) // or only its commit was not answered, and the outbox has it
	default:
		p.ledger.count("write failed", 1)
		p.ledger.complain(p.Slot, "a write failed: %v", err)
	}
	return false
}

func change(key int64, gone bool) func(context.Context, pgx.Tx) (hotcache.Version, error) {
	return func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
		var v uint64
		err := tx.QueryRow(ctx, `update rows set version = version + 1, gone = $2 where id = $1 returning version`, key, gone).Scan(&v)
		return hotcache.Version(v), err
	}
}

// A teller tells the cache, and the ledger when the cache was told: from then on the version is due.
type teller struct{ p *process }

func (t teller) Invalidate(ctx context.Context, key int64, v hotcache.Version) error {
	t.p.dies("commit")
	err := t.p.cache.Invalidate(ctx, key, v)
	if err == nil {
		rise(t.p.ledger.finished(key), uint64(v))
	}
	return err
}

// A relayTarget counts what relays deliver.
type relayTarget struct {
	*outbox.Topic[int64]
	p *process
}

func (t relayTarget) Deliver(ctx context.Context, key []byte, v hotcache.Version) error {
	err := t.Topic.Deliver(ctx, key, v)
	if err == nil {
		t.p.ledger.count("told by relays", 1)
	}
	return err
}

// often is how often a hot row is read when all is quiet, so that every copy is; the others are once.
const often = 20

// verify reads everything when nothing is written any more: all must be what was written last.
func (p *process) verify() string {
	var n atomic.Int64
	var all sync.WaitGroup
	const readers = 8
	for i := range int64(readers) {
		all.Go(func() {
			for key := 1 + i; key <= keys; key += readers {
				times := 1
				if key <= hot {
					times = often
				}
				for range times {
					if p.verifyRow(key) {
						n.Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	return fmt.Sprintf("verified %d", n.Load())
}

// verifyRow reads a row until there is an answer: a load may have failed a moment ago.
func (p *process) verifyRow(key int64) (answered bool) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	last := p.ledger.committed(key).Load()
	for !answered && ctx.Err() == nil {
		got, v, err := p.cache.GetVersion(ctx, key)
		if answered = p.judge(ctx, "Get when all is quiet", key, last, got, v, err); !answered {
			<-time.After(10 * time.Millisecond) // the pause after a failed load
		}
	}
	if got, ok, err := p.cache.Peek(ctx, key); err == nil && ok {
		p.judge(ctx, "Peek when all is quiet", key, last, got, hotcache.Version(got.Version), nil)
	}
	return answered
}
