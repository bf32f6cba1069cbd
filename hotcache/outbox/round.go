package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A delivery is what one call of a target settles: the rows of one key that were taken together.
type delivery struct {
	topic    string
	key      []byte
	version  hotcache.Version
	rows     []int64
	attempts int           // of the row that was tried most often
	oldest   time.Duration // the age of the oldest row

	begun bool
	err   error
}

// round takes rows, delivers them and says so. busy is whether there may be more right away.
//
// To take a row is to make it due later, in a transaction of its own: nothing stays locked while the cache is told, the
// attempt counts even if the process does not survive it, and when it does not, the row is due again by itself.
func (r *Relay) round(ctx context.Context, db *pgx.Conn) (busy bool, err error) {
	if err := r.look(ctx, db); err != nil {
		return false, err
	}
	fresh, more, err := r.take(ctx, db, "attempts = 0")
	if err != nil {
		return false, err
	}
	again, moreAgain, err := r.take(ctx, db, "attempts > 0")
	if err != nil {
		return false, err
	}
	all := append(fresh, again...)
	if len(all) == 0 {
		return false, nil
	}
	r.deliver(ctx, all)
	// Where nothing succeeds there is no hurry to try again.
	moreAgain = moreAgain && slices.ContainsFunc(again, func(d *delivery) bool { return d.begun && d.err == nil })
	return more || moreAgain, r.settle(ctx, db, all)
}

// look measures the lag, if that was long ago.
func (r *Relay) look(ctx context.Context, db *pgx.Conn) error {
	r.mu.Lock()
	recent := r.stats.Connected && time.Since(r.looked) < r.o.Poll
	r.mu.Unlock()
	if recent {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	lag, err := lagOf(ctx, db, r.table)
	if err != nil {
		return err
	}
	r.note(func(s *RelayStats) { s.Lag, r.looked = lag, time.Now() })
	return nil
}

// take takes rows that are due, up to a batch for each topic, and puts those of one key together. Rows without a version
// stay apart from those with one: each says what the other does not.
func (r *Relay) take(ctx context.Context, db *pgx.Conn, which string) (out []*delivery, full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	rows, err := db.Query(ctx, `with taken as (
		select due.id from unnest($1::text[]) topics (topic) cross join lateral (
			select id from `+r.table+` where topic = topics.topic and `+which+` and due <= now()
			order by due limit $2 for update skip locked) due)
		update `+r.table+` o set attempts = o.attempts + 1, due = clock_timestamp() + $3::bigint * interval '1 microsecond'
		from taken where o.id = taken.id
		returning o.id, o.topic, o.key, o.version, o.attempts, extract(epoch from clock_timestamp() - o.written)::float8`,
		r.topics, r.o.Batch, (r.o.Timeout + settleTime).Microseconds())
	if err != nil {
		return nil, false, fmt.Errorf("outbox: take rows: %w", err)
	}
	type name struct {
		topic, key string
		unnamed    bool
	}
	byKey, count := map[name]*delivery{}, map[string]int{}
	var id, version int64
	var topic string
	var key []byte
	var attempts int
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&id, &topic, &key, &version, &attempts, &age}, func() error {
		count[topic]++
		full = full || count[topic] >= r.o.Batch
		n := name{topic, string(key), version == 0}
		d := byKey[n]
		if d == nil {
			d = &delivery{topic: topic, key: []byte(n.key)}
			byKey[n] = d
			out = append(out, d)
		}
		d.rows, d.version = append(d.rows, id), max(d.version, hotcache.Version(version))
		d.attempts, d.oldest = max(d.attempts, attempts), max(d.oldest, seconds(age))
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("outbox: take rows: %w", err)
	}
	return out, full, nil
}

// settleTime is what a round may take besides deliveries before others take its rows too.
const settleTime = 500 * time.Millisecond

// deliver calls the targets. It ends within the timeout, whatever they do; what had no chance of success by then is not
// begun. A call that does not end with its context is left to itself, and keeps the place of one of its topic's workers.
func (r *Relay) deliver(ctx context.Context, all []*delivery) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	late := time.Now().Add(r.o.Timeout / 2)
	byTopic := map[string][]*delivery{}
	for _, d := range all {
		byTopic[d.topic] = append(byTopic[d.topic], d)
	}
	var mu sync.Mutex // guards the deliveries until the round is over
	over := false
	during := func(note func()) bool {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			note()
		}
		return !over
	}
	patience := time.NewTimer(r.o.Timeout + settleTime)
	defer patience.Stop()
	ended, busy := make(chan struct{}, len(byTopic)*r.o.Parallel), 0
	for topic, list := range byTopic { // one that is slow has its own workers wait
		next, working := new(atomic.Int64), r.working[topic]
		free := r.o.Parallel - int(working.Load())
		for range min(free, len(list)) {
			busy++
			working.Add(1)
			go func() {
				defer func() { working.Add(-1); ended <- struct{}{} }()
				for {
					i := next.Add(1) - 1
					if i >= int64(len(list)) || time.Now().After(late) || ctx.Err() != nil {
						return
					}
					d := list[i]
					if !during(func() { d.begun, d.err = true, errDeaf }) {
						return
					}
					err := call(ctx, r.targets[topic], d)
					during(func() { d.err = err })
				}
			}()
		}
		if free <= 0 { // they fail, so that they are not taken again at once
			for _, d := range list {
				d.begun, d.err = true, errDeaf
			}
		}
	}
	for done := ctx.Done(); busy > 0; {
		select {
		case <-ended:
			busy--
		case <-done:
			done = nil
			patience.Reset(settleTime / 2)
		case <-patience.C:
			busy = 0
		}
	}
	mu.Lock()
	over = true
	mu.Unlock()
}

var errDeaf = errors.New("outbox: the target does not end when its context does")

// call makes an error of a panic, so that one row does not end the process again and again.
func call(ctx context.Context, t Target, d *delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("outbox: topic %s: the target panicked: %v", d.topic, p)
		}
	}()
	return t.Deliver(ctx, d.key, d.version)
}

// settle deletes what was delivered or is given up, has what failed wait, and gives back what was not begun. It is done
// even when the relay is to end.
func (r *Relay) settle(ctx context.Context, db *pgx.Conn, all []*delivery) error {
	ctx = context.WithoutCancel(ctx)
	var gone, back, failed []int64
	var problems []string
	for _, d := range all {
		switch {
		case !d.begun:
			back = append(back, d.rows...)
		case d.err == nil:
			gone = append(gone, d.rows...)
			r.note(func(s *RelayStats) { s.Delivered += uint64(len(d.rows)); s.Last = d.oldest })
		case d.oldest > r.o.MaxAge:
			gone = append(gone, d.rows...)
			r.note(func(s *RelayStats) { s.Failed++; s.Dropped += uint64(len(d.rows)); s.Err = d.err })
			r.o.Logger.Error("an invalidation was given up", "topic", d.topic, "rows", d.rows, "age", d.oldest, "error", d.err)
		default:
			r.note(func(s *RelayStats) { s.Failed++; s.Err = d.err })
			if d.attempts&(d.attempts-1) == 0 {
				r.o.Logger.Warn("an invalidation failed, and is done again", "topic", d.topic, "rows", d.rows, "attempts", d.attempts, "error", d.err)
			}
			for _, id := range d.rows {
				failed, problems = append(failed, id), append(problems, printable(d.err))
			}
		}
	}
	if len(gone) > 0 {
		if err := r.exec(ctx, db, `delete from `+r.table+` where id = any($1)`, gone); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		err := r.exec(ctx, db, `update `+r.table+` o set problem = f.problem, due = clock_timestamp() + interval '1 microsecond' *
				(0.75 + random() / 2) * least($4::float8, $3::float8 * power(2, least(o.attempts, 30) - 1))
			from unnest($1::bigint[], $2::text[]) f (id, problem) where o.id = f.id`,
			failed, problems, r.o.FirstPause.Microseconds(), r.o.LastPause.Microseconds())
		if err != nil {
			return err
		}
	}
	if len(back) > 0 {
		return r.exec(ctx, db, `update `+r.table+` set attempts = greatest(attempts - 1, 0), due = now() where id = any($1)`, back)
	}
	return nil
}

// maxProblem is how many bytes of an error are kept.
const maxProblem = 300

// printable is the text of an error as the database takes it.
func printable(err error) string {
	text := err.Error()
	if len(text) > maxProblem {
		text = text[:maxProblem]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
}
