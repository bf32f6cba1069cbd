package tcpserve

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// badCase is a case of the vectors of refused frames.
type badCase struct {
	Name   string     `json:"name"`
	Line   string     `json:"line"`
	Base64 []byte     `json:"base64"`
	From   string     `json:"from"`
	N      uint64     `json:"n"`
	Code   lease.Code `json:"code"`
	Reason string     `json:"reason"`
}

func badCases(t *testing.T, file string) []badCase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../clients/vectors", file))
	if err != nil {
		t.Fatal(err)
	}
	var out []badCase
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	for i := range out {
		if out[i].Base64 != nil {
			out[i].Line = string(out[i].Base64)
		}
	}
	return out
}

// failure reads a line that must be a failure.
func (p *peer) failure(n uint64, code lease.Code, reason string) {
	p.t.Helper()
	var r wire.Reply
	line := p.line()
	if err := wire.DecodeReply([]byte(line), &r); err != nil {
		p.t.Fatal(err)
	}
	if r.Kind != wire.Failed || r.N != n || r.Code != code || !strings.Contains(r.Err().Error(), reason) {
		p.t.Errorf("got %s, want n %d, code %s, %q in the reason", line, n, code, reason)
	}
}

// Every bad frame gets a named error on its own request, and the connection goes
// on; or, where no request can be told, one error frame and the end. Nothing
// changes in the service.
func TestBadFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		holder, waiter := pipe(t, s), pipe(t, s)
		holder.open(`,"name":"holder","grace":3600000`)
		holder.send(`{"n":2,"do":"acquire","key":"a","forever":true}`)
		holder.want(`{"n":2,"ok":true,*}`)
		waiter.open(`,"grace":3600000`)
		waiter.send(`{"n":2,"do":"acquire","key":"a"}`)
		waiter.want(`{"n":2,"queued":true,*}`)
		before := state(t, svc)
		for _, c := range badCases(t, "refused.json") {
			p := pipe(t, s)
			p.open(`,"grace":0`)
			p.send(c.Line)
			p.failure(c.N*uint64(btoi(c.Code == lease.ErrRefused)), c.Code, c.Reason)
			if c.Code == lease.ErrProtocol {
				p.end()
			} else {
				p.send(`{"n":6,"do":"ping"}`)
				p.want(`{"n":6,"ok":true}`)
			}
			p.nc.Close()
			synctest.Wait()
			if after := state(t, svc); after != before {
				t.Errorf("%s: the state changed from\n%s to\n%s", c.Name, before, after)
			}
		}
		st, err := svc.Stats(t.Context())
		if err != nil || st.Sessions != 2 {
			t.Errorf("%d sessions, %v; want the two that stayed", st.Sessions, err)
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Every bad hello gets one error frame and the end.
func TestBadHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		for _, c := range badCases(t, "hello.json") {
			if c.From != "client" || c.Code == "" {
				continue
			}
			p := pipe(t, s)
			p.send(c.Line)
			p.failure(0, c.Code, c.Reason)
			p.end()
		}
		silent := pipe(t, s)
		start := time.Now()
		silent.failure(0, lease.ErrProtocol, "no hello within 10s")
		silent.end()
		if d := time.Since(start); d != helloTimeout {
			t.Errorf("ended after %v, want %v", d, helloTimeout)
		}
	})
}

// What is asked at the wrong moment is refused by name.
func TestOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		p := pipe(t, s).greet()
		p.send(`{"n":1,"do":"ping"}`)
		p.want(`{"n":1,"ok":true}`)
		p.send(`{"n":2,"do":"acquire","key":"a"}`)
		p.failure(2, lease.ErrRefused, "no session")
		p.send(`{"n":3,"do":"unwatch","watch":9}`)
		p.failure(3, lease.ErrRefused, "not the number of a watch")
		p.send(`{"n":4,"do":"open","resume":"nobody"}`)
		p.failure(4, lease.ErrSessionLost, "no session with this id")
		p.send(`{"n":5,"do":"open","grace":3600001}`)
		p.failure(5, lease.ErrRefused, "MaxGrace")
		p.send(`{"n":6,"do":"open"}`)
		p.want(`{"n":6,"ok":true,*"grace":3000,*}`)
		p.send(`{"n":7,"do":"open"}`)
		p.failure(7, lease.ErrRefused, "has a session already")
		p.send(`{"n":8,"do":"watch"}`)
		p.want(`{"n":8,"ok":true}`)
		p.send(`{"n":8,"do":"watch"}`)
		p.failure(8, lease.ErrRefused, "8 is the number of a watch")
		p.send(`{"n":9,"do":"release","id":"x"}`)
		p.failure(9, lease.ErrNotHeld, "")
		p.send(`{"n":10,"do":"force","key":"x"}`)
		p.failure(10, lease.ErrNotHeld, "")
	})
}

// listen serves on a free port of loopback or on a unix socket until the test ends.
func listen(t *testing.T, s *Server, network string) net.Addr {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr()
}

func dial(t *testing.T, a net.Addr) *peer {
	t.Helper()
	nc, err := net.Dial(a.Network(), a.String())
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	return newPeer(t, nc)
}

// 10 MB without a newline end in an error frame that the client gets to read,
// before the hello and after it, and cost the server no more than a frame.
func TestEndlessLine(t *testing.T) {
	svc := newService(t)
	s := newServer(t, svc, Options{})
	for _, network := range []string{"tcp", "unix"} {
		addr := listen(t, s, network)
		for _, greeted := range []bool{false, true} {
			p := dial(t, addr)
			if greeted {
				p.open("")
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				chunk := []byte(strings.Repeat("x", 1<<20))
				for range 10 {
					if _, err := p.nc.Write(chunk); err != nil {
						return // the server hung up
					}
				}
			}()
			p.failure(0, lease.ErrProtocol, "over 65536 bytes (MaxFrame)")
			p.end()
			p.nc.Close()
			<-sent
		}
	}
	if got := state(t, svc); got != "" {
		t.Errorf("the state changed to %s", got)
	}
}

// A frame of exactly the limit is taken, one byte more is not.
func TestFrameLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		p := pipe(t, s).greet()
		frame := `{"n":1,"do":"ping"}`
		p.send(frame + strings.Repeat(" ", wire.MaxRequest-len(frame)))
		p.want(`{"n":1,"ok":true}`)
		go p.nc.Write([]byte(frame + strings.Repeat(" ", wire.MaxRequest-len(frame)+1) + "\n"))
		p.failure(0, lease.ErrProtocol, "MaxFrame")
		p.end()
	})
}

// Whatever bytes come, the connection ends when the client is done, and only
// whole, valid requests have an effect.
func FuzzConnection(f *testing.F) {
	for _, tail := range []string{"", "\x00", "null\n", `{"n":1,"do":"acquire","key":"a"}` + "\n"} {
		f.Add([]byte(hello + "\n" + `{"n":1,"do":"open","grace":0}` + "\n" + tail))
	}
	raw, err := base64.StdEncoding.DecodeString("FgMBAgABAAH8AwM=") // how a TLS client begins
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			svc := newService(t)
			s := newServer(t, svc, Options{})
			p := pipe(t, s)
			written := make(chan struct{})
			go func() {
				defer close(written)
				p.nc.Write(data)
				time.Sleep(2 * helloTimeout) // virtual: the server may want more
				p.nc.Close()
			}()
			for {
				line, err := p.in.ReadString('\n')
				if err != nil {
					break
				}
				if !json.Valid([]byte(line)) {
					panic(fmt.Sprintf("%q was answered with %q", data, line))
				}
			}
			p.nc.Close()
			<-written
			time.Sleep(lease.MaxGrace)
			synctest.Wait()
			if st, err := svc.Stats(t.Context()); err != nil || st.Sessions != 0 || st.Waiters != 0 {
				t.Fatalf("%q left %d sessions and %d waiters, %v", data, st.Sessions, st.Waiters, err)
			}
		})
	})
}
