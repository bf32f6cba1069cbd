//go:build unix

package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRelayPassesOn(t *testing.T) {
	s := Start(t, Options{})
	for _, target := range []string{s.Addr(), s.Unix()} {
		r := NewRelay(t, target)
		p := dial(t, r.Addr())
		big := strings.Repeat("x", 60_000) // an inline command may not be longer
		for range 20 {
			p.send("ECHO " + big)
		}
		for range 20 {
			p.wants("$60000")
			p.wants(big)
		}
		requests, replies := r.Bytes()
		if want := int64(20 * (len("ECHO \r\n") + 60_000)); requests != want {
			t.Errorf("%d bytes of requests, want %d", requests, want)
		}
		if want := int64(20 * (len("$60000\r\n\r\n") + 60_000)); replies != want {
			t.Errorf("%d bytes of replies, want %d", replies, want)
		}
		if r.Conns() != 1 || r.Accepted() != 1 {
			t.Errorf("%d connections of %d, want 1 of 1", r.Conns(), r.Accepted())
		}
		p.conn.Close()
		eventually(t, "the link has ended with its client", func() bool { return r.Conns() == 0 })
	}
}

func TestCutAndRestore(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p, straight := dial(t, r.Addr()), dial(t, s.Addr())
	p.send("PING")
	p.wants("+PONG")
	addr := r.Addr()
	r.Cut()
	r.Cut()
	p.wantsEnd()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("a relay that is cut takes a connection")
	}
	if got := r.Conns(); got != 0 {
		t.Errorf("%d connections, want 0", got)
	}
	straight.send("PING")
	straight.wants("+PONG")
	r.Restore()
	r.Restore()
	again := dial(t, addr)
	again.send("PING")
	again.wants("+PONG")
}

func TestSever(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	p.send("PING")
	p.wants("+PONG")
	r.Sever()
	p.wantsEnd()
	again := dial(t, r.Addr())
	again.send("PING")
	again.wants("+PONG")
	if r.Accepted() != 2 {
		t.Errorf("%d connections taken, want 2", r.Accepted())
	}
}

func TestRelayFreezes(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	p.send("INCR n")
	p.wants(":1")

	r.Freeze(Both)
	p.send("INCR n")
	late := dial(t, r.Addr())
	late.send("PING")
	p.wantsSilence()
	late.wantsSilence()
	if got := s.Text("GET", "n"); got != "1" {
		t.Errorf("n is %s, want 1: a request went through", got)
	}
	r.Thaw()
	p.wants(":2")
	late.wants("+PONG")

	r.Freeze(Replies)
	p.send("INCR n")
	eventually(t, "the request is through", func() bool { return s.Text("GET", "n") == "3" })
	p.wantsSilence()
	r.Freeze(Requests)
	p.send("INCR n")
	r.Thaw()
	p.wants(":3")
	p.wants(":4")

	r.Freeze(Requests)
	p.send("INCR n")
	p.wantsSilence()
	if got := s.Text("GET", "n"); got != "4" {
		t.Errorf("n is %s, want 4: a request went through", got)
	}
	r.Thaw()
	p.wants(":5")
}

// Not a byte moves from the moment at which Freeze has returned, whatever was on its
// way; and all of it comes afterwards, in order.
func TestFreezeIsAtOnce(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	const rounds, each = 20, 50
	text := strings.Repeat("x", 10_000)
	for range rounds {
		for range each {
			p.send("ECHO " + text)
		}
		r.Freeze(Both)
		a, b := r.Bytes()
		p.send("ECHO " + text)
		if _, err := s.Try("PING"); err != nil {
			t.Fatal(err)
		}
		if c, d := r.Bytes(); a != c || b != d {
			t.Fatalf("%d and %d bytes became %d and %d though all is frozen", a, b, c, d)
		}
		r.Thaw()
		for range each + 1 {
			p.wants("$10000")
			p.wants(text)
		}
	}
}

// A frozen relay does not swallow what the server sends: the server's buffer for the
// client overflows, and the server cuts it off.
func TestFreezeFillsTheBuffersOfTheServer(t *testing.T) {
	s := Start(t, Options{})
	s.Do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 1mb 1")
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	p.subscribes("news")
	r.Freeze(Replies)
	text := strings.Repeat("x", 500_000)
	eventually(t, "the server has cut the slow client off", func() bool {
		s.Do("PUBLISH", "news", text)
		return len(s.Clients()) == 0
	})
	r.Thaw()
	for {
		if _, err := p.reads(patience); err != nil {
			break
		}
	}
}

func TestDropReplies(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	r.DropReplies(true)
	p.send("INCR n")
	eventually(t, "the request is through", func() bool { return s.Text("GET", "n") == "1" })
	p.wantsSilence()
	r.DropReplies(false)
	p.send("INCR n")
	p.wants(":2")
}

func TestDelay(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	const delay = 50 * time.Millisecond
	r.Delay(delay)
	began := time.Now()
	for range 100 {
		p.send("INCR n")
	}
	p.wants(":1")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("a round trip took %v, want at least %v", took, 2*delay)
	}
	// What is sent later with less delay must not overtake.
	r.Delay(0)
	p.send("INCR n")
	for i := range 100 {
		p.wants(":" + strconv.Itoa(i+2))
	}
}

func TestRelayBeforeAServerThatIsAway(t *testing.T) {
	s := Start(t, Options{})
	r := NewRelay(t, s.Addr())
	p := dial(t, r.Addr())
	p.send("PING")
	p.wants("+PONG")
	s.Kill()
	p.wantsEnd()
	dial(t, r.Addr()).wantsEnd()
	s.Restart()
	again := dial(t, r.Addr())
	again.send("PING")
	again.wants("+PONG")
}

// A relay ends whatever it is doing when its test ends.
func TestRelayEndsWithItsTest(t *testing.T) {
	s := Start(t, Options{})
	for _, do := range []func(*Relay){
		func(r *Relay) { r.Freeze(Both) },
		func(r *Relay) { r.Freeze(Replies) },
		func(r *Relay) { r.Delay(time.Hour) },
		func(r *Relay) { r.Cut() },
		func(r *Relay) { s.Freeze() },
	} {
		var addr string
		t.Run("the test", func(t *testing.T) {
			r := NewRelay(t, s.Addr())
			addr = r.Addr()
			p := dial(t, addr)
			p.send("PING")
			p.wants("+PONG")
			do(r)
			for range 100 {
				if _, err := p.conn.Write([]byte("PING\r\n")); err != nil {
					break
				}
			}
		})
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Error("the relay still listens")
		}
	}
}
