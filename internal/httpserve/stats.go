package httpserve

import (
	"context"
	"net/http"

	"github.com/latchkey-go/latchkey/internal/tally"
)

// counts answers GET /v1/stats: first the names that live-mutex dashboards read,
// those that have a true value here, then ours.
type counts struct {
	tally.Counts
	Version      string `json:"version"`
	Service      string `json:"service"`
	Durability   string `json:"durability"`
	Fencing      string `json:"fencing"`
	Failed       string `json:"failed,omitempty"`
	Recovering   int64  `json:"recovering"` // ms
	Contended    int    `json:"contendedKeys"`
	Broken       int    `json:"brokenSessions"`
	Watches      int    `json:"watches"`
	LastToken    uint64 `json:"lastFencingToken"`
	GrantedTotal uint64 `json:"grantedTotal"`
	Released     uint64 `json:"releasedTotal"`
	Forced       uint64 `json:"forcedTotal"`
	Ended        uint64 `json:"endedTotal"`
	Queued       uint64 `json:"queuedTotal"`
	Busy         uint64 `json:"busyTotal"`
	TimedOut     uint64 `json:"timedOutTotal"`
	Cancelled    uint64 `json:"cancelledTotal"`
	Refused      uint64 `json:"refusedTotal"`
	Deadlocks    uint64 `json:"deadlocksTotal"`
	Repeats      uint64 `json:"repeatsTotal"`
	Renewals     uint64 `json:"renewalsTotal"`
	Syncs        uint64 `json:"journalSyncsTotal"`
	Bytes        uint64 `json:"journalBytesTotal"`
}

// figures asks the service and the dialect.
func (s *Server) figures(ctx context.Context) (figures, error) {
	st, err := s.svc.Stats(ctx)
	f := figures{Stats: st}
	if s.opts.Dialect != nil {
		f.Extra = s.opts.Dialect()
	}
	f.Clamps += s.clamps.Load()
	return f, err
}

// stats answers GET /v1/stats.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	f, err := s.figures(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	c := countsOf(&f)
	if c.Counts, err = tally.Of(ctx, s.svc, &f.Stats, f.Extra); err != nil {
		s.fail(w, err)
		return
	}
	c.StartedAt, c.Version = s.started.UnixMilli(), s.opts.Version
	s.reply(w, http.StatusOK, c)
}

func countsOf(f *figures) counts {
	return counts{
		Service: f.Service, Durability: f.Durability, Fencing: f.Fencing,
		Failed: f.Failed, Recovering: f.Recovering.Milliseconds(),
		Contended: f.ContendedKeys, Broken: f.Broken, Watches: f.Watches, LastToken: uint64(f.LastToken),
		GrantedTotal: f.Granted, Released: f.Released, Forced: f.Stats.Forced, Ended: f.Ended,
		Queued: f.Queued, Busy: f.Busy, TimedOut: f.TimedOut, Cancelled: f.Cancelled,
		Refused: f.Refused, Deadlocks: f.Deadlocks, Repeats: f.Repeats, Renewals: f.Renewals,
		Syncs: f.JournalSyncs, Bytes: f.JournalBytes,
	}
}
