package httpserve

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// TestForeignPages sends what a browser would send for a page of another site:
// under a rebound name, across origins, as a form. None may reach a lock.
func TestForeignPages(t *testing.T) {
	r := start(t, Options{Hosts: []string{"Locks.Example", "10.1.2.3"}})
	port := r.base[strings.LastIndex(r.base, ":"):]
	for name, c := range map[string]struct {
		host    string
		header  map[string]string
		allowed int
	}{
		"loopback address":     {"127.0.0.1" + port, nil, 200},
		"another loopback":     {"127.8.8.8" + port, nil, 200},
		"IPv6 loopback":        {"[::1]" + port, nil, 200},
		"IPv6 without port":    {"[::1]", nil, 200},
		"localhost":            {"LOCALHOST" + port, nil, 200},
		"configured":           {"locks.example", nil, 200},
		"configured address":   {"10.1.2.3:80", nil, 200},
		"rebound name":         {"attacker.example" + port, nil, 403},
		"looks like loopback":  {"127.0.0.1.attacker.example", nil, 403},
		"another address":      {"192.0.2.7" + port, nil, 403},
		"own page":             {"127.0.0.1" + port, map[string]string{"Origin": "http://127.0.0.1" + port}, 200},
		"other port":           {"127.0.0.1" + port, map[string]string{"Origin": "http://127.0.0.1:1"}, 403},
		"foreign origin":       {"127.0.0.1" + port, map[string]string{"Origin": "https://attacker.example"}, 403},
		"hidden origin":        {"127.0.0.1" + port, map[string]string{"Origin": "null"}, 403},
		"embedded elsewhere":   {"127.0.0.1" + port, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		"form":                 {"127.0.0.1" + port, map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 415},
		"text that looks JSON": {"127.0.0.1" + port, map[string]string{"Content-Type": "text/plain"}, 415},
		"no type":              {"127.0.0.1" + port, map[string]string{"Content-Type": ""}, 415},
		"type with charset":    {"127.0.0.1" + port, map[string]string{"Content-Type": "application/json; charset=utf-8"}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			req := r.request(context.Background(), "POST", "/v1/lock", `{"key":"guarded","shared":true}`)
			req.Host = c.host
			for k, v := range c.header {
				req.Header.Set(k, v)
			}
			a := r.do(req)
			if a.status != c.allowed {
				t.Fatalf("status %d, want %d: %s", a.status, c.allowed, a.text)
			}
			if a.status != 200 && (a.str("error") == "" || a.str("code") != "refused") {
				t.Errorf("no clear text: %s", a.text)
			}
			for name, v := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY",
				"Cross-Origin-Resource-Policy": "same-origin",
			} {
				if a.header.Get(name) != v {
					t.Errorf("%s: %q, want %q", name, a.header.Get(name), v)
				}
			}
			if !strings.Contains(a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
				t.Errorf("policy: %s", a.header.Get("Content-Security-Policy"))
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" {
				t.Error("the answer may be read by other origins")
			}
		})
	}
	link := r.request(context.Background(), "GET", "/", "")
	link.Header.Set("Sec-Fetch-Site", "cross-site")
	link.Header.Set("Sec-Fetch-Mode", "navigate")
	r.do(link).want(t, 200)
}

func TestRoutes(t *testing.T) {
	r := start(t, Options{})
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1/lock", 404},
		{"POST", "/v1/locks", 404},
		{"OPTIONS", "/v1/lock", 404},
		{"DELETE", "/v1/locks/a", 404},
		{"GET", "/nothing", 404},
		{"GET", "/v1/locks/", 400},
		{"GET", "/v1/locks/a/b%2Fc", 200},
		{"GET", "/v1/locks/..%2f..", 200},
		{"GET", "/v1/locks?unknown=1", 400},
		{"GET", "/v1/locks?prefix=a&prefix=b", 400},
		{"GET", "/v1/locks?prefix=a&key=b", 400},
		{"GET", "/v1/locks?limit=0", 400},
		{"GET", "/v1/locks?limit=10001", 400},
		{"GET", "/v1/locks?contended=perhaps", 400},
		{"GET", "/v1/watch?key=", 400},
		{"GET", "/healthz?x=1", 400},
		{"HEAD", "/healthz", 200},
		{"HEAD", "/", 200},
	} {
		a := r.do(r.request(context.Background(), c.method, c.path, ""))
		if a.status != c.status {
			t.Errorf("%s %s: status %d, want %d: %s", c.method, c.path, a.status, c.status, a.text)
		}
	}
	if a := r.get("/v1/locks/a/b%2Fc"); a.str("key") != "a/b/c" {
		t.Errorf("key of the path: %s", a.text)
	}
}

func TestBodySize(t *testing.T) {
	r := start(t, Options{})
	fits := `{"key":"a","label":"` + strings.Repeat("x", lease.MaxFrame)
	r.post("/v1/lock", fits[:lease.MaxFrame-2]+`"}`).want(t, 400) // the label is too long, the body is not
	r.post("/v1/lock", `{"key":"`+strings.Repeat("x", lease.MaxFrame)+`"}`).want(t, 413, "code", "refused")
}

// TestSlowBody has a caller announce a body and not send it. Time is fake, and
// so is the network, which the fake clock can see.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer svc.Close()
		s, err := New(svc, Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		near, far := net.Pipe()
		l.conns <- far
		begin := time.Now()
		fmt.Fprintf(near, "POST /v1/lock HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"key\"")
		resp, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestTimeout || time.Since(begin) != bodyTimeout {
			t.Errorf("status %d after %v, want 408 after %v", resp.StatusCode, time.Since(begin), bodyTimeout)
		}
		near.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// pipeListener accepts in-memory connections.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// TestConnectionLimit fills a listener and shows that the next connection is
// served when one is closed, and that closing it does not hang while it is full.
func TestConnectionLimit(t *testing.T) {
	inner := &pipeListener{conns: make(chan net.Conn, 3), closed: make(chan struct{})}
	l := limit(inner, 2)
	for range 3 {
		near, far := net.Pipe()
		defer near.Close()
		inner.conns <- far
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	third := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		third <- err
	}()
	if len(inner.conns) != 1 {
		t.Error("a third connection was accepted")
	}
	first.Close()
	first.Close() // frees one place, not two
	if err := <-third; err != nil {
		t.Fatal(err)
	}
	full := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		full <- err
	}()
	l.Close()
	if err := <-full; err == nil {
		t.Error("accepted after close")
	}
}
