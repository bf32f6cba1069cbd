package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/hotcache"
)

// An Invalidator is what is told: a [hotcache.Cache]. It must end when its context does, and may be told anything twice.
type Invalidator[K any] interface {
	// Invalidate makes sure that nothing older than a version is served under a key any more; 0 is everything older than
	// this moment.
	Invalidate(ctx context.Context, key K, v hotcache.Version) error
}

// Options of a topic. The zero value is what most want.
type Options[K any] struct {
	// Keys encodes keys, as all programs that write for this topic do. Nil is Strings, or Ints for int, int32, int64 and
	// uint64; keys of other types need one.
	Keys hotcache.Codec[K]
	// Table is the outbox.
	Table Table
	// Grace is how long relays leave a row of [Topic.Update] alone. 0 is [DefaultGrace].
	Grace time.Duration
	// Timeout is how long [Topic.Update] tells the cache for, and how long it takes to roll back or clean up at most. 0
	// is [DefaultTimeout].
	Timeout time.Duration
	// Tx are those of the transactions of [Topic.Update].
	Tx pgx.TxOptions
}

// Defaults.
const (
	DefaultGrace   = time.Second
	DefaultTimeout = 2 * time.Second
)

// A Topic is a cache and its name in the outbox, which is the same in all processes. It is safe for use by several
// goroutines.
type Topic[K any] struct {
	name  string
	cache Invalidator[K]
	o     Options[K]
}

// NewTopic names a cache.
func NewTopic[K any](name string, cache Invalidator[K], o Options[K]) (*Topic[K], error) {
	if name == "" || len(name) > MaxTopic {
		return nil, fmt.Errorf("outbox: %w: the topic %.50q has %d bytes, want 1 to %d", hotcache.ErrInvalid, name, len(name), MaxTopic)
	}
	if cache == nil {
		return nil, fmt.Errorf("outbox: topic %s: %w: the cache is nil", name, hotcache.ErrInvalid)
	}
	if _, _, err := o.Table.names(); err != nil {
		return nil, err
	}
	if o.Keys == nil {
		if o.Keys = defaultKeys[K](); o.Keys == nil {
			return nil, fmt.Errorf("outbox: topic %s: %w: keys of this type need a codec, Options.Keys", name, hotcache.ErrInvalid)
		}
	}
	for _, d := range []struct {
		name string
		of   *time.Duration
		is   time.Duration
	}{{"Grace", &o.Grace, DefaultGrace}, {"Timeout", &o.Timeout, DefaultTimeout}} {
		switch {
		case *d.of == 0:
			*d.of = d.is
		case *d.of < time.Millisecond:
			return nil, fmt.Errorf("outbox: topic %s: %w: the option %s is %v, want at least a millisecond", name, hotcache.ErrInvalid, d.name, *d.of)
		}
	}
	return &Topic[K]{name: name, cache: cache, o: o}, nil
}

// defaultKeys returns the codec that a cache has for keys of a type, nil if it has none that fits keys.
func defaultKeys[K any]() hotcache.Codec[K] {
	for _, known := range []any{hotcache.Strings[string](), hotcache.Ints[int](), hotcache.Ints[int32](), hotcache.Ints[int64](),
		hotcache.Ints[uint64]()} {
		if c, ok := known.(hotcache.Codec[K]); ok {
			return c
		}
	}
	return nil
}

// Name returns the name that rows for this topic carry.
func (t *Topic[K]) Name() string { return t.name }

// Deliver decodes a key and tells the cache. Relays call it.
func (t *Topic[K]) Deliver(ctx context.Context, key []byte, v hotcache.Version) error {
	k, err := t.o.Keys.Decode(key)
	if err != nil {
		return fmt.Errorf("outbox: topic %s: decode the key %.100q: %w", t.name, key, err)
	}
	return t.cache.Invalidate(ctx, k, v)
}

// Write adds a row to the outbox in the caller's transaction: that a key was written at a version. Once that is
// committed a relay tells the cache, and the caller may do so too, to have it done when he goes on. A row that was
// deleted was written at one more than the version that it had.
func (t *Topic[K]) Write(ctx context.Context, tx pgx.Tx, key K, v hotcache.Version) error {
	_, err := t.write(ctx, tx, key, v, 0)
	return err
}

func (t *Topic[K]) write(ctx context.Context, tx pgx.Tx, key K, v hotcache.Version, grace time.Duration) (int64, error) {
	encoded, err := t.o.Keys.Encode(key)
	if err != nil {
		return 0, fmt.Errorf("outbox: topic %s: %w: the key cannot be encoded: %w", t.name, hotcache.ErrInvalid, err)
	}
	return t.o.Table.write(ctx, tx, t.name, encoded, v, grace)
}

// Update runs a change of one row in a transaction, commits it together with a row of the outbox, tells the cache, and
// takes that row away. The change returns the version that it wrote; for one that deletes the row there is
// [Topic.Delete]. It must not commit or roll back. It is run once:
// where the server refuses the transaction, for a conflict with another say, nothing has happened, and the error wraps
// the server's *[pgconn.PgError].
//
// With a nil error the version is committed, and the cache promises what its Invalidate does. Three kinds of errors
// are to be told apart. With a *[hotcache.NotInvalidatedError] the version is committed and is returned; the cache could
// not be told, and a relay will. With a *[CommitUnknownError] nobody knows: the version that would have been written is
// returned. With any other, nothing has changed.
//
// Once the transaction is committed, the end of ctx no longer matters: the cache is told regardless, for
// [Options.Timeout] at most.
func (t *Topic[K]) Update(ctx context.Context, db DB, key K, change func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error)) (hotcache.Version, error) {
	v, row, err := t.commit(ctx, db, key, change)
	if err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.o.Timeout)
	defer cancel()
	if err := t.cache.Invalidate(ctx, key, v); err != nil {
		if told := (*hotcache.NotInvalidatedError)(nil); !errors.As(err, &told) {
			err = &hotcache.NotInvalidatedError{Key: fmt.Sprintf("key %v", key), Version: v, Err: err}
		}
		return v, fmt.Errorf("outbox: topic %s: %w", t.name, err)
	}
	table, _, _ := t.o.Table.names()
	// A row that stays is told again by a relay, which does no harm.
	_, _ = db.Exec(ctx, `delete from `+table+` where id = $1`, row)
	return v, nil
}

// Delete does what [Topic.Update] does, for a change that takes the row away: the change returns the version that the row
// had, from "delete … returning version", and the cache is told one more, which Delete returns. With the version of the
// row itself what is cached would stay, for it is no older. A version of 0 stays 0.
func (t *Topic[K]) Delete(ctx context.Context, db DB, key K, change func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error)) (hotcache.Version, error) {
	return t.Update(ctx, db, key, func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error) {
		had, err := change(ctx, tx)
		if had > 0 {
			had++
		}
		return had, err
	})
}

// commit runs the transaction. With an error the version is that which may have been written.
func (t *Topic[K]) commit(ctx context.Context, db DB, key K, change func(ctx context.Context, tx pgx.Tx) (hotcache.Version, error)) (hotcache.Version, int64, error) {
	tx, err := db.BeginTx(ctx, t.o.Tx)
	if err != nil {
		return 0, 0, fmt.Errorf("outbox: topic %s: begin: %w", t.name, err)
	}
	over := false
	defer func() { // after a panic too
		if over {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.o.Timeout)
		defer cancel()
		_ = tx.Rollback(ctx) // what cannot be rolled back is a connection that is gone, and its transaction with it
	}()
	v, err := change(ctx, tx)
	if err != nil {
		return 0, 0, err
	}
	row, err := t.write(ctx, tx, key, v, t.o.Grace)
	if err != nil {
		if errors.Is(err, pgx.ErrTxClosed) {
			err = fmt.Errorf("the change has ended the transaction itself, and the cache knows nothing of it: %w", err)
		}
		return 0, 0, err
	}
	over = true
	err = tx.Commit(ctx)
	switch {
	case err == nil:
		return v, row, nil
	case unknownCommit(err):
		return v, 0, &CommitUnknownError{Key: fmt.Sprintf("key %v", key), Version: v, Err: err}
	default:
		return 0, 0, fmt.Errorf("outbox: topic %s: commit: %w", t.name, err)
	}
}
