package rmapredis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// later is a store as a process of the next version of the format would have it.
func later(t *testing.T, url string) *Store { return open(t, url, Options{version: format + 1}) }

// A process that meets a newer format refuses to write, and does not misread.
func TestNewerFormat(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	old, next := open(t, server.URL(), Options{}), later(t, server.URL())
	f, feed := follow(t, old, "m")
	g, _ := follow(t, next, "m")
	write(t, old, "m", set("a", "1"))
	write(t, next, "m", set("a", "2"))
	f.until(t, "the newer message came", func() bool { return len(f.unreadable) == 1 })
	g.until(t, "both messages came", func() bool { return len(g.changes) == 2 })
	if !errors.Is(f.unreadable[0], rmap.ErrFormat) || len(f.changes) != 1 {
		t.Errorf("told %v after %d changes", f.unreadable, len(f.changes))
	}
	was := server.Text("DUMP", old.hash("m"))
	writes := map[string]rmap.Write{"set": set("a", "3"), "reset": {Ops: []rmap.Op{{Do: rmap.DoClear}}},
		"conditional": {If: []rmap.Condition{{Key: "a", Test: rmap.IsPresent}}, Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "a"}}}}
	for name, w := range writes {
		if _, err := old.Write(t.Context(), "m", w); !errors.Is(err, rmap.ErrFormat) || errors.Is(err, rmap.ErrUnknown) {
			t.Errorf("%s: %v, want ErrFormat", name, err)
		}
	}
	if _, err := Run(t.Context(), old, NewScript("map.clear()"), "m", nil, nil); !errors.Is(err, rmap.ErrFormat) {
		t.Errorf("a script: %v, want ErrFormat", err)
	}
	if _, err := feed.Head(t.Context()); !errors.Is(err, rmap.ErrFormat) {
		t.Errorf("head: %v, want ErrFormat", err)
	}
	if err := old.Scan(t.Context(), "m", func([]rmap.Entry) error { return nil }); !errors.Is(err, rmap.ErrFormat) {
		t.Errorf("scan: %v, want ErrFormat", err)
	}
	if server.Text("DUMP", old.hash("m")) != was {
		t.Error("the newer map was changed")
	}
	server.Do("PUBLISH", old.channel("m"), "0 of an older version")
	server.Do("PUBLISH", old.channel("m"), "set:noise")
	f.until(t, "noise came", func() bool { return len(f.unreadable) == 3 })
	for _, err := range f.unreadable[1:] {
		if errors.Is(err, rmap.ErrFormat) || !errors.Is(err, rmap.ErrForeign) {
			t.Errorf("noise is told as %v", err)
		}
	}
}

// A script of another package changes the map and a key of its own in one step.
func TestScriptsOfOthers(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	f, feed := follow(t, s, "m")
	move := NewScript(`
local entry = map.get(ARGV[1])
if not entry then
  return 'nothing to move'
end
redis.call('RPUSH', KEYS[1], entry.value)
map.delete(ARGV[1])
map.set('moved', 'i1', map.now + tonumber(ARGV[2]))
return 'moved'`)
	done, err := Run(t.Context(), s, move, "m", []string{"queue"}, []string{"a", "60000"})
	if err != nil || done.Changed || !done.Revision.IsZero() {
		t.Fatalf("%+v, %v; want no change", done, err)
	}
	if text, _ := done.Reply.ToString(); text != "nothing to move" {
		t.Errorf("reply %q", text)
	}
	write(t, s, "m", set("a", "1"))
	done, err = Run(t.Context(), s, move, "m", []string{"queue"}, []string{"a", "60000"})
	if err != nil || !done.Changed || done.Revision.Number != 2 {
		t.Fatalf("%+v, %v; want change 2", done, err)
	}
	head, err := feed.Head(t.Context())
	if err != nil || head.Revision != done.Revision || len(f.changes) != 2 || len(f.changes[1].Steps) != 2 {
		t.Errorf("head %+v, %v; told %+v", head, err, f.changes)
	}
	if got := contents(t, s, "m"); len(got) != 1 || got["moved"] != "i1" || server.Text("LPOP", "queue") != "p1" {
		t.Errorf("the map has %q", got)
	}
	fails := map[string]error{"map.set('', 'px', 0)": rmap.ErrInvalid, "map.set('k', 'x', 0)": rmap.ErrInvalid,
		"map.set('k', 'p' .. string.rep('x', 1048577), 0)": rmap.ErrTooLarge, "map.clear() error('oops')": rmap.ErrUnknown}
	for body, want := range fails {
		if _, err := Run(t.Context(), s, NewScript(body), "m", nil, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
	if after, err := feed.Head(t.Context()); err != nil || after.Revision != head.Revision {
		t.Errorf("a failed script moved the map to %+v, %v", after, err)
	}
	done, err = Run(t.Context(), s, NewScript("map.destroy()"), "m", nil, nil)
	if err != nil || !done.Changed || len(contents(t, s, "m")) != 0 {
		t.Errorf("destroy: %+v, %v", done, err)
	}
}

// The list of deadlines can be lost, to eviction or to somebody's hand; what an entry says of its own still counts.
func TestLostListOfDeadlines(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	w := set("k", "v")
	w.Ops[0].TTL = time.Millisecond
	write(t, s, "m", w)
	server.Do("DEL", s.due("m"))
	absent := rmap.Write{If: []rmap.Condition{{Key: "k", Test: rmap.IsAbsent}}}
	for deadline := time.Now().Add(20 * time.Second); ; {
		if r := write(t, s, "m", absent); r.Conflict == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the entry does not end")
		}
	}
	r := write(t, s, "m", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoExpire, Key: "k"}}})
	if !r.Changed || len(contents(t, s, "m")) != 0 {
		t.Errorf("%+v: an entry past its deadline was not removed", r)
	}
	// A list of entries that are not there, or have no deadline, is mended on the way.
	write(t, s, "m", set("b", "1"))
	w.Ops[0].Key, w.Ops[0].TTL = "a", time.Hour
	write(t, s, "m", w)
	server.Do("ZADD", s.due("m"), "1", "b", "1", "none")
	write(t, s, "m", set("c", "1"))
	if n := server.Int("ZCARD", s.due("m")); n != 1 || len(contents(t, s, "m")) != 3 {
		t.Errorf("%d deadlines are left, want 1, and the map has %q", n, contents(t, s, "m"))
	}
}

// The log may be ahead of a map that was set back, in which case it begins anew.
func TestLogAfterARollback(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	r := write(t, s, "m", set("a", "1"))
	dump := server.Text("DUMP", s.hash("m"))
	for range 3 {
		write(t, s, "m", set("a", "2"))
	}
	server.Do("RESTORE", s.hash("m"), "0", dump, "REPLACE")
	write(t, s, "m", set("b", "1"))
	write(t, s, "m", set("c", "1"))
	changes, err := s.Since(t.Context(), "m", r.Revision)
	if err != nil || len(changes) > 2 || (len(changes) > 0 && changes[0].Steps[0].Entry.Key == "a") {
		t.Errorf("the log tells %+v, %v", changes, err)
	}
	big := write(t, s, "m", set("big", strings.Repeat("x", 10_000)))
	if server.Int("EXISTS", s.log("m")) != 0 {
		t.Error("a change that is not logged leaves a gap in the log")
	}
	write(t, s, "m", set("d", "1"))
	if changes, err := s.Since(t.Context(), "m", big.Revision); err != nil || len(changes) != 1 {
		t.Errorf("the log tells %+v, %v", changes, err)
	}
	if ttl := server.Int("PTTL", s.log("m")); ttl <= 0 || ttl > 300_000 {
		t.Errorf("the log lives for %d ms", ttl)
	}
}
