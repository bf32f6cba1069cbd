package httpserve

import (
	"errors"
	"net/http"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// call is one POST that passed the checks all routes share.
type call struct {
	fields
	r        *http.Request
	received time.Time
}

// elapsed is the time since the request was received, in whole milliseconds. A
// caller's own deadline is when it sent the request + elapsed + remaining.
func (c *call) elapsed() int64 { return time.Since(c.received).Milliseconds() }

// granted answers a lock, a renewal and an acquisition of many keys.
type granted struct {
	Acquired      *bool                  `json:"acquired,omitempty"`
	Renewed       bool                   `json:"renewed,omitempty"`
	Key           string                 `json:"key,omitempty"`
	Keys          []string               `json:"keys,omitempty"`
	LockUUID      string                 `json:"lockUuid"`
	FencingToken  lease.Token            `json:"fencingToken,omitempty"`
	FencingTokens map[string]lease.Token `json:"fencingTokens,omitempty"`
	Forever       bool                   `json:"forever,omitempty"`
	TTL           *int64                 `json:"ttl,omitempty"`
	Remaining     *int64                 `json:"remaining,omitempty"`
	Elapsed       int64                  `json:"elapsed"`
	Waited        int64                  `json:"waited"`
	Queue         *int                   `json:"lockRequestCount,omitempty"`
}

// notGranted answers what was asked for and not had.
type notGranted struct {
	Acquired  bool       `json:"acquired"`
	Key       string     `json:"key,omitempty"`
	Keys      []string   `json:"keys,omitempty"`
	Contended string     `json:"contendedKey,omitempty"`
	Code      lease.Code `json:"code"`
	Reason    string     `json:"reason,omitempty"` // why it has to wait; an error is something else
	Error     string     `json:"error,omitempty"`
	Holders   []holder   `json:"holders,omitempty"`
	Queue     *int       `json:"lockRequestCount,omitempty"`
}

func (s *Server) lock(c *call) (int, any) {
	key, err := c.text("key")
	if err == nil && !c.has("key") {
		err = lease.Refuse("key is missing")
	}
	if err != nil {
		return s.refused(notGranted{Key: key}, err)
	}
	l, err := s.hold(c, []string{key})
	if err != nil {
		status, answer := s.refused(notGranted{Key: key}, err)
		answer.Queue = s.queue(c, key)
		return status, answer
	}
	return http.StatusOK, c.grant(l, s.queue(c, key))
}

func (s *Server) acquireMany(c *call) (int, any) {
	keys, err := c.texts("keys")
	if err == nil && len(keys) == 0 {
		err = lease.Refuse("keys must be a list of 1 to %d strings", lease.MaxKeys)
	}
	if err != nil {
		return s.refused(notGranted{}, err)
	}
	l, err := s.hold(c, distinct(keys))
	if err != nil {
		status, answer := s.refused(notGranted{Keys: keys}, err)
		if answer.Code == lease.ErrBusy || answer.Code == lease.ErrTimeout {
			var e *lease.Error
			if errors.As(err, &e) {
				answer.Contended = e.Key
			}
			status = http.StatusConflict
		}
		return status, answer
	}
	answer := c.grant(l, nil)
	answer.Key, answer.FencingToken = "", 0
	answer.Keys, answer.FencingTokens = keysOf(l), tokensOf(l)
	return http.StatusOK, answer
}

// distinct drops repeats: naming a key twice asks for nothing more.
func distinct(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	out := keys[:0:0]
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// hold reads what all acquisitions have in common and runs the request.
func (s *Server) hold(c *call, keys []string) (lease.Lease, error) {
	req := lease.Request{Keys: keys, Detach: true}
	var err error
	if req.TTL, err = c.ttl(); err != nil {
		return lease.Lease{}, err
	}
	if req.TTL == 0 {
		req.TTL = defaultTTL
	}
	clamped, err := c.mode(&req)
	if err != nil {
		return lease.Lease{}, err
	}
	if req.Wait, err = c.millis("wait"); err != nil {
		return lease.Lease{}, err
	}
	req.Try = req.Wait == 0
	if req.Label, err = c.text("label"); err != nil {
		return lease.Lease{}, err
	}
	if req.ID, err = c.text("requestId"); err != nil {
		return lease.Lease{}, err
	}
	if c.has("requestId") && req.ID == "" {
		return lease.Lease{}, lease.Refuse("requestId is empty; leave it out to have one made")
	}
	if clamped {
		s.clamps.Add(1)
	}
	return s.acquire(c.r.Context(), req)
}

// ttl is zero when the caller leaves it to the default.
func (c *call) ttl() (time.Duration, error) {
	forever, err := c.flag("forever")
	switch {
	case err != nil:
		return 0, err
	case forever && c.has("ttl"):
		return 0, lease.Refuse("ttl and forever exclude each other")
	case forever:
		return lease.Forever, nil
	case string(c.fields["ttl"]) == "null":
		return 0, lease.Refuse("ttl is null, which could mean two things: leave it out for the default, " +
			"or send \"forever\":true for a lock that never expires")
	}
	return c.millis("ttl")
}

// mode reads who may hold beside the caller, and reports whether max was over
// the cap and cut to it, as live-mutex does.
func (c *call) mode(req *lease.Request) (clamped bool, err error) {
	limit, err := c.positive("max", "")
	if err != nil {
		return false, err
	}
	// They belong to the readers/writers locks of live-mutex's own connections.
	// Here they have no effect, but a wrong one is refused in the same words.
	for _, name := range []string{"maxRead", "maxWrite"} {
		if _, err := c.positive(name, ""); err != nil {
			return false, err
		}
	}
	shared, err := c.flag("shared")
	switch {
	case err != nil:
		return false, err
	case shared && limit > 0:
		return false, lease.Refuse("max and shared exclude each other: any number of shared holders fit")
	case shared:
		req.Mode = lease.Shared
	case limit > 1: // a limit of 1 is what exclusive means
		req.Mode = lease.Counted
		req.Limit = int(min(limit, lease.MaxHolders))
	}
	return limit > lease.MaxHolders, nil
}

func (c *call) grant(l lease.Lease, queue *int) granted {
	yes := true
	g := granted{
		Acquired: &yes, LockUUID: l.ID, FencingToken: l.Token(),
		Forever: l.TTL == lease.Forever, TTL: ms(l.TTL), Remaining: remaining(l),
		Elapsed: c.elapsed(), Waited: l.Waited.Milliseconds(), Queue: queue,
	}
	if len(l.Holds) > 0 {
		g.Key = l.Holds[0].Key
	}
	return g
}

// refused completes the answer to a request that was not granted. To have to
// wait is no error and answered with 200, which acquire-many overrides.
func (s *Server) refused(a notGranted, err error) (int, notGranted) {
	status, f := s.failure(err)
	a.Code = f.Code
	if f.Code != lease.ErrBusy && f.Code != lease.ErrTimeout {
		a.Error = f.Error
		return status, a
	}
	a.Reason = f.Error
	var e *lease.Error
	if errors.As(err, &e) {
		a.Holders = holders(e.Holders)
	}
	return http.StatusOK, a
}

// queue is how many requests wait for a key, or nil when that cannot be told.
func (s *Server) queue(c *call, key string) *int {
	l, err := s.svc.List(c.r.Context(), lease.Query{Key: key, Brief: true})
	if err != nil {
		return nil
	}
	n := 0
	if len(l.Keys) > 0 {
		n = l.Keys[0].Waiting
	}
	return &n
}

func keysOf(l lease.Lease) []string {
	keys := make([]string, len(l.Holds))
	for i, h := range l.Holds {
		keys[i] = h.Key
	}
	return keys
}

func tokensOf(l lease.Lease) map[string]lease.Token {
	tokens := make(map[string]lease.Token, len(l.Holds))
	for _, h := range l.Holds {
		tokens[h.Key] = h.Token
	}
	return tokens
}
