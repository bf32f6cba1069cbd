package httpserve

import (
	"net"
	"net/http"

	"github.com/latchkey-go/latchkey/lease"
)

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
	if _, err := s.command(c.r.Context(), lease.Command{Verb: lease.Release, ID: id, Key: key}); err != nil {
		return s.notReleased(key, err)
	}
	return http.StatusOK, released{Released: true, Key: key, LockUUID: id, Queue: queue}
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
