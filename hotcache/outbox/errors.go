package outbox

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A CommitUnknownError says that the connection was lost while a transaction was being committed: it may have been, or
// not, or may still be in a moment. Read the row to find out. If it was, Version is what was written, and a relay tells
// the cache.
type CommitUnknownError struct {
	Key     string
	Version hotcache.Version
	Err     error
}

// Error implements error.
func (e *CommitUnknownError) Error() string {
	return fmt.Sprintf("outbox: %s: it is not known whether version %d was committed: %v", e.Key, e.Version, e.Err)
}

// Unwrap returns the reason.
func (e *CommitUnknownError) Unwrap() error { return e.Err }

// unknownCommit says whether a failed COMMIT may have happened. It has not if it was never sent, or if the server said
// that it rolled back; a server that is shut down at this moment may say so of a transaction that it has committed.
func unknownCommit(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) || pgconn.SafeToRetry(err) {
		return false
	}
	var refused *pgconn.PgError
	return !errors.As(err, &refused) || refused.SeverityUnlocalized != "ERROR"
}
