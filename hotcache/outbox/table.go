package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A Table is the name of the outbox in the database, alone or behind the name of a schema and a dot, in lower case
// letters, digits and underscores. The empty one is [DefaultTable]. Relays are woken over the channel that has the
// name of the table without its schema.
type Table string

// DefaultTable is the [Table] of who names none.
const DefaultTable Table = "latchkey_outbox"

// MaxTopic is the length of the name of a topic in bytes.
const MaxTopic = 200

// DB is what a transaction is begun with, and what other statements are run on: a *pgx.Conn or a *pgxpool.Pool.
type DB interface {
	// BeginTx begins a transaction.
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
	// Exec runs a statement in a transaction of its own.
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	// QueryRow does the same with one that returns a row.
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,49}\.)?[a-z_][a-z0-9_]{0,49}$`)

// names returns the table as SQL has it, and the channel.
func (t Table) names() (table, channel string, err error) {
	if t == "" {
		t = DefaultTable
	}
	if !tableName.MatchString(string(t)) {
		return "", "", fmt.Errorf("outbox: %w: the table %q: a name has up to 50 lower case letters, digits and "+
			"underscores, and may have a schema and a dot before it", hotcache.ErrInvalid, string(t))
	}
	parts := strings.Split(string(t), ".")
	return pgx.Identifier(parts).Sanitize(), parts[len(parts)-1], nil
}

// Schema returns the statements that make the table, where it is not there yet: for migrations. [Table.Create] runs
// them. Rows that were never tried and those that are tried again are found by an index each, so that neither stands in
// the way of the other.
func (t Table) Schema() (string, error) {
	table, channel, err := t.names()
	if err != nil {
		return "", err
	}
	return strings.NewReplacer("TABLE", table, "NAME", channel).Replace(schema), nil
}

const schema = `create table if not exists TABLE (
	id       bigint      generated always as identity primary key,
	topic    text        not null,                             -- which cache
	key      bytea       not null,                             -- as its codec encodes it
	version  bigint      not null check (version >= 0),        -- what was written; 0 where nobody counts
	written  timestamptz not null default clock_timestamp(),
	due      timestamptz not null default clock_timestamp(),   -- when a relay may take it
	attempts integer     not null default 0,                   -- how often one did
	problem  text                                              -- why the last attempt failed
);
create index if not exists NAME_new   on TABLE (topic, due) where attempts = 0;
create index if not exists NAME_again on TABLE (topic, due) where attempts > 0;
`

// Create makes the table, where it is not there yet. Several processes may do so at the same time.
func (t Table) Create(ctx context.Context, db DB) error {
	statements, err := t.Schema()
	if err != nil {
		return err
	}
	// Without a lock two that find no table both make one, and one of them fails.
	const lock = `select pg_advisory_xact_lock(hashtext('latchkey outbox'));`
	if _, err := db.Exec(ctx, lock+statements); err != nil {
		return fmt.Errorf("outbox: create the table: %w", err)
	}
	return nil
}

// Write adds a row to the outbox in the caller's transaction: that what is under a key of a topic is no longer good
// below a version, or, with version 0, as it was before. The key is encoded as the cache's codec does it;
// [Topic.Write] sees to that. When the transaction is committed, relays are woken.
func (t Table) Write(ctx context.Context, tx pgx.Tx, topic string, key []byte, v hotcache.Version) error {
	_, err := t.write(ctx, tx, topic, key, v, 0)
	return err
}

// write adds a row that relays leave alone for a while, and returns its id. Relays are woken only where they need not
// wait: NOTIFY has all commits of the server that use it wait for one another.
func (t Table) write(ctx context.Context, tx pgx.Tx, topic string, key []byte, v hotcache.Version, grace time.Duration) (int64, error) {
	table, channel, err := t.names()
	switch {
	case err != nil:
		return 0, err
	case topic == "" || len(topic) > MaxTopic:
		return 0, fmt.Errorf("outbox: %w: the topic %.50q has %d bytes, want 1 to %d", hotcache.ErrInvalid, topic, len(topic), MaxTopic)
	case len(key) == 0:
		return 0, fmt.Errorf("outbox: topic %s: %w: the key is empty", topic, hotcache.ErrInvalid)
	case len(key) > hotcache.MaxKey:
		return 0, fmt.Errorf("outbox: topic %s: %w: the key has %d bytes, the limit is %d", topic, hotcache.ErrTooLarge, len(key), hotcache.MaxKey)
	case v > math.MaxInt64:
		return 0, fmt.Errorf("outbox: topic %s: %w: %d is not the version of a row", topic, hotcache.ErrInvalid, v)
	}
	var id int64
	err = tx.QueryRow(ctx, `insert into `+table+` (topic, key, version, due)
		values ($1, $2, $3, clock_timestamp() + $4::bigint * interval '1 microsecond') returning id`,
		topic, key, int64(v), grace.Microseconds()).Scan(&id)
	if err == nil && grace == 0 {
		_, err = tx.Exec(ctx, `select pg_notify($1, $2)`, channel, topic)
	}
	if err != nil {
		return 0, fmt.Errorf("outbox: write for topic %s: %w", topic, err)
	}
	return id, nil
}

// A Lag says how far the relays are behind.
type Lag struct {
	Rows int           // that wait, counted up to [MaxLagRows]
	Age  time.Duration // since the oldest of them was written; those in their grace count
}

// MaxLagRows is where [Table.Lag] stops counting.
const MaxLagRows = 10_000

// Lag looks how far the relays are behind, by the clock of the server. A row that cannot be delivered counts too.
func (t Table) Lag(ctx context.Context, db DB) (Lag, error) {
	table, _, err := t.names()
	if err != nil {
		return Lag{}, err
	}
	return lagOf(ctx, db, table)
}

// querier is what one statement needs.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func lagOf(ctx context.Context, db querier, table string) (Lag, error) {
	var l Lag
	var age float64
	err := db.QueryRow(ctx, `select (select count(*) from (select from `+table+` limit $1) as counted),
		coalesce((select extract(epoch from clock_timestamp() - written)::float8 from `+table+` order by id limit 1), 0)`,
		MaxLagRows).Scan(&l.Rows, &age)
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: look at the lag: %w", err)
	}
	l.Age = max(0, seconds(age))
	return l, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// isSetup says whether an error means that the table was never made as it should be, or not for this user: no repeated
// attempt helps.
func isSetup(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	class := refused.Code[:min(2, len(refused.Code))]
	return class == "42" || class == "3F" // no such table or column, no permission; no such schema
}
