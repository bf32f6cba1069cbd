package httpserve

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// A route is one method of one path. Exactly one of get and post is set.
type route struct {
	method string
	path   string
	params []string // query parameters of a get
	fields []string // members of the body of a post
	get    http.HandlerFunc
	post   func(*call) (int, any)
}

// keyPath is the prefix of the one route whose path ends in a key.
const keyPath = "/v1/locks/"

// table is the whole API; the description in openapi.json is held against it.
func (s *Server) table() []route {
	selection := []string{"key", "prefix"}
	listing := []string{"key", "prefix", "after", "limit", "contended"}
	view := []string{"prefix", "after"}
	hold := []string{"ttl", "forever", "max", "maxRead", "maxWrite", "shared", "wait", "label", "requestId"}
	return []route{
		{method: "POST", path: "/v1/lock", fields: append([]string{"key"}, hold...), post: s.lock},
		{method: "POST", path: "/v1/unlock",
			fields: []string{"key", "lockUuid", "force", "fencingToken", "by", "reason"}, post: s.unlock},
		{method: "POST", path: "/v1/renew", fields: []string{"lockUuid", "ttl", "forever"}, post: s.renew},
		{method: "POST", path: "/v1/acquire-many", fields: append([]string{"keys"}, hold...), post: s.acquireMany},
		{method: "POST", path: "/v1/release-many", fields: []string{"lockUuid"}, post: s.releaseMany},
		{method: "GET", path: "/v1/locks", params: listing, get: s.list},
		{method: "GET", path: keyPath, get: s.show},
		{method: "GET", path: "/v1/watch", params: selection, get: s.watch},
		{method: "GET", path: "/v1/stats", get: s.stats},
		{method: "GET", path: "/healthz", get: s.health},
		{method: "GET", path: "/health", get: s.health},
		{method: "GET", path: "/readyz", get: s.ready},
		{method: "GET", path: "/metrics", get: s.metrics.serve},
		{method: "GET", path: "/openapi.json", get: s.describe},
		{method: "GET", path: "/", params: view, get: s.status},
		{method: "GET", path: "/status", params: view, get: s.status},
		{method: "GET", path: "/v1/status/stream", params: view, get: s.stream},
	}
}

// ServeHTTP answers one request. An unknown path or method is 404.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	received := time.Now()
	setHeaders(w.Header())
	rt, found := s.find(r)
	rec := &recorder{ResponseWriter: w}
	defer func() { s.metrics.count(rt, r.Method, rec.status) }()
	if p := s.checkCaller(r); p != nil {
		s.fail(rec, p)
		return
	}
	if !found {
		s.fail(rec, refuse(http.StatusNotFound, "no route %s %s; GET /openapi.json lists them",
			r.Method, lease.QuoteKey(r.URL.Path)))
		return
	}
	select {
	case <-s.closing:
		rec.Header().Set("Connection", "close")
		s.fail(rec, &problem{http.StatusServiceUnavailable, lease.ErrClosed, "the broker is shutting down"})
		return
	default:
	}
	if rt.post == nil {
		if p := checkQuery(r, rt.params); p != nil {
			s.fail(rec, p)
			return
		}
		rt.get(rec, r)
		return
	}
	body, p := readBody(rec, r)
	if p != nil {
		s.fail(rec, p)
		return
	}
	f, p := parseFields(body, rt.fields)
	if p != nil {
		s.fail(rec, p)
		return
	}
	status, answer := rt.post(&call{fields: f, r: r, received: received})
	s.reply(rec, status, answer)
}

func (s *Server) find(r *http.Request) (route, bool) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // the server drops the body
	}
	path := r.URL.Path
	if strings.HasPrefix(path, keyPath) {
		path = keyPath
	}
	rt, ok := s.routes[path][method]
	return rt, ok
}

func checkQuery(r *http.Request, allowed []string) *problem {
	for name, values := range r.URL.Query() {
		known := false
		for _, a := range allowed {
			known = known || a == name
		}
		switch {
		case !known && len(allowed) == 0:
			return refuse(http.StatusBadRequest, "unknown parameter %s; this route takes none", lease.QuoteKey(name))
		case !known:
			return refuse(http.StatusBadRequest, "unknown parameter %s; this route takes %s",
				lease.QuoteKey(name), strings.Join(allowed, ", "))
		case len(values) > 1:
			return refuse(http.StatusBadRequest, "%s is given twice", name)
		}
	}
	return nil
}

// reply writes an answer as JSON.
func (s *Server) reply(w http.ResponseWriter, status int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		s.log.Error("http: an answer could not be encoded", "err", err)
		status, text = http.StatusInternalServerError, []byte(`{"error":"internal error","code":"internal"}`)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	s.write(w, status, "application/json", append(text, '\n'))
}

func (s *Server) write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// Without a deadline a caller that does not read would keep the connection.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.WriteHeader(status)
	// A caller that went away cannot be told that it did.
	_, _ = w.Write(body)
}

// failure is the answer to what was not done.
type failure struct {
	Error string     `json:"error"`
	Code  lease.Code `json:"code"`
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	status, f := s.failure(err)
	s.reply(w, status, f)
}

// failure turns an error into a status and an answer. The text of an error
// without a code stays in the log: it may name what callers must not learn.
func (s *Server) failure(err error) (int, failure) {
	var p *problem
	if errors.As(err, &p) {
		return p.status, failure{p.text, p.code}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable, failure{"the service did not answer in time", lease.ErrUnavailable}
	}
	code := lease.CodeOf(err)
	text := reason(err)
	if code == lease.ErrInternal {
		s.log.Error("http: request failed", "err", err)
		text = "internal error; the broker's log says more"
	}
	return statusOf(code), failure{text, code}
}

// reason is what is wrong, without the operation and key that the caller knows.
func reason(err error) string {
	var e *lease.Error
	if errors.As(err, &e) && e.Reason != "" {
		return e.Reason
	}
	return err.Error()
}

func statusOf(c lease.Code) int {
	switch c {
	case lease.ErrRefused, lease.ErrProtocol:
		return http.StatusBadRequest
	case lease.ErrNotHeld:
		return http.StatusNotFound
	case lease.ErrBusy, lease.ErrTimeout, lease.ErrDeadlock, lease.ErrOver, lease.ErrCancelled,
		lease.ErrExpired, lease.ErrForced:
		return http.StatusConflict
	case lease.ErrUnavailable, lease.ErrClosed, lease.ErrSessionLost, lease.ErrServiceGone:
		return http.StatusServiceUnavailable
	default: // unknown and internal: what was done is not certain
		return http.StatusInternalServerError
	}
}

// recorder remembers the status of a reply for the metrics.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets deadlines and flushes reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
