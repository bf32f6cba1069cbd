package hotcacheredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// askAll asks for so many keys at the same time, and gives the answers by the number of the key.
func askAll(t *testing.T, n *Node, keys int) []hotcache.Answer {
	t.Helper()
	answers := make([]hotcache.Answer, keys)
	var readers sync.WaitGroup
	for i := range keys {
		readers.Go(func() {
			var err error
			answers[i], err = n.Ask(t.Context(), hotcache.Ask{Key: fmt.Sprint("k", i)})
			if err != nil {
				t.Errorf("key %d: %v", i, err)
			}
		})
	}
	readers.Wait()
	return answers
}

// calls is how many scripts the server has run.
func calls(server *redistest.Server) (n int) {
	for line := range strings.Lines(server.Text("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			_, _ = fmt.Sscanf(rest, "%d", &n)
		}
	}
	return n
}

// Reads that come while another is under way look together: each gets what is under its key, by far fewer scripts.
func TestLookTogether(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{together: true})
	const keys, there = 200, 150
	var writers sync.WaitGroup
	for i := range there {
		writers.Go(func() { put(t, n, fmt.Sprint("k", i), hotcache.Version(i+1)) })
	}
	writers.Wait()
	for range 2 {
		server.Do("CONFIG", "RESETSTAT")
		for i, a := range askAll(t, n, keys) {
			switch {
			case i < there && (a.State != core.Hit || a.Item.Version != hotcache.Version(i+1) || a.Times.Hard <= 0 || a.Stamp.Generation == 0):
				t.Errorf("key %d: %+v, %+v", i, a, a.Item)
			case i >= there && a.State != core.Miss:
				t.Errorf("key %d, which is not there: %+v", i, a)
			}
		}
		if ran := calls(server); ran >= keys { // those that are not there look, and then ask
			t.Errorf("%d scripts for %d reads", ran, keys)
		}
	}
	// A key that holds something else, and one of a version that is not known yet, are errors of those who read them.
	server.Do("DEL", n.keys.item("k3"))
	server.Do("LPUSH", n.keys.item("k3"), "x")
	answers := make([]error, 8)
	var readers sync.WaitGroup
	for i := range answers {
		readers.Go(func() { answers[i] = second(n.Ask(t.Context(), hotcache.Ask{Key: fmt.Sprint("k", i)})) })
	}
	readers.Wait()
	for i, err := range answers {
		if (i == 3) != errors.Is(err, ErrForeign) {
			t.Errorf("key %d beside one that holds something else: %v", i, err)
		}
	}
}

// Items that are large are not brought all at once, and all the same.
func TestLookAtMuch(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{together: true})
	const keys = 12
	data := make([]byte, enoughLook/4)
	for i := range keys {
		key := fmt.Sprint("k", i)
		a, err := n.Ask(t.Context(), hotcache.Ask{Key: key, Min: hotcache.Fresh, Token: 7})
		if err != nil {
			t.Fatal(err)
		}
		f := hotcache.Fill{Key: key, Token: a.Token, Item: hotcache.Item{Version: hotcache.Version(i + 1), Data: data}, Times: good}
		if _, err := n.Fill(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	for i, a := range askAll(t, n, keys) {
		if a.State != core.Hit || a.Item.Version != hotcache.Version(i+1) || len(a.Item.Data) != len(data) {
			t.Errorf("key %d: state %d", i, a.State)
		}
	}
}

// Who gives up takes nothing from others, and nobody waits for a server that is silent, or for a node that is closed.
func TestLookEnds(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	put(t, n, "k", 1)
	server.Freeze()
	began := time.Now()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	first := make(chan error, 1)
	go func() { first <- second(n.Ask(short, hotcache.Ask{Key: "k"})) }()
	flying := func() bool { n.looks.mu.Lock(); defer n.looks.mu.Unlock(); return n.looks.flying }
	soon(t, "one is under way", flying)
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			if err := second(n.Ask(short, hotcache.Ask{Key: "k"})); err == nil {
				t.Error("a frozen server answered")
			}
		})
	}
	others.Wait()
	if err := <-first; err == nil {
		t.Error("a frozen server answered")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	server.Thaw()
	soon(t, "it answers", func() bool { return second(n.Ask(t.Context(), hotcache.Ask{Key: "k"})) == nil })
	server.Freeze()
	for range 4 {
		others.Go(func() {
			if err := second(n.Ask(t.Context(), hotcache.Ask{Key: "k"})); err == nil {
				t.Error("a node that was closed answered")
			}
		})
	}
	soon(t, "one is under way", flying)
	n.Close()
	others.Wait()
	server.Thaw()
}
