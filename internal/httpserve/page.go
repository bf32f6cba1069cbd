package httpserve

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/style.css
var pageCSS string

//go:embed page/live.js
var pageJS string

//go:embed openapi.json
var openAPI []byte

// pageTemplate escapes every value for the place that it stands in.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"span": span, "forever": forever, "count": count, "ordinal": ordinal, "decimal": decimal,
	"plain": plain,
}).Parse(pageHTML))

// liveParts are the parts of the page that a stream replaces, by the id of their
// element.
func liveParts() []string { return []string{"summary", "locks"} }

// pagePolicy allows the page its own style and script, named by their hashes, and
// to listen to its own broker. Nothing is loaded from anywhere else, and text
// that slipped through as markup could still not run.
func pagePolicy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS) +
		"; connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}

// frame is what the page shows around its live parts.
type frame struct {
	CSS     template.CSS
	JS      template.JS
	Prefix  string
	After   string
	Stream  string
	Age     time.Duration // of what is shown, when that is worth saying
	Version string
	Rows    []Row
	Limits  []lease.Limit
	Parts   map[string]template.HTML
}

// status answers with the page for people.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	v, err := s.viewOf(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	l := s.look(r.Context(), v, 0)
	f := frame{
		// The policy names these texts by their hashes, so they are ours.
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS),
		Prefix: v.prefix, After: v.after, Version: s.opts.Version, Limits: lease.Limits(),
		Stream: "/v1/status/stream?" + query(v.prefix, v.after),
		Parts:  make(map[string]template.HTML),
	}
	if age := time.Since(l.at); age > 2*liveEvery {
		f.Age = age
	}
	if s.opts.More != nil {
		f.Rows = s.opts.More()
	}
	for name, text := range l.parts {
		f.Parts[name] = template.HTML(text) // made by the same template
	}
	var page bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&page, "page", f); err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Security-Policy", pagePolicy())
	s.write(w, http.StatusOK, "text/html; charset=utf-8", page.Bytes())
}

func query(prefix, after string) string {
	q := url.Values{}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	if after != "" {
		q.Set("after", after)
	}
	return q.Encode()
}

func (s *Server) viewOf(r *http.Request) (view, error) {
	p := r.URL.Query()
	v := view{prefix: p.Get("prefix"), after: p.Get("after"), base: "http://" + r.Host}
	if r.TLS != nil {
		v.base = "https://" + r.Host
	}
	for _, k := range []string{v.prefix, v.after} {
		if k == "" {
			continue
		}
		if err := lease.CheckKey(k); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (s *Server) look(ctx context.Context, v view, maxAge time.Duration) *look {
	return s.board.see(ctx, v, maxAge, func(l *look) {
		data := digest(v, l)
		for _, name := range liveParts() {
			var text bytes.Buffer
			if err := pageTemplate.ExecuteTemplate(&text, name, data); err != nil {
				s.log.Error("http: the status page could not be rendered", "part", name, "err", err)
				continue
			}
			l.parts[name] = text.Bytes()
		}
	})
}

// stream answers with the live parts of the page, each time that they changed,
// as server-sent events named for the element that they belong to.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	v, err := s.viewOf(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	if !s.enter() {
		s.fail(w, &problem{http.StatusServiceUnavailable, lease.ErrUnavailable,
			"too many status pages are open; close some"})
		return
	}
	defer s.exit()
	out := openStream(w)
	shown := make(map[string][]byte)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for out.err == nil {
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		}
		l := s.look(r.Context(), v, liveEvery/2)
		for _, name := range liveParts() {
			if text := l.parts[name]; !bytes.Equal(text, shown[name]) {
				shown[name] = text
				out.named(name, text)
			}
		}
		// A beat even when nothing changed: it shows the page that it is live,
		// and this end that somebody reads.
		rest := s.board.next(l)
		out.named("beat", strconv.AppendInt(nil, rest.Milliseconds(), 10))
		out.flush()
		timer.Reset(rest)
	}
}

// enter counts a stream in, unless there are too many.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= maxStreams {
		return false
	}
	s.streams++
	return true
}

func (s *Server) exit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
}

// describe answers with the description of the API.
func (s *Server) describe(w http.ResponseWriter, r *http.Request) {
	s.write(w, http.StatusOK, "application/json", openAPI)
}
