package hotcacheredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// documentedUser reads the rules of the user in the guide, without its name.
func documentedUser(t *testing.T) []string {
	text, err := os.ReadFile("../../docs/hotcache.md")
	if err != nil {
		t.Fatal(err)
	}
	// A line that ends with a backslash goes on in the next one, for the reader of the guide alone.
	joined := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(string(text), "")
	m := regexp.MustCompile(`(?m)^ACL SETUSER cache (.*)$`).FindStringSubmatch(joined)
	if m == nil {
		t.Fatal("the guide has no rules for a user")
	}
	return strings.Fields(m[1])
}

// TestPermissions tries the user of the guide: it may do everything, and something is missing without one of its rules.
func TestPermissions(t *testing.T) {
	rules := documentedUser(t)
	server := redistest.Start(t, redistest.Options{})
	if err := asUser(t, server, rules); err != nil {
		t.Fatal(err)
	}
	for i, rule := range rules[2:] { // after "on" and the password
		if rule == "+ping" {
			continue // a PING that is refused is a sign of life too, and an entry in the server's log of refusals
		}
		left := append(append([]string(nil), rules[:2+i]...), rules[3+i:]...)
		if err := asUser(t, server, left); err == nil {
			t.Errorf("it does as well without %s", rule)
		}
	}
}

// aclRules have floors turned soon.
var aclRules = hotcache.Rules{FloorTTL: 60 * time.Millisecond}

// asUser does all that a node can come to.
func asUser(t *testing.T, server *redistest.Server, rules []string) error {
	server.Do(append([]string{"ACL", "SETUSER", "cache", "reset"}, rules...)...)
	server.Do("FLUSHALL")
	server.Do("SCRIPT", "FLUSH")
	n, err := Open(t.Context(), strings.Replace(server.URL(), "//", "//cache:secret@", 1), Options{Rules: aclRules})
	if err != nil {
		return err
	}
	defer n.Close()
	l := &listener{news: make(chan struct{}, 1)}
	f, err := n.Follow("me", l)
	if err != nil {
		return err
	}
	defer f.Close()
	l.until(t, "it stands or is refused", func() bool { return l.up || l.downs > 0 })
	if l.look(func() { err = l.why }); err != nil {
		return err
	}
	if err := everyCall(t.Context(), n, f); err != nil {
		return err
	}
	// The floors come to be turned, which is seen when there is an older half.
	for begin := time.Now(); server.Int("EXISTS", n.keys.former()) == 0; {
		if _, _, err := n.Invalidate(t.Context(), "k", 9, ""); err != nil {
			return err
		}
		if time.Since(begin) > 20*time.Second {
			return errors.New("the floors are not turned")
		}
	}
	return farewells(t.Context(), server, n, f)
}

// everyCall has each script run, and what it does differently at times.
func everyCall(ctx context.Context, n *Node, f hotcache.Feed) error {
	ask := func(key string, token hotcache.Token, want core.State) error {
		a, err := n.Ask(ctx, hotcache.Ask{Key: key, Token: token})
		if err == nil && a.State != want {
			err = fmt.Errorf("asked for %q: state %d, want %d", key, a.State, want)
		}
		return err
	}
	fill := func(token hotcache.Token, times hotcache.Times) error {
		r, err := n.Fill(ctx, hotcache.Fill{Key: "k", Token: token, Item: hotcache.Item{Version: 1}, Times: times})
		if err == nil && r.Refusal != core.Stored {
			err = fmt.Errorf("refused: %d", r.Refusal)
		}
		return err
	}
	for i, step := range []func() error{
		func() error { return second(f.Beat(ctx, time.Second)) },
		func() error { return ask("k", 1, core.Lease) },
		func() error { return ask("k", 2, core.Busy) },
		func() error { return second(n.Renew(ctx, "k", 1)) },
		func() error { return fill(1, good) },
		func() error { return ask("k", 3, core.Hit) },
		func() error { return ask("k", 0, core.Hit) },
		func() error { _, _, err := n.Invalidate(ctx, "k", 2, ""); return err },
		func() error { return ask("j", 4, core.Lease) },
		func() error { return n.Fail(ctx, "j", 4, "why", time.Minute) },
		func() error { return ask("j", 5, core.Failed) },
		func() error { return n.PutCopy(ctx, "k", hotcache.Copy{Times: good}) },
		func() error { return second(n.GetCopy(ctx, "k")) },
		func() error { return f.Tell(ctx, "me", "hello") },
		func() error { return second(f.Beat(ctx, time.Second)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// farewells ends the feed, and looks whether the server knows it.
func farewells(ctx context.Context, server *redistest.Server, n *Node, f hotcache.Feed) error {
	f.Close()
	if server.Do("ZSCORE", n.keys.members(), "me") != nil {
		return errors.New("a member that has closed its feed is still on the list")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for server.Do("PUBSUB", "NUMSUB", n.keys.feed()).([]any)[1] != int64(0) {
		if ctx.Err() != nil {
			return errors.New("the channel of a closed feed is subscribed")
		}
		<-time.After(time.Millisecond)
	}
	return nil
}
