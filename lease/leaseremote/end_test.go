package leaseremote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// closed asks a session to close and returns what it was told.
func (u *user) closed() chan error {
	answer := make(chan error, 2)
	u.s.Close(func(err error) { answer <- err })
	return answer
}

// A goodbye releases at once, answers what waits, and can be repeated.
func TestGoodbye(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u, w := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
		u.ask(one("k")).ok()
		u.ask(lease.Request{ID: "kept", Keys: []string{"kept"}, Detach: true}).ok()
		next := w.ask(one("k"))
		own := u.ask(lease.Request{ID: "own", Keys: []string{"k"}})
		own.pending()
		for range 2 {
			if err := <-u.closed(); err != nil {
				t.Fatalf("close: %v", err)
			}
		}
		own.fails(lease.ErrClosed)
		next.ok()
		if n := len(b.holders("kept")); n != 1 {
			t.Fatalf("%d hold the detached lease, want 1", n)
		}
		u.ask(one("x")).fails(lease.ErrClosed)
		u.do(lease.Command{Verb: lease.Ping}).fails(lease.ErrClosed)
		u.s.Suspend()
	})
}

// A goodbye that cannot be said gives up after a second and says so; one that is
// said after a short cut succeeds.
func TestGoodbyeDuringCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{})
		u.ask(one("k")).ok()
		b.refuse(errors.New("cut off"))
		b.cut()
		time.Sleep(300 * time.Millisecond) // the pauses between attempts are short yet
		answer := u.closed()
		time.Sleep(100 * time.Millisecond)
		b.refuse(nil)
		if err := <-answer; err != nil {
			t.Fatalf("close: %v", err)
		}
		if n := len(b.holders("k")); n != 0 {
			t.Fatalf("%d holders after the goodbye", n)
		}

		u = open(t, v, lease.SessionOptions{})
		l := u.ask(one("k")).ok()
		b.once(drop, true, `"id-w"`)
		sent := u.ask(one("w"))
		sent.pending()
		b.refuse(errors.New("cut off"))
		b.cut()
		synctest.Wait()
		unsent := u.ask(one("z"))
		start := time.Now()
		if err := <-u.closed(); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("close: %v, want unavailable", err)
		}
		if d := time.Since(start); d != goodbyeWait {
			t.Fatalf("it took %v, want %v", d, goodbyeWait)
		}
		sent.fails(lease.ErrUnknown)
		unsent.fails(lease.ErrClosed)
		if got := b.holders("k"); len(got) != 1 || got[0] != l.Token() {
			t.Fatalf("holders %v: the grace is not over", got)
		}
		time.Sleep(lease.DefaultGrace)
		synctest.Wait()
		if n := len(b.holders("k")); n != 0 {
			t.Fatalf("%d holders after the grace", n)
		}
	})
}

// Closing the service takes about a second at most, whatever the broker does,
// ends everything, and is harmless the second time.
func TestCloseService(t *testing.T) {
	for name, trouble := range map[string]func(*broker){
		"sound":  func(*broker) {},
		"frozen": (*broker).freeze,
		"gone":   func(b *broker) { b.refuse(errors.New("gone")); b.cut() },
	} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			v := b.connect()
			u, w := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
			u.ask(one("k")).ok()
			wait := w.ask(one("k"))
			wait.pending()
			if _, err := v.Watch(t.Context(), lease.Query{}, func(lease.Event) {}); err != nil {
				t.Fatal(err)
			}
			trouble(b)
			synctest.Wait()
			listed := make(chan error, 1)
			if name != "sound" {
				go func() {
					_, err := v.List(context.Background(), lease.Query{})
					listed <- err
				}()
			} else {
				listed <- lease.ErrClosed
			}
			synctest.Wait()
			start := time.Now()
			for range 2 {
				if err := v.Close(); err != nil {
					t.Fatalf("%s: close: %v", name, err)
				}
			}
			if d := time.Since(start); d > goodbyeWait+100*time.Millisecond {
				t.Fatalf("%s: it took %v", name, d)
			}
			if err := <-listed; !errors.Is(err, lease.ErrClosed) {
				t.Fatalf("%s: list: %v", name, err)
			}
			if name == "sound" {
				wait.fails(lease.ErrClosed)
			} else {
				wait.fails(lease.ErrUnknown)
			}
			if _, err := v.Open(t.Context(), lease.SessionOptions{}); !errors.Is(err, lease.ErrClosed) {
				t.Fatalf("%s: open: %v", name, err)
			}
			if _, err := v.Stats(t.Context()); !errors.Is(err, lease.ErrClosed) {
				t.Fatalf("%s: stats: %v", name, err)
			}
		})
	}
}

// A suspended session is resumed by another process with what it held; one that
// another connection takes over does not take itself back.
func TestSuspendAndTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v, other := b.connect(), b.connect()
		u := open(t, v, lease.SessionOptions{Name: "u"})
		l := u.ask(lease.Request{ID: "x", Keys: []string{"a", "b"}, TTL: time.Minute}).ok()
		u.ask(lease.Request{ID: "y", Keys: []string{"c"}, TTL: lease.Forever}).ok()
		id := u.s.ID()
		u.s.Suspend()
		time.Sleep(2 * time.Second)
		second := open(t, other, lease.SessionOptions{Resume: id})
		got := second.s.Leases()
		if len(got) != 2 || second.s.ID() != id {
			t.Fatalf("resumed %q with %+v", second.s.ID(), got)
		}
		for _, g := range got {
			if g.ID == "x" && (len(g.Holds) != 2 || g.Holds[0] != l.Holds[0] || g.Deadline.After(l.Deadline)) {
				t.Fatalf("lease %+v was %+v", g, l)
			}
		}
		third := open(t, v, lease.SessionOptions{Resume: id})
		time.Sleep(20 * time.Second)
		if left := time.Until(third.s.Deadline()); left < time.Second {
			t.Fatalf("the deadline is %v ahead", left)
		}
		second.do(lease.Command{Verb: lease.Renew, ID: "x"}).fails(lease.ErrSessionLost)
		if d := second.s.Deadline(); d.After(time.Now()) {
			t.Fatalf("the session that was taken over looks good until %v", d)
		}
		third.do(lease.Command{Verb: lease.Renew, ID: "x"}).ok()
		if b.dials > 4 {
			t.Fatalf("%d connections: somebody fights for the session", b.dials)
		}
		if _, err := v.Open(t.Context(), lease.SessionOptions{Resume: "none"}); !errors.Is(err, lease.ErrSessionLost) {
			t.Fatalf("resume of nothing: %v", err)
		}
	})
}

// What cannot be a frame is refused here, by name, and costs nobody else
// anything.
func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{})
		keys := make([]string, lease.MaxKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("%02d%s", i, strings.Repeat("\x01", lease.MaxKeyLength-2))
		}
		wide := u.ask(lease.Request{Keys: keys}).fails(lease.ErrRefused)
		if !strings.Contains(wide.Error(), "MaxFrame") {
			t.Fatalf("refused with %v, want the limit by name", wide)
		}
		long := strings.Repeat("x", lease.MaxIDLength+1)
		for _, r := range []lease.Request{{}, {Keys: []string{""}}, {Keys: []string{"k"}, ID: long}, {Keys: []string{"\xff"}}} {
			u.ask(r).fails(lease.ErrRefused)
		}
		for _, c := range []lease.Command{
			{Verb: lease.Release}, {Verb: lease.Release, ID: long}, {Verb: lease.Renew, ID: "\xff"}, {Verb: lease.Cancel, Token: 5},
			{Verb: lease.Release, Token: lease.MaxToken}, {Verb: lease.Renew, ID: "x", TTL: -1}, {Verb: 99, ID: "x"},
		} {
			u.do(c).fails(lease.ErrRefused)
		}
		u.do(lease.Command{Verb: lease.Ping}).ok()
		if b.dials != 1 {
			t.Fatalf("%d connections, want 1: a refusal broke one", b.dials)
		}
	})
}

// More unanswered requests than a connection may have are refused by name.
func TestInFlightLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{Grace: time.Hour})
		b.freeze()
		rs := make([]*result, lease.MaxInFlight)
		for i := range rs {
			rs[i] = u.ask(lease.Request{Keys: []string{"k"}})
		}
		refused := 0
		for _, r := range rs {
			select {
			case <-r.done:
				if err := r.fails(lease.ErrRefused); !strings.Contains(err.Error(), "MaxInFlight") {
					t.Fatal(err)
				}
				refused++
			default:
			}
		}
		if refused != ownCalls {
			t.Fatalf("%d refused, want %d", refused, ownCalls)
		}
	})
}

// A peer that is no broker, or a broken one, is named and given up.
func TestStrangers(t *testing.T) {
	say := func(lines ...string) Options {
		return Options{Dial: func(context.Context) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				for _, line := range lines {
					buf := make([]byte, 4096)
					if _, err := server.Read(buf); err != nil {
						return
					}
					if _, err := server.Write([]byte(line)); err != nil {
						return
					}
				}
				<-time.After(time.Hour)
			}()
			return client, nil
		}}
	}
	hello := `{"latchkey":1,"features":[],"server":"x","durability":"memory","fencing":"clock"}` + "\n"
	for name, c := range map[string]struct {
		lines []string
		want  lease.Code
	}{
		"web server":  {[]string{"HTTP/1.1 400 Bad Request\r\n"}, lease.ErrProtocol},
		"version":     {[]string{`{"latchkey":2,"features":[]}` + "\n"}, lease.ErrProtocol},
		"full":        {[]string{`{"ok":false,"code":"refused","reason":"10000 connections (MaxConnections)"}` + "\n"}, lease.ErrRefused},
		"silent":      {nil, lease.ErrUnavailable},
		"endless":     {[]string{strings.Repeat("x", 2<<20)}, lease.ErrProtocol},
		"half a line": {[]string{hello[:20]}, lease.ErrUnavailable},
	} {
		bubble(t, func(t *testing.T) {
			v, err := Dial(t.Context(), name, say(c.lines...))
			if lease.CodeOf(err) != c.want {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if err == nil {
				v.Close()
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A broker whose answers make no sense is asked on new connections, with pauses,
// and a request that may be the reason is given up after a few of them.
func TestNonsense(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u, other := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
		b.decide(func(fromBroker bool, line string) verdict {
			if !fromBroker && strings.Contains(line, "poison") {
				return drop
			}
			return pass
		})
		r := u.ask(lease.Request{ID: "poison", Keys: []string{"k"}})
		r.pending()
		for range fouls {
			r.pending()
			u.s.(*session).mu.Lock()
			l := u.s.(*session).link
			u.s.(*session).mu.Unlock()
			l.fail(&lease.Error{Code: lease.ErrProtocol, Reason: "not JSON"})
			time.Sleep(2 * time.Second)
		}
		r.fails(lease.ErrUnknown)
		other.ask(lease.Request{Keys: []string{"k"}}).ok()
		u.ask(lease.Request{Keys: []string{"fine"}}).ok()
	})
}

// The real thing: TCP and a unix socket, addresses that are none, and nobody
// there.
func TestAddresses(t *testing.T) {
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer svc.Close()
	srv := tcpserve.New(svc, tcpserve.Options{})
	defer srv.Shutdown(context.Background())
	path := filepath.Join(t.TempDir(), "s")
	for network, target := range map[string]string{"tcp": "127.0.0.1:0", "unix": path} {
		ln, err := net.Listen(network, target)
		if err != nil {
			t.Fatal(err)
		}
		go srv.Serve(ln)
		addr := ln.Addr().String()
		if network == "unix" {
			addr = "unix:" + path
		}
		v, err := Dial(t.Context(), addr, Options{})
		if err != nil {
			t.Fatal(err)
		}
		u := open(t, v, lease.SessionOptions{})
		l := u.ask(lease.Request{Keys: []string{"k"}}).ok()
		u.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
		ln.Close()
		if _, err := Dial(t.Context(), addr, Options{}); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), addr) {
			t.Errorf("nobody at %s: %v", addr, err)
		}
	}
	for _, addr := range []string{"", "localhost", "unix:", ":", "a:b:c", "127.0.0.1:"} {
		if _, err := Dial(t.Context(), addr, Options{}); !errors.Is(err, lease.ErrRefused) {
			t.Errorf("address %q: %v, want a refusal", addr, err)
		}
	}
}
