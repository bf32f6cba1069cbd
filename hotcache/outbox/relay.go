package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A Target is what a relay delivers rows of one topic to: a [Topic].
type Target interface {
	// Name is that of the topic.
	Name() string
	// Deliver tells that a key, as it stands in the row, was written at a version. It must end when its context does.
	Deliver(ctx context.Context, key []byte, v hotcache.Version) error
}

// RelayOptions are those of [NewRelay]. Connect and Targets are required.
type RelayOptions struct {
	// Connect makes a connection to the primary, which the relay keeps for itself and closes. It is called again when
	// the connection is lost.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Targets are the topics that this relay serves; rows of others it leaves to others.
	Targets []Target
	// Table is the outbox.
	Table Table
	// Poll is how often a relay looks that was not woken. 0 is [DefaultPoll].
	Poll time.Duration
	// Timeout is how long a relay keeps rows that it has taken, and so how long a delivery may last. 0 is
	// [DefaultTimeout].
	Timeout time.Duration
	// Batch is how many rows of a topic are taken at once, twice that if some are tried again, and Parallel how many are
	// delivered at the same time. 0 is [DefaultBatch] and [DefaultParallel].
	Batch, Parallel int
	// FirstPause and LastPause: after a failure, of a row or of the connection, there is a pause, which doubles. So
	// LastPause, and a quarter of it, is what a cache that is back after a long time waits for. 0 is 100 ms and 2 s.
	FirstPause, LastPause time.Duration
	// MaxAge is when a row that still cannot be delivered is given up, and logged: nothing is served that long. It must
	// exceed the longest time for which a cache may serve a value. 0 is [DefaultMaxAge].
	MaxAge time.Duration
	// Logger is told of what fails; nil is silent. Of a row that fails again and again it is told ever more seldom, at the
	// first attempt, the second, the fourth and so on. Errors of a cache name the key.
	Logger *slog.Logger
}

// Defaults and limits of [RelayOptions].
const (
	DefaultPoll     = 500 * time.Millisecond
	DefaultBatch    = 256
	DefaultParallel = 16
	DefaultMaxAge   = 24 * time.Hour
	MaxBatch        = 10_000
	MaxParallel     = 1_000

	defaultFirstPause = 100 * time.Millisecond
	defaultLastPause  = 2 * time.Second
)

// statementTime is how long the database may take for a statement before the connection counts as lost.
const statementTime = 10 * time.Second

// A Relay delivers rows of an outbox. Any number may run at the same time, in one process or many: each row is taken by
// one of them.
type Relay struct {
	o       RelayOptions
	table   string
	channel string
	topics  []string
	targets map[string]Target
	working map[string]*atomic.Int64 // how many workers each topic has, those of earlier rounds included

	mu     sync.Mutex // guards what follows
	stats  RelayStats
	looked time.Time // when the lag was measured
}

// RelayStats count what a relay did since it was made.
type RelayStats struct {
	Connected bool          // to the database, at this moment
	Lag       Lag           // of the whole table, as last seen: at most Poll and a round ago while connected
	Delivered uint64        // rows
	Failed    uint64        // deliveries that failed, each time counted
	Dropped   uint64        // rows that were given up after MaxAge
	Losses    uint64        // of the connection, attempts to make one included
	Last      time.Duration // from writing to delivery, of the row delivered last
	Err       error         // the last failure, of whatever kind
}

// NewRelay returns a relay that does nothing until [Relay.Run].
func NewRelay(o RelayOptions) (*Relay, error) {
	if o.Connect == nil || len(o.Targets) == 0 {
		return nil, fmt.Errorf("outbox: %w: a relay needs Connect and at least one target", hotcache.ErrInvalid)
	}
	if err := o.withDefaults(); err != nil {
		return nil, err
	}
	table, channel, err := o.Table.names()
	if err != nil {
		return nil, err
	}
	r := &Relay{o: o, table: table, channel: channel, targets: map[string]Target{}, working: map[string]*atomic.Int64{}}
	for _, t := range o.Targets {
		if t == nil || r.targets[t.Name()] != nil {
			return nil, fmt.Errorf("outbox: %w: a target is nil, or two have the same name", hotcache.ErrInvalid)
		}
		r.targets[t.Name()], r.working[t.Name()] = t, new(atomic.Int64)
		r.topics = append(r.topics, t.Name())
	}
	return r, nil
}

func (o *RelayOptions) withDefaults() error {
	for _, d := range []struct {
		name string
		of   *time.Duration
		is   time.Duration
	}{
		{"Poll", &o.Poll, DefaultPoll}, {"Timeout", &o.Timeout, DefaultTimeout}, {"FirstPause", &o.FirstPause, defaultFirstPause},
		{"LastPause", &o.LastPause, max(defaultLastPause, o.FirstPause)}, {"MaxAge", &o.MaxAge, DefaultMaxAge},
	} {
		switch {
		case *d.of == 0:
			*d.of = d.is
		case *d.of < time.Millisecond:
			return fmt.Errorf("outbox: %w: the option %s is %v, want at least a millisecond", hotcache.ErrInvalid, d.name, *d.of)
		}
	}
	for _, n := range []struct {
		name    string
		of      *int
		is, max int
	}{{"Batch", &o.Batch, DefaultBatch, MaxBatch}, {"Parallel", &o.Parallel, DefaultParallel, MaxParallel}} {
		switch {
		case *n.of == 0:
			*n.of = n.is
		case *n.of < 0 || *n.of > n.max:
			return fmt.Errorf("outbox: %w: the option %s is %d, want 1 to %d", hotcache.ErrInvalid, n.name, *n.of, n.max)
		}
	}
	if o.LastPause < o.FirstPause {
		return fmt.Errorf("outbox: %w: LastPause is less than FirstPause", hotcache.ErrInvalid)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Stats returns the counts so far.
func (r *Relay) Stats() RelayStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *Relay) note(do func(s *RelayStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(&r.stats)
}

// Run delivers until ctx ends, and then returns nil. A database that is away is waited for; a table that is missing, or
// that this user may not use, is an error.
func (r *Relay) Run(ctx context.Context) error {
	pause := r.o.FirstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := r.session(ctx)
		r.note(func(s *RelayStats) { s.Connected = false })
		if ctx.Err() != nil {
			break
		}
		if isSetup(err) {
			return fmt.Errorf("outbox: the table %s cannot be used, see Table.Create: %w", r.table, err)
		}
		r.note(func(s *RelayStats) { s.Losses++; s.Err = err })
		r.o.Logger.Warn("the outbox relay has lost its database", "error", err, "pause", pause)
		if time.Since(began) > r.o.LastPause {
			pause = r.o.FirstPause
		}
		wait(ctx, pause)
		pause = min(2*pause, r.o.LastPause, maxReconnectPause)
	}
	return nil
}

// maxReconnectPause bounds how long a database that is back may go unnoticed.
const maxReconnectPause = 2 * time.Second

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// session is the life of one connection. Its error is never nil.
func (r *Relay) session(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, statementTime)
	db, err := r.o.Connect(connecting)
	cancel()
	if err != nil {
		return fmt.Errorf("outbox: connect: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.o.Timeout)
		defer cancel()
		_ = db.Close(closing)
	}()
	if err := r.exec(ctx, db, `listen `+pgx.Identifier{r.channel}.Sanitize()); err != nil {
		return err
	}
	for {
		busy, err := r.round(ctx, db)
		if err != nil {
			return err
		}
		r.note(func(s *RelayStats) { s.Connected = true })
		if busy {
			continue
		}
		if err := r.rest(ctx, db); err != nil {
			return err
		}
	}
}

// rest waits until there may be something to do.
func (r *Relay) rest(ctx context.Context, db *pgx.Conn) error {
	resting, cancel := context.WithTimeout(ctx, r.o.Poll)
	defer cancel()
	_, err := db.WaitForNotification(resting)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !db.IsClosed() {
		return nil
	}
	return err
}

func (r *Relay) exec(ctx context.Context, db *pgx.Conn, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if _, err := db.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("outbox: %.6s: %w", sql, err)
	}
	return nil
}
