package httpserve

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/lease"
)

// holder is a hold as shown to callers. It has no hold id: whoever knows one can
// release the hold.
type holder struct {
	Who       string      `json:"who"`
	Session   string      `json:"session,omitempty"`
	Host      string      `json:"host,omitempty"`
	PID       int         `json:"pid,omitempty"`
	Label     string      `json:"label,omitempty"`
	Mode      string      `json:"mode"`
	Max       int         `json:"max,omitempty"`
	Token     lease.Token `json:"fencingToken,omitempty"`
	Since     int64       `json:"since"` // ms held so far
	TTL       *int64      `json:"ttl,omitempty"`
	Remaining *int64      `json:"remaining,omitempty"`
	Forever   bool        `json:"forever,omitempty"`
	Detached  bool        `json:"detached,omitempty"`
	Broken    bool        `json:"broken,omitempty"`
}

// waiter is a waiting request as shown to callers.
type waiter struct {
	Who     string `json:"who"`
	Session string `json:"session,omitempty"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Label   string `json:"label,omitempty"`
	Mode    string `json:"mode"`
	Max     int    `json:"max,omitempty"`
	Keys    int    `json:"keys"`
	Age     int64  `json:"age"` // ms waited so far
	Left    *int64 `json:"left,omitempty"`
	Broken  bool   `json:"broken,omitempty"`
}

// keyState is one key as shown to callers.
type keyState struct {
	Key     string   `json:"key"`
	Holders []holder `json:"holders"`
	Waiters []waiter `json:"waiters"`
	Waiting int      `json:"waiting"`
	Delay   int64    `json:"delay,omitempty"` // ms left of a lock-delay
}

func holders(in []lease.Holder) []holder {
	out := make([]holder, len(in))
	for i, h := range in {
		out[i] = holder{
			Who: h.Who(), Session: h.Session, Host: h.Host, PID: h.PID, Label: h.Label,
			Mode: h.Mode.String(), Max: h.Limit, Token: h.Token, Since: h.Since.Milliseconds(),
			TTL: ms(h.TTL), Remaining: ms(h.Remaining), Forever: h.TTL == lease.Forever,
			Detached: h.Detached, Broken: h.Broken,
		}
		if out[i].Forever {
			out[i].Remaining = nil
		}
	}
	return out
}

func waiters(in []lease.Waiter) []waiter {
	out := make([]waiter, len(in))
	for i, w := range in {
		out[i] = waiter{
			Who: w.Who(), Session: w.Session, Host: w.Host, PID: w.PID, Label: w.Label,
			Mode: w.Mode.String(), Max: w.Limit, Keys: w.Keys, Age: w.Age.Milliseconds(),
			Left: ms(w.Left), Broken: w.Broken,
		}
	}
	return out
}

func state(k lease.KeyInfo) keyState {
	return keyState{Key: k.Key, Holders: holders(k.Holders), Waiters: waiters(k.Waiters),
		Waiting: k.Waiting, Delay: k.Delay.Milliseconds()}
}

// list answers GET /v1/locks.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q, err := selection(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	p := r.URL.Query()
	q.After = p.Get("after")
	if text := p.Get("limit"); text != "" {
		q.Limit, err = strconv.Atoi(text)
		if err != nil || q.Limit < 1 || q.Limit > lease.MaxListed {
			s.fail(w, lease.Refuse("limit must be an integer from 1 to %d (MaxListed), got %s",
				lease.MaxListed, lease.QuoteKey(text)))
			return
		}
	}
	if text := p.Get("contended"); text != "" {
		if q.Contended, err = strconv.ParseBool(text); err != nil {
			s.fail(w, lease.Refuse("contended must be true or false, got %s", lease.QuoteKey(text)))
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	l, err := s.svc.List(ctx, q)
	if err != nil {
		s.fail(w, err)
		return
	}
	keys := make([]keyState, len(l.Keys))
	for i, k := range l.Keys {
		keys[i] = state(k)
	}
	s.reply(w, http.StatusOK, struct {
		Keys []keyState `json:"keys"`
		More bool       `json:"more"`
	}{keys, l.More})
}

// show answers GET /v1/locks/{key}. A key that nobody holds is no error: it is
// free.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.URL.Path, keyPath)
	if err := lease.CheckKey(key); err != nil {
		s.fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	l, err := s.svc.List(ctx, lease.Query{Key: key})
	if err != nil {
		s.fail(w, err)
		return
	}
	k := lease.KeyInfo{Key: key}
	if len(l.Keys) > 0 {
		k = l.Keys[0]
	}
	s.reply(w, http.StatusOK, state(k))
}

// selection reads which keys a request is about.
func selection(r *http.Request) (lease.Query, error) {
	p := r.URL.Query()
	q := lease.Query{Key: p.Get("key"), Prefix: p.Get("prefix")}
	if q.Key != "" && q.Prefix != "" {
		return q, lease.Refuse("key and prefix exclude each other")
	}
	if p.Has("key") {
		return q, lease.CheckKey(q.Key)
	}
	if q.Prefix != "" {
		return q, lease.CheckKey(q.Prefix)
	}
	return q, nil
}

// health answers whether the process is worth keeping: after a failed write the
// service grants nothing until it is started again, so it is not.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	st, err := s.count(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	answer := struct {
		OK     bool   `json:"ok"`
		IsOpen bool   `json:"isOpen"`
		Error  string `json:"error,omitempty"`
	}{OK: st.Failed == "", IsOpen: true, Error: st.Failed}
	s.reply(w, availability(answer.OK), answer)
}

func availability(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}

// ready answers whether locks are granted just now.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	st, err := s.count(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	answer := struct {
		Ready      bool   `json:"ready"`
		Error      string `json:"error,omitempty"`
		Recovering int64  `json:"recovering,omitempty"` // ms until locks are granted
	}{Error: st.Failed, Recovering: st.Recovering.Milliseconds()}
	answer.Ready = st.Failed == "" && st.Recovering <= 0
	s.reply(w, availability(answer.Ready), answer)
}

func (s *Server) count(r *http.Request) (lease.Stats, error) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	return s.svc.Stats(ctx)
}
