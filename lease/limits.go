package lease

import "time"

// Limits on what a client may ask for. Each is refused by its name and shown on
// the status page. They bound memory and work, so that no client can take the
// service from the others.
const (
	MaxKeyLength   = 512  // bytes; long enough for a path, short enough for a table
	MaxKeys        = 64   // keys in one request: bounds the grant test and the answer
	MaxIDLength    = 128  // bytes of a request, hold or session id
	MaxLabelLength = 256  // bytes of a label, session name or host name
	MaxHolders     = 1000 // holders of one counted key
	MaxDeclared    = 64   // holds declared by one request

	MaxSessions       = 100_000   // sessions of one service
	MaxWaitersPerKey  = 10_000    // requests waiting on one key
	MaxWaiters        = 1_000_000 // requests waiting in one service
	MaxHolds          = 8_000_000 // keys held in one service; at 400 B each that is 3.2 GB
	MaxSharedHolders  = 10_000    // shared holders of one key
	MaxWatches        = 1_000     // watches of one service
	MaxListed         = 10_000    // keys in one listing; ask again after the last key
	MaxOutcomes       = 65_536    // ended requests that are remembered for repeats
	MaxFrame          = 64 << 10  // bytes of one frame or HTTP body: 64 keys of 512 B and room
	MaxConnections    = 10_000    // connections of one listener
	MaxInFlight       = 10_000    // unanswered requests of one connection
	MaxUnsent         = 16 << 20  // bytes queued for a connection that does not read: the losses of 100 000 leases fit
	MaxDeadlockSearch = 10_000    // requests visited by one deadlock search; beyond it none is reported
)

// Durations that bound requests, and defaults.
const (
	MinTTL       = time.Millisecond
	MaxTTL       = 366 * 24 * time.Hour // more is a mistake of unit; Forever is the way to say it
	MaxWait      = 366 * 24 * time.Hour
	MaxLockDelay = time.Hour
	MaxGrace     = time.Hour

	DefaultTTL   = 30 * time.Second
	DefaultGrace = 3 * time.Second

	// MinClientTTL is the shortest ttl that Client accepts: below it the margin
	// and a scheduling delay use up the lease.
	MinClientTTL = 100 * time.Millisecond
)

// Limit is one limit in a form that can be shown.
type Limit struct {
	Name  string
	Value int64
	Unit  string
	Note  string
}

// Limits lists the limits above for display.
func Limits() []Limit {
	return []Limit{
		{"MaxKeyLength", MaxKeyLength, "bytes", "one key"},
		{"MaxKeys", MaxKeys, "keys", "one request"},
		{"MaxIDLength", MaxIDLength, "bytes", "a request, hold or session id"},
		{"MaxLabelLength", MaxLabelLength, "bytes", "a label, session or host name"},
		{"MaxHolders", MaxHolders, "holders", "one counted key"},
		{"MaxSharedHolders", MaxSharedHolders, "holders", "one shared key"},
		{"MaxDeclared", MaxDeclared, "holds", "declared by one request"},
		{"MaxSessions", MaxSessions, "sessions", "the service"},
		{"MaxWaitersPerKey", MaxWaitersPerKey, "requests", "waiting on one key"},
		{"MaxWaiters", MaxWaiters, "requests", "waiting in the service"},
		{"MaxHolds", MaxHolds, "keys", "held in the service"},
		{"MaxWatches", MaxWatches, "watches", "the service"},
		{"MaxListed", MaxListed, "keys", "one listing"},
		{"MaxOutcomes", MaxOutcomes, "requests", "ended ones remembered"},
		{"MaxFrame", MaxFrame, "bytes", "one frame or HTTP body"},
		{"MaxConnections", MaxConnections, "connections", "one listener"},
		{"MaxInFlight", MaxInFlight, "requests", "unanswered on one connection"},
		{"MaxUnsent", MaxUnsent, "bytes", "queued for a connection that does not read"},
		{"MaxDeadlockSearch", MaxDeadlockSearch, "requests", "visited by one deadlock search"},
		{"MaxTTL", MaxTTL.Milliseconds(), "ms", "a ttl, short of forever"},
		{"MaxWait", MaxWait.Milliseconds(), "ms", "a bounded wait"},
		{"MaxLockDelay", MaxLockDelay.Milliseconds(), "ms", "a lock-delay"},
		{"MaxGrace", MaxGrace.Milliseconds(), "ms", "a session's grace"},
	}
}
