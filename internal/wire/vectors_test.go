package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// update writes what the frames of the vectors mean to us into the files, for a
// new case whose meaning is then read and judged by a person.
var update = flag.Bool("update", false, "rewrite the meanings in clients/vectors")

const vectorDir = "../../clients/vectors"

// vector is one case of requests.json, refused.json, replies.json or hello.json;
// clients/vectors/README.md describes the fields.
type vector struct {
	Name   string          `json:"name"`
	Line   string          `json:"line,omitempty"`
	Base64 string          `json:"base64,omitempty"`
	From   string          `json:"from,omitempty"`
	Means  json.RawMessage `json:"means,omitempty"`
	Loose  bool            `json:"loose,omitempty"`
	N      uint64          `json:"n,omitempty"`
	Code   lease.Code      `json:"code,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

func (v *vector) line(t *testing.T) []byte {
	t.Helper()
	if v.Base64 == "" {
		return []byte(v.Line)
	}
	line, err := base64.StdEncoding.DecodeString(v.Base64)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return line
}

func readVectors(t *testing.T, file string) []vector {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir, file))
	if err != nil {
		t.Fatal(err)
	}
	var out []vector
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return out
}

// writeVectors writes one case a line, so that a change is seen as one.
func writeVectors(t *testing.T, file string, list []vector) {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range list {
		b.WriteString([]string{",\n", "[\n"}[btoi(i == 0)])
		if err := e.Encode(list[i]); err != nil {
			t.Fatal(err)
		}
		b.Truncate(b.Len() - 1)
	}
	b.WriteString("\n]\n")
	if err := os.WriteFile(filepath.Join(vectorDir, file), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// checkMeaning compares what a line means to us with what the vector says, or
// with update writes it there.
func (v *vector) checkMeaning(t *testing.T, got any) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		v.Means = text
		return
	}
	var g, w any
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(v.Means, &w); err != nil {
		t.Fatalf("%s: means: %v", v.Name, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s: %s\n  to us %s\nto them %s", v.Name, v.Line, text, v.Means)
	}
}

// requestMeaning is a request without the choices of the encoding: durations are
// milliseconds, or -1 for without end or without any.
type requestMeaning struct {
	N         uint64      `json:"n"`
	Do        string      `json:"do"`
	ID        string      `json:"id,omitempty"`
	Keys      []string    `json:"keys,omitempty"`
	Mode      string      `json:"mode,omitempty"`
	Max       int         `json:"max,omitempty"`
	TTL       *int64      `json:"ttl,omitempty"`
	Try       bool        `json:"try,omitempty"`
	Wait      int64       `json:"wait,omitempty"`
	Waited    int64       `json:"waited,omitempty"`
	Readers   bool        `json:"prefer_readers,omitempty"`
	MaxHold   int64       `json:"max_hold,omitempty"`
	LockDelay int64       `json:"lock_delay,omitempty"`
	Detach    bool        `json:"detach,omitempty"`
	Label     string      `json:"label,omitempty"`
	Declared  []string    `json:"declared,omitempty"`
	Token     lease.Token `json:"token,omitempty"`
	Name      string      `json:"name,omitempty"`
	Host      string      `json:"host,omitempty"`
	PID       int         `json:"pid,omitempty"`
	Grace     *int64      `json:"grace,omitempty"`
	Resume    string      `json:"resume,omitempty"`
	Prefix    string      `json:"prefix,omitempty"`
	After     string      `json:"after,omitempty"`
	Limit     int         `json:"limit,omitempty"`
	Contended bool        `json:"contended,omitempty"`
	Brief     bool        `json:"brief,omitempty"`
	Watch     uint64      `json:"watch,omitempty"`
	By        string      `json:"by,omitempty"`
	Reason    string      `json:"reason,omitempty"`
}

// span is a duration of a meaning: absent for zero, -1 for the special value.
func span(d, special time.Duration) *int64 {
	ms := d.Milliseconds()
	switch d {
	case 0:
		return nil
	case special:
		ms = -1
	}
	return &ms
}

func unspan(ms *int64, special time.Duration) time.Duration {
	switch {
	case ms == nil:
		return 0
	case *ms == -1:
		return special
	}
	return time.Duration(*ms) * time.Millisecond
}

func meaningOf(r *Request) requestMeaning {
	m := requestMeaning{N: r.N, Do: r.Do.String(), ID: r.ID, Keys: r.Keys, Max: r.Max, TTL: span(r.TTL, lease.Forever),
		Try: r.Try, Wait: floor(r.Wait), Waited: floor(r.Waited), Readers: r.PreferReaders, MaxHold: floor(r.MaxHold),
		LockDelay: floor(r.LockDelay), Detach: r.Detach, Label: r.Label, Declared: r.Declared, Token: r.Token,
		Name: r.Name, Host: r.Host, PID: r.PID, Grace: span(r.Grace, lease.NoGrace), Resume: r.Resume,
		Prefix: r.Prefix, After: r.After, Limit: r.Limit, Contended: r.Contended, Brief: r.Brief, Watch: r.Watch, By: r.By, Reason: r.Reason}
	if r.Key != "" {
		m.Keys = []string{r.Key}
	}
	if r.Do == OpAcquire {
		m.Mode = r.Mode.String()
	}
	return m
}

func (m *requestMeaning) request() Request {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	r := Request{N: m.N, Do: parseOp(m.Do), ID: m.ID, Max: m.Max, TTL: unspan(m.TTL, lease.Forever), Try: m.Try,
		Wait: ms(m.Wait), Waited: ms(m.Waited), PreferReaders: m.Readers, MaxHold: ms(m.MaxHold), LockDelay: ms(m.LockDelay),
		Detach: m.Detach, Label: m.Label, Declared: m.Declared, Token: m.Token, Name: m.Name, Host: m.Host, PID: m.PID,
		Grace: unspan(m.Grace, lease.NoGrace), Resume: m.Resume, Prefix: m.Prefix, After: m.After, Limit: m.Limit,
		Contended: m.Contended, Brief: m.Brief, Watch: m.Watch, By: m.By, Reason: m.Reason}
	if len(m.Keys) == 1 {
		r.Key = m.Keys[0]
	} else {
		r.Keys = m.Keys
	}
	for _, mode := range []lease.Mode{lease.Shared, lease.Counted} {
		if m.Mode == mode.String() {
			r.Mode = mode
		}
	}
	return r
}

// Requests of the vectors mean to us what they say, and what they mean is encoded
// as they say.
func TestVectorRequests(t *testing.T) {
	list := readVectors(t, "requests.json")
	for i := range list {
		v := &list[i]
		var r Request
		if err := DecodeRequest(v.line(t), &r); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		v.checkMeaning(t, meaningOf(&r))
		var m requestMeaning
		if err := json.Unmarshal(v.Means, &m); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		q := m.request()
		if line := strings.TrimSuffix(string(AppendRequest(nil, &q)), "\n"); !v.Loose && line != v.Line {
			t.Errorf("%s:\n encoded %s\nexpected %s", v.Name, line, v.Line)
		}
	}
	if *update {
		writeVectors(t, "requests.json", list)
	}
}

// Lines that are no requests are refused with the code, number and reason that
// the vectors say; the contract judges what the frame itself leaves open.
func TestVectorRefused(t *testing.T) {
	for _, v := range readVectors(t, "refused.json") {
		var r Request
		err := DecodeRequest(v.line(t), &r)
		if err == nil && r.Do == OpAcquire {
			q := r.Lease()
			err = q.Normalize()
		}
		switch {
		case lease.CodeOf(err) != v.Code:
			t.Errorf("%s: got %v, want %s", v.Name, err, v.Code)
		case v.Code == lease.ErrRefused && r.N != v.N:
			t.Errorf("%s: the answer goes to %d, want %d", v.Name, r.N, v.N)
		case !strings.Contains(err.Error(), v.Reason):
			t.Errorf("%s: got %q, want %q in it", v.Name, err, v.Reason)
		}
	}
}

// Replies of the vectors mean to us what they say, and what they mean is encoded
// as they say.
func TestVectorReplies(t *testing.T) {
	list := readVectors(t, "replies.json")
	for i := range list {
		v := &list[i]
		var r Reply
		if err := DecodeReply(v.line(t), &r); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		v.checkMeaning(t, replyMeaningOf(&r))
		if line := strings.TrimSuffix(string(AppendReply(nil, &r)), "\n"); !v.Loose && line != v.Line {
			t.Errorf("%s:\n encoded %s\nexpected %s", v.Name, line, v.Line)
		}
	}
	if *update {
		writeVectors(t, "replies.json", list)
	}
}

// replyMeaningOf spells a reply out as a client sees it.
func replyMeaningOf(r *Reply) map[string]any {
	kinds := map[Kind]string{OK: "ok", Failed: "failed", Waiting: "queued", Part: "part", Event: "event", Notice: "lost"}
	m := map[string]any{"kind": kinds[r.Kind]}
	set := func(name string, v any) {
		if !reflect.ValueOf(v).IsZero() {
			m[name] = v
		}
	}
	set("n", r.N)
	set("id", r.ID)
	if r.Kind == OK {
		set("holds", holdsMeaning(r.Holds()))
	} else {
		set("key", r.Key)
		set("token", r.Token)
	}
	if ms := span(r.TTL, lease.Forever); ms != nil {
		m["ttl"], m["elapsed"], m["waited"] = *ms, floor(r.Elapsed), floor(r.Waited)
		if r.Remaining != lease.Forever {
			m["remaining"] = floor(r.Remaining)
		}
	}
	set("detached", r.Detached)
	set("session", r.Session)
	if ms := span(r.Grace, lease.NoGrace); ms != nil {
		m["grace"] = *ms
	}
	var leases []any
	for _, h := range r.Leases {
		l := map[string]any{"id": h.Lease.ID, "holds": holdsMeaning(h.Lease.Holds), "detached": h.Lease.Detached,
			"waited": floor(h.Lease.Waited), "ttl": *span(h.Lease.TTL, lease.Forever)}
		if h.Remaining != lease.Forever {
			l["remaining"] = floor(h.Remaining)
		}
		leases = append(leases, l)
	}
	set("leases", leases)
	if r.Kind == Waiting {
		m["position"] = r.Position
	}
	var holders []json.RawMessage
	for i := range r.Holders {
		holders = append(holders, appendHolder(nil, &r.Holders[i]))
	}
	set("holders", holders)
	set("code", r.Code)
	set("op", r.Op)
	set("reason", r.Reason)
	set("by", r.By)
	var cycle []string
	for _, w := range r.Cycle {
		cycle = append(cycle, w.Who+" waits for "+w.Key)
	}
	set("cycle", cycle)
	set("fence", r.Fence)
	if r.Infos != nil {
		var keys []json.RawMessage
		for i, k := range r.Infos {
			keys = append(keys, appendInfo(nil, &r.Infos[i], len(k.Holders), len(k.Waiters)))
		}
		m["keys"], m["more"] = keys, r.More
	}
	set("stats", r.Stats)
	set("event", r.Event)
	set("host", r.Host)
	set("pid", r.PID)
	set("label", r.Label)
	if r.Kind == Event && r.Key != "" {
		m["mode"] = r.Mode.String()
	}
	set("max", r.Limit)
	set("after", floor(r.After))
	return m
}

func holdsMeaning(holds []lease.Hold) map[string]lease.Token {
	if len(holds) == 0 {
		return nil
	}
	out := make(map[string]lease.Token)
	for _, h := range holds {
		out[h.Key] = h.Token
	}
	return out
}

// Hellos of both sides are taken or refused as the vectors say.
func TestVectorHello(t *testing.T) {
	list := readVectors(t, "hello.json")
	for i := range list {
		v := &list[i]
		decode := DecodeHello
		if v.From == "server" {
			decode = DecodeHelloReply
		}
		h, err := decode(v.line(t))
		if v.Code != "" {
			if lease.CodeOf(err) != v.Code || !strings.Contains(err.Error(), v.Reason) {
				t.Errorf("%s: got %v, want %s with %q", v.Name, err, v.Code, v.Reason)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		v.checkMeaning(t, h)
		if line := strings.TrimSuffix(string(AppendHello(nil, &h)), "\n"); !v.Loose && line != v.Line {
			t.Errorf("%s:\n encoded %s\nexpected %s", v.Name, line, v.Line)
		}
	}
	if *update {
		writeVectors(t, "hello.json", list)
	}
}
