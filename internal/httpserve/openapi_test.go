package httpserve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// verify holds an answer, and a request that was accepted, against the
// description. Every request of every test in this package passes through here.
func (r *rig) verify(req *http.Request, a answer) {
	r.t.Helper()
	path := described(req.URL.Path)
	if r.described.at(r.described.root, "paths", path, strings.ToLower(req.Method)) == nil {
		return // no route, or the head of one
	}
	kind, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	schema := r.described.answerSchema(req.Method, path, a.status, kind)
	if schema == nil {
		r.t.Errorf("%s %s: an answer %d of %s is not described", req.Method, path, a.status, kind)
		return
	}
	r.seen[fmt.Sprint(req.Method, " ", path, " ", a.status)] = true
	if kind != "application/json" {
		return
	}
	for _, p := range r.described.check(schema, any(a.body), path != "/openapi.json", "answer") {
		r.t.Errorf("%s %s %d: %s in %s", req.Method, path, a.status, p, a.text)
	}
	if req.Method == http.MethodPost && a.status < 300 {
		r.verifyRequest(req, path)
	}
}

func (r *rig) verifyRequest(req *http.Request, path string) {
	body, err := req.GetBody()
	if err != nil {
		r.t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		r.t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		r.t.Fatal(err)
	}
	for _, p := range r.described.check(r.described.requestSchema(path), v, true, "request") {
		r.t.Errorf("POST %s accepted what is not described: %s in %s", path, p, text)
	}
}

// TestDescribedRoutes holds routes, parameters and request fields against the
// description, both ways.
func TestDescribedRoutes(t *testing.T) {
	r := start(t, Options{})
	d := describe(t)
	routes := make(map[string]bool)
	for _, rt := range r.server.table() {
		path := described(rt.path)
		routes[rt.method+" "+path] = true
		op, _ := d.at(d.root, "paths", path, strings.ToLower(rt.method)).(object)
		if op == nil {
			t.Errorf("%s %s is not described", rt.method, path)
			continue
		}
		var params []string
		list, _ := op["parameters"].([]any)
		for _, p := range list {
			params = append(params, p.(object)["name"].(string))
		}
		compare(t, path+" parameters", params, rt.params)
		if rt.post == nil {
			continue
		}
		schema, _ := d.requestSchema(path).(object)
		properties, _ := schema["properties"].(object)
		var names []string
		for name := range properties {
			names = append(names, name)
		}
		compare(t, path+" fields", names, rt.fields)
		if schema["additionalProperties"] != false {
			t.Errorf("%s: the description allows unknown fields, the handler does not", path)
		}
		required, _ := schema["required"].([]any)
		for _, name := range required {
			without := r.post(path, `{}`)
			if without.status != 400 {
				t.Errorf("%s without %v: status %d, want 400", path, name, without.status)
			}
		}
	}
	paths, _ := d.root["paths"].(object)
	for path, item := range paths {
		for method := range item.(object) {
			if method != "parameters" && !routes[strings.ToUpper(method)+" "+path] {
				t.Errorf("%s %s is described and not there", method, path)
			}
		}
	}
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.Errorf("%s: described %q, handled %q", what, got, want)
	}
}

// TestDescribedCodes holds the list of codes against the contract's.
func TestDescribedCodes(t *testing.T) {
	d := describe(t)
	var got []string
	enum, _ := d.at(d.root, "components", "schemas", "Failure", "properties", "code", "enum").([]any)
	for _, c := range enum {
		got = append(got, c.(string))
	}
	var want []string
	for _, c := range []lease.Code{
		lease.ErrBusy, lease.ErrTimeout, lease.ErrCancelled, lease.ErrRefused, lease.ErrDeadlock, lease.ErrUnknown,
		lease.ErrOver, lease.ErrNotHeld, lease.ErrExpired, lease.ErrForced, lease.ErrSessionLost, lease.ErrServiceGone,
		lease.ErrUnavailable, lease.ErrClosed, lease.ErrProtocol, lease.ErrInternal,
	} {
		want = append(want, string(c))
	}
	compare(t, "codes", got, want)
}

// TestDescribedAnswers brings about every kind of answer that the description
// has for the locks; verify checks each of them.
func TestDescribedAnswers(t *testing.T) {
	r := start(t, Options{Version: "9.9"})
	a := r.post("/v1/lock", `{"key":"a","ttl":60000,"wait":5,"label":"l","requestId":"r","shared":false,"forever":null}`).want(t, 200)
	r.post("/v1/lock", `{"key":"a","max":1}`).want(t, 200, "acquired", false)
	r.post("/v1/lock", `{"key":"a","max":0}`).want(t, 400)
	r.post("/v1/lock", `{"KEY":"a"}`).want(t, 400)
	r.post("/v1/lock", `{"key":"f","forever":true,"shared":true}`).want(t, 200)
	m := r.post("/v1/acquire-many", `{"keys":["x","y"],"ttl":60000}`).want(t, 200)
	r.post("/v1/acquire-many", `{"keys":["x","a"]}`).want(t, 409)
	r.post("/v1/acquire-many", `{"keys":[]}`).want(t, 400)
	r.post("/v1/renew", `{"lockUuid":"r"}`).want(t, 200)
	r.post("/v1/renew", fmt.Sprintf(`{"lockUuid":%q,"forever":true}`, m.str("lockUuid"))).want(t, 200)
	r.post("/v1/renew", `{"lockUuid":"none"}`).want(t, 404)
	r.post("/v1/renew", `{"lockUuid":7}`).want(t, 400)
	s := r.open(lease.SessionOptions{Name: "w", Host: "h", PID: 1})
	s.Acquire(lease.Request{Keys: []string{"a"}, Label: "waits"}, quietCaller{})
	r.get("/v1/locks").want(t, 200)
	r.get("/v1/locks?limit=x").want(t, 400)
	r.get("/v1/locks/a").want(t, 200)
	r.get("/v1/locks/").want(t, 400)
	r.get("/v1/stats").want(t, 200)
	for _, path := range []string{"/healthz", "/health", "/readyz", "/metrics", "/openapi.json", "/", "/status"} {
		r.get(path).want(t, 200)
	}
	r.post("/v1/unlock", `{"key":"a","lockUuid":"r"}`).want(t, 200)
	r.post("/v1/unlock", `{"key":"a","lockUuid":"r"}`).want(t, 400)
	r.post("/v1/lock", `{"key":"a","requestId":"r"}`).want(t, 409)
	r.post("/v1/unlock", `{"key":"f","force":true,"by":"b","reason":"r"}`).want(t, 200)
	r.post("/v1/release-many", fmt.Sprintf(`{"lockUuid":%q}`, m.str("lockUuid"))).want(t, 200)
	r.post("/v1/release-many", fmt.Sprintf(`{"lockUuid":%q}`, m.str("lockUuid"))).want(t, 404)
	r.post("/v1/release-many", `{}`).want(t, 400)
	for _, path := range []string{"/v1/lock", "/v1/unlock", "/v1/renew", "/v1/acquire-many", "/v1/release-many"} {
		r.post(path, `{"key":"`+strings.Repeat("x", lease.MaxFrame)+`"}`).want(t, 413)
		plain := r.request(context.Background(), "POST", path, `{}`)
		plain.Header.Set("Content-Type", "text/plain")
		r.do(plain).want(t, 415)
		foreign := r.request(context.Background(), "POST", path, `{}`)
		foreign.Host = "attacker.example"
		r.do(foreign).want(t, 403)
	}
	if a.num("elapsed") < 0 {
		t.Errorf("elapsed: %s", a.text)
	}
	r.everyStatusSeen()
}

// everyStatusSeen fails for an answer of a described route that no request of
// the test brought about, but for those that other tests need a fake clock, a
// sick service or a second client for.
func (r *rig) everyStatusSeen() {
	r.t.Helper()
	elsewhere := []string{" 408", " 500", " 503"}
	paths, _ := r.described.root["paths"].(object)
	for path, item := range paths {
		for method, op := range item.(object) {
			if method == "parameters" || strings.HasSuffix(path, "/watch") || strings.HasSuffix(path, "/stream") {
				continue
			}
			for status := range op.(object)["responses"].(object) {
				name := strings.ToUpper(method) + " " + path + " " + status
				skip := slices.ContainsFunc(elsewhere, func(s string) bool { return strings.HasSuffix(name, s) }) ||
					method == "get" && status != "200"
				if !skip && !r.seen[name] {
					r.t.Errorf("no request was answered with %s", name)
				}
			}
		}
	}
}
