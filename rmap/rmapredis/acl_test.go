package rmapredis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// TestDocumentedUsers tries the users of the guide on a server: the writer may do everything that a map does, the reader
// has a live copy and changes nothing, and no command is named that is not needed.
func TestDocumentedUsers(t *testing.T) {
	rules := documentedUsers(t)
	server := redistest.Start(t, redistest.Options{})
	for _, role := range []struct {
		name string
		does func(*acl) error
	}{{"writer", (*acl).writes}, {"reader", (*acl).reads}} {
		rule := rules[role.name]
		try := func(rule, name string, wait time.Duration) error {
			server.Do(append([]string{"ACL", "SETUSER", name, "reset"}, strings.Fields(rule)...)...)
			server.Do("FLUSHALL")
			server.Do("SCRIPT", "FLUSH")
			ctx, cancel := context.WithTimeout(t.Context(), aclPatience)
			defer cancel()
			return role.does(&acl{ctx: ctx, server: server, user: name, wait: wait})
		}
		if err := try(rule, role.name, aclPatience/2); err != nil {
			t.Fatalf("the %s: %v", role.name, err)
		}
		for i, word := range strings.Fields(rule) {
			if !strings.ContainsAny(word[:1], "+&~%") || word == "+ping" {
				continue // a PING that is refused is a sign of life too, and an entry in the server's log of refusals
			}
			if err := try(strings.Replace(rule, word, "", 1), fmt.Sprint(role.name, i), 200*time.Millisecond); err == nil {
				t.Errorf("the %s does as well without %s", role.name, word)
			} else {
				t.Logf("the %s without %s: %v", role.name, word, err)
			}
		}
	}
}

// aclPatience is how long one try may take on a busy machine.
const aclPatience = 20 * time.Second

// documentedUsers reads the rules of the users in the guide, without their names and the on.
func documentedUsers(t *testing.T) map[string]string {
	text, err := os.ReadFile("../../docs/rmap.md")
	if err != nil {
		t.Fatal(err)
	}
	// A line of the configuration that ends with a backslash goes on in the next one, for the reader of the guide alone.
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	rules := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^ACL SETUSER (writer|reader) (.*)$`).FindAllStringSubmatch(joined, -1) {
		rules[m[1]] = m[2]
	}
	if len(rules) != 2 {
		t.Fatalf("the guide has rules for %d users, want 2", len(rules))
	}
	return rules
}

// An acl is one try of a user.
type acl struct {
	ctx    context.Context
	server *redistest.Server
	user   string
	wait   time.Duration // how long a copy may take; where it is to fail it is brief
}

func (a *acl) open() (*rmapredis.Store, error) {
	u, err := url.Parse(a.server.URL())
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(a.user, "secret")
	return rmapredis.Open(a.ctx, u.String(), rmapredis.Options{Timeout: aclPatience, Pong: aclPatience})
}

// writes does all that a script can come to, and all that a reader does.
func (a *acl) writes() error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.Close()
	set := func(key string, v rmap.Value) rmap.Op { return rmap.Op{Do: rmap.DoSet, Key: key, Value: v} }
	brief := rmap.Op{Do: rmap.DoSet, Key: "brief", Value: rmap.Value{Kind: rmap.Plain}, TTL: time.Hour}
	sliding := &rmap.Lifetime{TTL: time.Hour, Sliding: true}
	for i, w := range []rmap.Write{
		{Ops: []rmap.Op{set("a", rmap.Value{Kind: rmap.Plain, Data: "text"})}, MaxEntries: 1},
		{Ops: []rmap.Op{set("a", rmap.Value{Kind: rmap.Plain, Data: "text"})}, MaxEntries: 1},
		{Ops: []rmap.Op{set("n", rmap.Value{Kind: rmap.Integer, Data: fmt.Sprint(math.MaxInt64 - 1)})}, MaxEntries: 2},
		{Ops: []rmap.Op{{Do: rmap.DoAdd, Key: "n", Delta: 1}}, WantOld: true},
		{If: []rmap.Condition{{Key: "a", Test: rmap.IsPresent}}, Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "a"}, brief}},
		{Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "brief"}}},
		{Ops: []rmap.Op{{Do: rmap.DoDestroy}}},
		{Ops: []rmap.Op{set("a", rmap.Value{Kind: rmap.Plain})}},
		{Ops: []rmap.Op{{Do: rmap.DoDestroy}}},
		{Ops: []rmap.Op{brief}, Lifetime: sliding},
		{Ops: []rmap.Op{{Do: rmap.DoClear}}, Lifetime: sliding},
	} {
		if _, err := s.Write(a.ctx, "written", w); err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
	}
	if key := "latchkey:map:{written}:log"; a.server.Int("PTTL", key) <= 0 {
		return errors.New("there is no log that ends")
	}
	return a.follow(s, func(op rmap.Op) error {
		_, err := s.Write(a.ctx, "read", rmap.Write{Ops: []rmap.Op{op}})
		return err
	})
}

// reads follows a map that somebody else writes.
func (a *acl) reads() error {
	s, err := a.open()
	if err != nil {
		return err
	}
	defer s.Close()
	other, err := rmapredis.Open(a.ctx, a.server.URL(), rmapredis.Options{})
	if err != nil {
		return err
	}
	defer other.Close()
	return a.follow(s, func(op rmap.Op) error {
		_, err := other.Write(a.ctx, "read", rmap.Write{Ops: []rmap.Op{op}})
		return err
	})
}

// follow has a copy of a map, in which entries come and end, and a log.
func (a *acl) follow(s *rmapredis.Store, write func(rmap.Op) error) error {
	value := rmap.Value{Kind: rmap.Plain, Data: "text"}
	if err := write(rmap.Op{Do: rmap.DoSet, Key: "stays", Value: value}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.wait)
	defer cancel()
	m, err := rmap.Join(ctx, s, "read", rmap.Options[string, string]{})
	if err != nil {
		return err
	}
	defer m.Close()
	before := m.Snapshot().Revision()
	if err := write(rmap.Op{Do: rmap.DoSet, Key: "ends", Value: value, TTL: time.Millisecond}); err != nil {
		return err
	}
	if changes, err := s.Since(ctx, "read", before); err != nil || len(changes) == 0 {
		return fmt.Errorf("changes of the log: %d, %w", len(changes), err)
	}
	// A copy that can be had from the log is not read as a whole.
	if err := s.Scan(ctx, "read", func([]rmap.Entry) error { return nil }); err != nil {
		return err
	}
	if err := m.Sync(ctx); err != nil {
		return err
	}
	for m.Len() != 1 && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	if got, err := m.Lookup("stays"); err != nil || got != "text" || m.Lag().State != rmap.Live {
		return fmt.Errorf("reads %q, %w, %+v", got, err, m.Lag())
	}
	return a.forget(s)
}

// forget ends the copy of one map, which must not disturb that of another.
func (a *acl) forget(s *rmapredis.Store) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.wait)
	defer cancel()
	m, err := rmap.Join(ctx, s, "other", rmap.Options[string, string]{})
	if err != nil {
		return err
	}
	m.Close()
	m, err = rmap.Join(ctx, s, "another", rmap.Options[string, string]{})
	if err != nil {
		return err
	}
	defer m.Close()
	subscribed := func() bool {
		return a.server.Do("PUBSUB", "NUMSUB", "latchkey:map:{other}:changes").([]any)[1] != int64(0)
	}
	for subscribed() && m.Stats().Losses == 0 && ctx.Err() == nil {
		<-time.After(time.Millisecond)
	}
	if subscribed() || m.Stats().Losses != 0 {
		return fmt.Errorf("the channel of a closed map is subscribed: %t; losses of another: %d", subscribed(), m.Stats().Losses)
	}
	return nil
}

// TestHalfAllowed lets users write who may do a part of what a write does. Whatever comes of that, copies show what the
// store has.
func TestHalfAllowed(t *testing.T) {
	rule := documentedUsers(t)["writer"]
	server := redistest.Start(t, redistest.Options{})
	join := func(user, name string) *rmap.Map[string, string] {
		t.Helper()
		u, err := url.Parse(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			u.User = url.UserPassword(user, "secret")
		}
		s, err := rmapredis.Open(t.Context(), u.String(), rmapredis.Options{Pong: aclPatience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		m, err := rmap.Join(t.Context(), s, name, rmap.Options[string, string]{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	for _, lacks := range []string{"+hset", "+hdel", "+zadd", "+zrem", "+unlink", "+pexpireat", "+persist", "+xadd"} {
		name := lacks[1:]
		server.Do(append([]string{"ACL", "SETUSER", name}, strings.Fields(strings.Replace(rule, lacks, "", 1))...)...)
		free, bound := join("", name), join(name, name)
		for i, write := range []func(*rmap.Map[string, string]) (rmap.Revision, error){
			func(m *rmap.Map[string, string]) (rmap.Revision, error) { return m.Delete(t.Context(), "a") },
			func(m *rmap.Map[string, string]) (rmap.Revision, error) {
				return m.Batch().Delete("a").SetTTL("b", "2", time.Hour).Set("c", "2").Write(t.Context())
			},
			func(m *rmap.Map[string, string]) (rmap.Revision, error) { return m.Set(t.Context(), "b", "3") },
			func(m *rmap.Map[string, string]) (rmap.Revision, error) { return m.Reset(t.Context()) },
			func(m *rmap.Map[string, string]) (rmap.Revision, error) { return m.Destroy(t.Context()) },
			func(m *rmap.Map[string, string]) (rmap.Revision, error) { return m.Set(t.Context(), "d", "4") },
		} {
			if _, err := free.Batch().Set("a", "1").SetTTL("b", "1", time.Hour).Write(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, failed := write(bound)
			if outcome := rmap.OutcomeOf(failed); lacks == "+hdel" && i == 0 && outcome != rmap.Unknown {
				t.Errorf("without %s: %v, want an unknown outcome", lacks, failed)
			}
			// What was broadcast and not stored may come while the first head is asked for; then the second one tells.
			for range 2 {
				if err := errors.Join(free.Sync(t.Context()), bound.Sync(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			want := maps.Collect(join("", name).All())
			if a, b := maps.Collect(free.All()), maps.Collect(bound.All()); !maps.Equal(a, want) || !maps.Equal(b, want) {
				t.Errorf("without %s, after write %d (%v): the copies are %v and %v, the store has %v", lacks, i, failed, a, b, want)
			}
		}
	}
}
