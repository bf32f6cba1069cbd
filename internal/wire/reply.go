package wire

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Kind says what a server's frame is.
type Kind uint8

// The kinds. Exactly one frame with OK or Failed answers a request; a Waiting or
// Part may come before it and Events may follow it.
const (
	OK      Kind = iota + 1 // the request succeeded
	Failed                  // it did not; without N the connection is over
	Waiting                 // the acquire waits: Position, Holders
	Part                    // a part of the leases of a resumed session; more follow
	Event                   // something happened to a watched key
	Notice                  // a hold, or with no ID the whole session, was lost
)

// Reply is one frame of a server after its hello. Only the fields of its kind,
// and of the request it answers, are meaningful.
type Reply struct {
	Kind Kind
	N    uint64 // of the request or watch; 0 for notices and for the last failure

	ID     string
	Key    string
	Token  lease.Token
	Keys   []string // for several keys, with Tokens in the same order
	Tokens []lease.Token

	TTL       time.Duration // or lease.Forever
	Elapsed   time.Duration // from reading the request to writing this
	Remaining time.Duration // of the hold, when this was written; lease.Forever without end
	Waited    time.Duration
	Detached  bool

	Session string        // open: the id of the session; event: its name
	Grace   time.Duration // open; lease.NoGrace for none
	Leases  []Resumed     // open with resume

	Position int            // waiting: requests ahead
	Holders  []lease.Holder // waiting and failed: who is in the way

	Code   lease.Code // failed, notice and event
	Op     string     // failed
	Reason string     // failed
	Cycle  []lease.Wait
	By     string // notice

	Fence lease.Token     // force: the fresh token
	Infos []lease.KeyInfo // list
	More  bool            // list
	Stats *lease.Stats    // stats

	Event lease.EventKind
	Host  string
	PID   int
	Label string
	Mode  lease.Mode
	Limit int
	After time.Duration
}

// Resumed is a lease of a resumed session.
type Resumed struct {
	Lease     lease.Lease   // without its Deadline
	Remaining time.Duration // or lease.Forever
}

// Granted makes the answer to a request that got or kept l: to acquire, renew
// and detach. The deadline of l and now are on the server's clock, and the
// request was read at received.
func Granted(n uint64, l *lease.Lease, received, now time.Time) Reply {
	r := Ended(n, l)
	r.TTL, r.Waited, r.Detached = l.TTL, l.Waited, l.Detached
	r.Elapsed = now.Sub(received)
	r.Remaining = remaining(l, now)
	return r
}

// remaining is what is left of l. A lease for ever has an end where its total
// time is capped.
func remaining(l *lease.Lease, now time.Time) time.Duration {
	if l.Deadline.IsZero() {
		return lease.Forever
	}
	return max(l.Deadline.Sub(now), 0)
}

// Ended makes the answer to release and cancel: which holds of l are gone.
func Ended(n uint64, l *lease.Lease) Reply {
	r := Reply{Kind: OK, N: n, ID: l.ID}
	r.setHolds(l.Holds)
	return r
}

func (r *Reply) setHolds(holds []lease.Hold) {
	if len(holds) == 1 {
		r.Key, r.Token = holds[0].Key, holds[0].Token
		return
	}
	for _, h := range holds {
		r.Keys = append(r.Keys, h.Key)
		r.Tokens = append(r.Tokens, h.Token)
	}
}

// Holds returns the keys and tokens of a reply.
func (r *Reply) Holds() []lease.Hold {
	if r.Key != "" {
		return []lease.Hold{{Key: r.Key, Token: r.Token}}
	}
	holds := make([]lease.Hold, len(r.Keys))
	for i, k := range r.Keys {
		holds[i] = lease.Hold{Key: k, Token: r.Tokens[i]}
	}
	return holds
}

// Lease returns what was granted, renewed or ended. The request was stamped with
// sent before it was written, on this process's clock.
func (r *Reply) Lease(sent time.Time) lease.Lease {
	l := lease.Lease{ID: r.ID, Holds: r.Holds(), TTL: r.TTL, Waited: r.Waited, Detached: r.Detached}
	if r.TTL != 0 {
		l.Deadline = deadline(sent, r.Elapsed, r.Remaining)
	}
	return l
}

// deadline is the rule by which a client computes it. The server had the request
// no earlier than sent, so the sum is not later than the true end.
func deadline(sent time.Time, elapsed, remaining time.Duration) time.Time {
	if remaining == lease.Forever {
		return time.Time{}
	}
	return sent.Add(elapsed + remaining)
}

// ResumedLeases returns the leases of an open reply or a part of it.
func (r *Reply) ResumedLeases(sent time.Time) []lease.Lease {
	out := make([]lease.Lease, len(r.Leases))
	for i, h := range r.Leases {
		out[i] = h.Lease
		out[i].Deadline = deadline(sent, r.Elapsed, h.Remaining)
	}
	return out
}

// Resume lists leases for an open reply.
func Resume(leases []lease.Lease, now time.Time) []Resumed {
	out := make([]Resumed, len(leases))
	for i, l := range leases {
		out[i].Lease = l
		out[i].Remaining = remaining(&l, now)
		out[i].Lease.Deadline = time.Time{}
	}
	return out
}

// Queue makes the frame that tells a request that it waits.
func Queue(n uint64, q *lease.Queued) Reply {
	return Reply{Kind: Waiting, N: n, ID: q.ID, Key: q.Key, Position: q.Position, Holders: q.Ahead}
}

// Queued returns what a Waiting frame tells.
func (r *Reply) Queued() lease.Queued {
	return lease.Queued{ID: r.ID, Key: r.Key, Position: r.Position, Ahead: r.Holders}
}

// Happened makes the frame of a watched event.
func Happened(n uint64, e *lease.Event) Reply {
	return Reply{Kind: Event, N: n, Event: e.Kind, Key: e.Key, Session: e.Session, Host: e.Host, PID: e.PID,
		Label: e.Label, Mode: e.Mode, Limit: e.Limit, Token: e.Token, After: e.After, Code: e.Code}
}

// Happening returns the event of an Event frame.
func (r *Reply) Happening() lease.Event {
	return lease.Event{Kind: r.Event, Key: r.Key, Mode: r.Mode, Limit: r.Limit, Token: r.Token, After: r.After,
		Code:  r.Code,
		Party: lease.Party{Session: r.Session, Host: r.Host, PID: r.PID, Label: r.Label}}
}

// Lost makes the frame of a notice.
func Lost(n lease.Notice) Reply {
	return Reply{Kind: Notice, ID: n.ID, Key: n.Key, Token: n.Token, Code: n.Code, By: n.By}
}

// Loss returns what a Notice frame tells.
func (r *Reply) Loss() lease.Notice {
	return lease.Notice{ID: r.ID, Key: r.Key, Token: r.Token, Code: r.Code, By: r.By}
}

// ForceDone makes the answer to force.
func ForceDone(n uint64, f *lease.Forced) Reply {
	r := Reply{Kind: OK, N: n, Fence: f.Token}
	r.setHolds(f.Holds)
	return r
}

// Forced returns the answer to force.
func (r *Reply) Forced() lease.Forced { return lease.Forced{Holds: r.Holds(), Token: r.Fence} }

// Listed makes the answer to list. AppendReply cuts it to fit a frame.
func Listed(n uint64, l *lease.Listing) Reply {
	r := Reply{Kind: OK, N: n, Infos: l.Keys, More: l.More}
	if r.Infos == nil {
		r.Infos = []lease.KeyInfo{}
	}
	return r
}

// Listing returns the answer to list.
func (r *Reply) Listing() lease.Listing { return lease.Listing{Keys: r.Infos, More: r.More} }
