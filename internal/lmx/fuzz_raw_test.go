package lmx_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/lmx"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// FuzzLines sends whatever lines to a connection: none may bring it down, each
// answer is one JSON object in a line, and nothing is kept when the connection ends.
func FuzzLines(f *testing.F) {
	for _, lines := range []string{
		`{"type":"version","value":"0.2.25"}` + "\n" + `{"type":"lock","uuid":"a","key":"k","ttl":null,"max":2,"keepLocksAfterDeath":false}` + "\n" +
			`{"type":"lock","uuid":"b","key":"k","ttl":5,"max":1,"wait":false,"rwStatus":"begin_read"}` + "\n" +
			`{"type":"lock-received","uuid":"a","key":"k"}` + "\n" + `{"type":"unlock","uuid":"c","_uuid":"a","key":"k"}`,
		`{"type":"acquire-many","uuid":"a","keys":["x","y","x"],"ttl":100}` + "\n" + `{"type":"release-many","uuid":"b","lockUuid":"q"}` + "\n" +
			`{"type":"unlock","uuid":"c","key":"x","force":true}`,
		`{"type":"register-write-flag-check","uuid":"a","key":"k"}` + "\n" + `{"type":"increment-readers","uuid":"b","key":"k"}` + "\n" +
			`{"type":"register-write-flag-and-readers-check","uuid":"c","key":"k"}` + "\n" + `{"type":"decrement-readers","uuid":"d","key":"k"}` + "\n" +
			`{"type":"set-write-flag-false-and-broadcast","uuid":"e","key":"k"}`,
		`{"type":"renew","uuid":"a","_uuid":"b","key":"k","ttl":9}` + "\n" + `{"type":"subscribe-evictions","uuid":"b"}` + "\n" + `{"type":"ls","uuid":1}`,
		`{"type":"lock-info-request","uuid":"a","key":"k"}` + "\n" + `{"type":"ping","uuid":"b","timestamp":1e9}` + "\n" +
			`{"inspectCommand":"lockcount"}` + "\n" + `{"type":"system-stats-request","uuid":"c"}`,
		`{"type":"lock-received-rejected","uuid":"a"}` + "\n" + `{"type":"lock-client-timeout","uuid":"a"}` + "\n" + `null` + "\n" + `{"type":null}`,
		`{"type":"version","value":"1.0.0"}` + "\n" + `{"type":"version-mismatch-confirmed"}` + "\n" + `{"type":"simulate-version-mismatch"}`,
		`{"type":"lock","uuid":17,"key":"\ud83d\udd11\"","maxRead":3,"maxWrite":1e3,"max":-1,"ttl":1.5}`,
		"{\"type\":\"lock\",\"uuid\":\"\xeb\",\"key\":\"\xff\xfe\"}\n{\"key\":\"\xeb\"}",
	} {
		f.Add([]byte(lines))
	}
	f.Fuzz(func(t *testing.T, lines []byte) {
		svc, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer svc.Close()
		srv := lmx.New(svc, nil)
		p := &listener{t: t}
		c := srv.Open(p)
		for line := range bytes.SplitSeq(lines, []byte("\n")) {
			if err := c.Line(line); err != nil {
				break
			}
		}
		if last := c.Farewell(errors.New("the end")); last != nil {
			p.Send(last)
		}
		c.End()
		if n := srv.Counts(); n.Clients != 0 || n.Sessionless != 0 || n.Readers != 0 {
			t.Errorf("the counts are %+v when the connection has ended", n)
		}
		if keys, ids, _, unacked := srv.Kept(); keys+ids+unacked != 0 {
			t.Errorf("%d keys, %d ids and %d unacknowledged grants are kept when the connection has ended", keys, ids, unacked)
		}
	})
}

// listener is a peer that checks what it is sent.
type listener struct {
	t  *testing.T
	mu sync.Mutex // a test's Errorf may come from any goroutine, but not after its end
}

func (l *listener) Send(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	body, ok := bytes.CutSuffix(b, []byte("\n"))
	if !ok || bytes.ContainsAny(body, "\n") || len(body) == 0 || body[0] != '{' || !json.Valid(body) || !utf8.Valid(body) {
		l.t.Errorf("sent %q, want one JSON object in a line", b)
	}
}

func (l *listener) Bring(b []byte)       { l.Send(b) }
func (l *listener) Settle()              {}
func (l *listener) Finish()              {}
func (l *listener) Cut()                 {}
func (l *listener) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
