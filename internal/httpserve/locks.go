package httpserve

import (
	"errors"
	"net"
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

// released answers an unlock and a release of many keys.
type released struct {
	Released bool        `json:"released"`
	Key      string      `json:"key,omitempty"`
	Keys     []string    `json:"keys,omitempty"`
	LockUUID string      `json:"lockUuid,omitempty"`
	Fence    lease.Token `json:"fencingToken,omitempty"` // after a force: above all that were ended
	Queue    *int        `json:"lockRequestCount,omitempty"`
	Code     lease.Code  `json:"code,omitempty"`
	Error    string      `json:"error,omitempty"`
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
	if err := c.mode(&req); err != nil {
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

func (c *call) mode(req *lease.Request) error {
	limit, err := c.positive("max", "")
	if err != nil {
		return err
	}
	shared, err := c.flag("shared")
	switch {
	case err != nil:
		return err
	case shared && limit > 0:
		return lease.Refuse("max and shared exclude each other: any number of shared holders fit")
	case shared:
		req.Mode = lease.Shared
	case limit > 1: // a limit of 1 is what exclusive means
		req.Mode = lease.Counted
		req.Limit = int(min(limit, lease.MaxHolders+1)) // one too many is refused by name
	}
	return nil
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
	l, err := s.svc.List(c.r.Context(), lease.Query{Key: key})
	if err != nil {
		return nil
	}
	n := 0
	if len(l.Keys) > 0 {
		n = l.Keys[0].Waiting
	}
	return &n
}

func (s *Server) renew(c *call) (int, any) {
	id, err := c.id()
	if err != nil {
		return s.failure(err)
	}
	ttl, err := c.ttl()
	if err != nil {
		return s.failure(err)
	}
	l, err := s.command(c.r.Context(), lease.Command{Verb: lease.Renew, ID: id, TTL: ttl})
	if err != nil {
		return s.failure(err)
	}
	g := c.grant(l, nil)
	g.Acquired, g.Renewed = nil, true
	if len(l.Holds) > 1 {
		g.Key, g.FencingToken = "", 0
		g.Keys, g.FencingTokens = keysOf(l), tokensOf(l)
	}
	return http.StatusOK, g
}

func (c *call) id() (string, error) {
	id, err := c.text("lockUuid")
	if err == nil && id == "" {
		err = lease.Refuse("lockUuid is missing: it is what the acquisition was answered with")
	}
	return id, err
}

func (s *Server) releaseMany(c *call) (int, any) {
	id, err := c.id()
	if err == nil {
		var l lease.Lease
		l, err = s.command(c.r.Context(), lease.Command{Verb: lease.Release, ID: id})
		if err == nil {
			return http.StatusOK, released{Released: true, LockUUID: id, Keys: keysOf(l)}
		}
	}
	status, f := s.failure(err)
	return status, released{LockUUID: id, Code: f.Code, Error: f.Error}
}

func (s *Server) unlock(c *call) (int, any) {
	key, err := c.text("key")
	if err == nil && key == "" {
		err = lease.Refuse("key is missing")
	}
	if err != nil {
		return s.notReleased(key, err)
	}
	queue := s.queue(c, key)
	force, err := c.flag("force")
	if err != nil {
		return s.notReleased(key, err)
	}
	// A force that names a hold is the holder's own unlock: it must not reach
	// other holders when its own is gone.
	if force && !c.has("lockUuid") {
		return s.force(c, key, queue)
	}
	for _, name := range []string{"fencingToken", "by", "reason"} {
		if c.has(name) {
			return s.notReleased(key, lease.Refuse("%s is for a force without lockUuid only", name))
		}
	}
	id, err := c.id()
	if err != nil {
		return s.notReleased(key, lease.Refuse("pass the lockUuid of the hold, or force to end every hold of the key"))
	}
	if err := s.checkHold(c, id, key); err != nil {
		return s.notReleased(key, err)
	}
	if _, err := s.command(c.r.Context(), lease.Command{Verb: lease.Release, ID: id}); err != nil {
		return s.notReleased(key, err)
	}
	return http.StatusOK, released{Released: true, Key: key, LockUUID: id, Queue: queue}
}

// checkHold refuses an id that does not name a hold of exactly this key: a
// mixed-up id must not free another key while it is used. Detaching answers with
// what is held and, since holds taken over HTTP are detached, changes nothing.
func (s *Server) checkHold(c *call, id, key string) error {
	l, err := s.command(c.r.Context(), lease.Command{Verb: lease.Detach, ID: id})
	if err != nil {
		return err
	}
	_, holds := l.TokenOf(key)
	switch {
	case !holds:
		return &lease.Error{Code: lease.ErrNotHeld, Op: "unlock", Key: key,
			Reason: "lockUuid does not name a hold of " + lease.QuoteKey(key)}
	case len(l.Holds) > 1:
		return lease.Refuse("lockUuid names a lease on %d keys; release it with /v1/release-many", len(l.Holds))
	}
	return nil
}

// notReleased answers 400 where others answer what fits better: that is what
// callers of this route know.
func (s *Server) notReleased(key string, err error) (int, any) {
	status, f := s.failure(err)
	if status == http.StatusNotFound || status == http.StatusConflict {
		status = http.StatusBadRequest
	}
	return status, released{Key: key, Code: f.Code, Error: f.Error}
}

func (s *Server) force(c *call, key string, queue *int) (int, any) {
	token, err := c.positive("fencingToken", "")
	if err != nil {
		return s.notReleased(key, err)
	}
	by, err := c.text("by")
	if err != nil {
		return s.notReleased(key, err)
	}
	why, err := c.text("reason")
	if err != nil {
		return s.notReleased(key, err)
	}
	if by == "" {
		by = "http"
		if host, _, err := net.SplitHostPort(c.r.RemoteAddr); err == nil {
			by += " from " + host
		}
	}
	f, err := s.svc.Force(c.r.Context(), lease.ForceRequest{Key: key, Token: lease.Token(token), By: by, Reason: why})
	if err != nil {
		return s.notReleased(key, err)
	}
	return http.StatusOK, released{Released: true, Key: key, Fence: f.Token, Queue: queue}
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
