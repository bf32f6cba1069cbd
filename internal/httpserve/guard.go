package httpserve

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// problem is an answer that refuses a request before any lock is touched.
type problem struct {
	status int
	code   lease.Code
	text   string
}

func (p *problem) Error() string { return p.text }

func refuse(status int, format string, args ...any) *problem {
	return &problem{status, lease.ErrRefused, fmt.Sprintf(format, args...)}
}

// apiPolicy is the content policy of everything but the page: such an answer
// loads nothing and is shown in no frame.
const apiPolicy = "default-src 'none'; frame-ancestors 'none'"

func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", apiPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func allowedHosts(names []string) map[string]bool {
	hosts := map[string]bool{"localhost": true}
	for _, n := range names {
		hosts[strings.ToLower(strings.Trim(n, "[]"))] = true
	}
	return hosts
}

// checkCaller refuses what a web page of somebody else could send through a
// browser on this host. A browser always states the name it connected to in Host
// and, where it matters, the page's origin; programs that are no browser state
// what they like and are not what this is about.
func (s *Server) checkCaller(r *http.Request) *problem {
	if !s.hostAllowed(r) {
		return refuse(http.StatusForbidden, "host %s is not one that this broker answers for; "+
			"use a loopback address, or start it with --http-host and the name", lease.QuoteKey(r.Host))
	}
	if o := r.Header.Get("Origin"); o != "" && !sameOrigin(o, r.Host) {
		return refuse(http.StatusForbidden, "origin %s is foreign: web pages of other origins may not use this broker",
			lease.QuoteKey(o))
	}
	// A page elsewhere could make a browser open a watch as an image and so use
	// them up; following a link to the status page is fine.
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") &&
		r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return refuse(http.StatusForbidden, "requests on behalf of a page of another site are refused")
	}
	return nil
}

func (s *Server) hostAllowed(r *http.Request) bool {
	host := hostOnly(r.Host)
	if s.hosts[strings.ToLower(host)] {
		return true
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if addr.Unmap().IsLoopback() {
		return true
	}
	// The very address that the request came in on cannot be a rebound name.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	ap, err := netip.ParseAddrPort(local.String())
	return err == nil && ap.Addr().Unmap() == addr.Unmap()
}

func hostOnly(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		return h
	}
	return strings.Trim(hostport, "[]")
}

func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(u.Host, host)
}

// readBody returns the JSON body of a POST.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *problem) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return nil, refuse(http.StatusUnsupportedMediaType, "send the body as Content-Type: application/json, got %s",
			lease.QuoteKey(r.Header.Get("Content-Type")))
	}
	c := http.NewResponseController(w)
	// A writer that has no deadlines, as in tests without a connection, is as
	// slow as its test makes it.
	_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, lease.MaxFrame))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is over %d bytes (MaxFrame)", lease.MaxFrame)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusRequestTimeout, "the body did not arrive within %v", bodyTimeout)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body could not be read to its end: %v", err)
	}
	// From here on reading only notices that the caller hangs up.
	_ = c.SetReadDeadline(time.Time{})
	return body, nil
}
