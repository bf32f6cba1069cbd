package rmapredis

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// A write that the server refuses before it begins was not applied, and says so.
func TestRefusedWritesAreNotApplied(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(server *redistest.Server)
		says string
	}{
		{"memory", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") }, "OOM"},
		{"replica", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") }, "READONLY"},
		{"replicas", func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") }, "NOREPLICAS"},
		{"channel", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", "resetchannels", "&other") }, "can't publish"},
		{"keys", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", "resetkeys", "~other") }, "NOPERM"},
		{"scripts", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "app", "-@scripting") }, "NOPERM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{Users: []string{"app on >secret ~* &* +@all"}})
			s := open(t, strings.Replace(server.URL(), "redis://", "redis://app:secret@", 1), Options{})
			write(t, s, "m", set("a", "1"))
			before := server.Do("HGETALL", s.hash("m"))
			tt.make(server)
			for _, w := range []rmap.Write{set("a", "2"), {Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "a"}}}} {
				_, err := s.Write(t.Context(), "m", w)
				if !errors.Is(err, rmap.ErrUnavailable) || errors.Is(err, rmap.ErrUnknown) || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%v, want ErrUnavailable with %s", err, tt.says)
				}
			}
			if after := server.Do("HGETALL", s.hash("m")); !equalReplies(before, after) {
				t.Errorf("%v became %v", before, after)
			}
		})
	}
}

func equalReplies(a, b any) bool {
	x, y := pairs(a), pairs(b)
	return len(x) > 0 && maps.Equal(x, y)
}

func pairs(reply any) map[string]string {
	list, _ := reply.([]any)
	out := make(map[string]string)
	for i := 0; i+1 < len(list); i += 2 {
		out[list[i].(string)] = list[i+1].(string)
	}
	return out
}

func TestNothingThereIsUnavailable(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	write(t, s, "m", set("a", "1"))
	server.Kill()
	// The first may find a connection of which nobody knows yet that it has ended.
	_, err := s.Write(t.Context(), "m", set("a", "2"))
	if !errors.Is(err, rmap.ErrUnknown) && !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("the first write: %v", err)
	}
	_, err = s.Write(t.Context(), "m", set("a", "2"))
	if !errors.Is(err, rmap.ErrUnavailable) || errors.Is(err, rmap.ErrUnknown) {
		t.Errorf("the second write: %v, want ErrUnavailable", err)
	}
	if err := s.Scan(t.Context(), "m", nil); !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("a scan: %v, want ErrUnavailable", err)
	}
	if _, err := s.Since(t.Context(), "m", rmap.Revision{Generation: 1, Number: 1, Nonce: 1}); !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("since: %v, want ErrUnavailable", err)
	}
	server.Restart()
	if r := write(t, s, "m", set("a", "3")); r.Revision.Number != 1 {
		t.Errorf("after a restart without data the write made %v", r.Revision)
	}
}

// What was on its way when the connection or the context ended is unknown, and never done twice.
func TestInFlightIsUnknown(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	relay := redistest.NewRelay(t, server.Addr())
	add := rmap.Write{Ops: []rmap.Op{{Do: rmap.DoAdd, Key: "n", Delta: 1}}}
	applied := func() string { return server.Text("HGET", "latchkey:map:{m}", "n") }
	for i, cut := range []func(cancel context.CancelFunc){
		func(context.CancelFunc) { relay.Sever() },
		func(cancel context.CancelFunc) { cancel() },
	} {
		s := open(t, "redis://"+relay.Addr(), Options{})
		write(t, s, "other", add) // the server knows the script
		relay.Freeze(redistest.Replies)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { _, err := s.Write(ctx, "m", add); done <- err }()
		for deadline := time.Now().Add(20 * time.Second); !strings.HasSuffix(applied(), "i"+strconv.Itoa(i+1)); {
			if time.Now().After(deadline) {
				t.Fatal("the write did not get through")
			}
		}
		cut(cancel)
		if err := <-done; !errors.Is(err, rmap.ErrUnknown) {
			t.Errorf("cut %d: %v, want ErrUnknown", i, err)
		}
		cancel()
		relay.Thaw()
		if got := applied(); !strings.HasSuffix(got, "i"+strconv.Itoa(i+1)) {
			t.Errorf("cut %d: the map has %q: the write was done again", i, got)
		}
	}
}

func TestTimeLimits(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{Timeout: 200 * time.Millisecond, Pong: 200 * time.Millisecond})
	_, feed := follow(t, s, "m")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Write(ended, "m", set("a", "1")); !errors.Is(err, context.Canceled) || errors.Is(err, rmap.ErrUnknown) {
		t.Errorf("a write that was not begun: %v", err)
	}
	server.Freeze()
	began := time.Now()
	if _, err := s.Write(t.Context(), "m", set("a", "1")); !errors.Is(err, rmap.ErrUnknown) {
		t.Errorf("a write without an answer: %v, want ErrUnknown", err)
	}
	if err := s.Scan(t.Context(), "m", nil); !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("a scan without an answer: %v, want ErrUnavailable", err)
	}
	if _, err := feed.Head(t.Context()); !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("a head without an answer: %v, want ErrUnavailable", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("all that took %v", took)
	}
	server.Thaw()
}

func TestClosedStore(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	f, feed := follow(t, s, "m")
	s.Close()
	s.Close()
	_, err1 := s.Write(t.Context(), "m", set("a", "1"))
	_, err2 := feed.Head(t.Context())
	_, err3 := s.Follow("m", f)
	err4 := s.Scan(t.Context(), "m", nil)
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, rmap.ErrClosed) {
			t.Errorf("call %d: %v, want ErrClosed", i+1, err)
		}
	}
	feed.Close()
	if f.downs != 0 {
		t.Error("the follower was told that it is down")
	}
}

// What somebody else keeps under the name of a map is left alone.
func TestForeignDataIsRefused(t *testing.T) {
	for name, commands := range map[string][]string{
		"string": {"SET", "latchkey:map:{m}", "x"}, "hash": {"HSET", "latchkey:map:{m}", "k", "v"},
		"header": {"HSET", "latchkey:map:{m}", "", "hello"}, "due": {"SET", "latchkey:map:{m}:due", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{})
			s := open(t, server.URL(), Options{})
			_, feed := follow(t, s, "m")
			if name == "due" {
				write(t, s, "m", set("a", "1"))
				server.Do("DEL", "latchkey:map:{m}:due")
			}
			server.Do(commands...)
			was := server.Text("DUMP", commands[1])
			ops := []rmap.Op{{Do: rmap.DoSet, Key: "k", Value: plain("1"), TTL: time.Hour}}
			for _, w := range []rmap.Write{{Ops: ops}, {WantOld: true, Ops: ops}} {
				if _, err := s.Write(t.Context(), "m", w); !errors.Is(err, rmap.ErrForeign) {
					t.Errorf("write: %v, want ErrForeign", err)
				}
			}
			if _, err := feed.Head(t.Context()); name != "due" && !errors.Is(err, rmap.ErrForeign) {
				t.Errorf("head: %v, want ErrForeign", err)
			}
			err := s.Scan(t.Context(), "m", func([]rmap.Entry) error { return nil })
			if name != "due" && !errors.Is(err, rmap.ErrForeign) {
				t.Errorf("scan: %v, want ErrForeign", err)
			}
			if server.Text("DUMP", commands[1]) != was {
				t.Error("it was changed")
			}
		})
	}
}

// Stores over TLS, over a unix socket, in another database, and over a client of the caller's.
func TestWaysToConnect(t *testing.T) {
	secure := redistest.Start(t, redistest.Options{TLS: true, Password: "p@ss"})
	if _, err := Open(t.Context(), secure.URL(), Options{}); !errors.Is(err, rmap.ErrUnavailable) {
		t.Errorf("a certificate that nobody knows: %v, want ErrUnavailable", err)
	}
	option, err := rueidis.ParseURL(secure.URL())
	if err != nil {
		t.Fatal(err)
	}
	option.TLSConfig, option.DisableCache = secure.TLSConfig(), true
	option.Dialer = net.Dialer{Timeout: 5 * time.Second}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	over, err := New(client, Options{Prefix: "app:"})
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	exercise := func(s *Store) {
		t.Helper()
		f, _ := follow(t, s, "m")
		write(t, s, "m", set("a", "1"))
		f.until(t, "the change came", func() bool { return len(f.changes) == 1 })
	}
	exercise(over)
	trusting, err := Open(t.Context(), secure.URL(), Options{TLS: secure.TLSConfig()})
	if err != nil {
		t.Fatalf("with certificates of its own: %v", err)
	}
	defer trusting.Close()
	exercise(trusting)
	if _, err := Open(t.Context(), "redis://"+secure.Addr(), Options{TLS: secure.TLSConfig()}); !errors.Is(err, rmap.ErrInvalid) {
		t.Errorf("TLS with a URL without: %v, want ErrInvalid", err)
	}
	if secure.Int("EXISTS", "app:{m}") != 1 {
		t.Error("the map is not under its prefix")
	}
	over.Close()
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("the caller's client ended with the store: %v", err)
	}
	server := redistest.Start(t, redistest.Options{})
	exercise(open(t, "unix://"+server.Unix()+"?db=2", Options{}))
	exercise(open(t, server.URL()+"/3", Options{}))
	if _, err := Open(t.Context(), strings.Replace(server.URL(), "//", "//u:wrong@", 1), Options{}); !errors.Is(err, rmap.ErrUnavailable) ||
		!strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v, want ErrUnavailable with the server's reason", err)
	}
	cluster := redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	if _, err := Open(t.Context(), cluster.URL(), Options{}); !errors.Is(err, rmap.ErrInvalid) {
		t.Errorf("a cluster: %v, want ErrInvalid", err)
	}
}
