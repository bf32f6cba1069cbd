package rmaptest

import (
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// limits checks that what is too large, or no sense at all, is refused by name before anything is written.
func limits() []test {
	return []test{
		{"MaxEntries", maxEntries},
		{"MaxEntriesCountsWhatIsLeft", maxEntriesLeft},
		{"MaxEntriesAndDeadlines", maxEntriesExpired},
		{"Sizes", sizes},
		{"Invalid", invalid},
		{"Names", names},
	}
}

func atMost(n int, ops ...rmap.Op) rmap.Write { return rmap.Write{Ops: ops, MaxEntries: n} }

func maxEntries(e *env) {
	e.refuse(atMost(1, set("a", "1"), set("b", "2")), rmap.ErrTooLarge)
	e.change(atMost(2, set("a", "1"), set("b", "2")))
	for _, op := range []rmap.Op{set("c", "3"), add("c", 3), app("c", "3"), uniq("c", "3"), lasting(long, set("c", "3"))} {
		e.refuse(atMost(2, op), rmap.ErrTooLarge)
	}
	e.change(atMost(2, set("a", "9")))
	e.change(atMost(0, set("c", "3")))
	e.refuse(atMost(3, set("c", "4"), set("d", "4")), rmap.ErrTooLarge)
}

func maxEntriesLeft(e *env) {
	e.change(atMost(2, set("a", "1"), set("b", "2")))
	e.change(atMost(2, set("c", "3"), del("a")))
	e.change(atMost(2, reset(), set("x", "1"), set("y", "2")))
	e.refuse(atMost(2, set("x", "1"), reset(), set("1", ""), set("2", ""), set("3", "")), rmap.ErrTooLarge)
	e.change(atMost(2, set("tmp", ""), del("tmp")))
	e.change(atMost(2, destroy(), set("1", ""), set("2", "")))
	e.has(map[string]rmap.Value{"1": plain(""), "2": plain("")})
	e.same(atMost(2, del("nothing")))
}

func maxEntriesExpired(e *env) {
	c := e.change(atMost(2, lasting(short, set("a", "1")), set("b", "2")))
	e.reach(c.Now + short.Milliseconds())
	e.change(atMost(2, set("c", "3")))
	e.has(map[string]rmap.Value{"b": plain("2"), "c": plain("3")})
}

func sizes(e *env) {
	key, data := strings.Repeat("k", rmap.MaxKey), strings.Repeat("v", rmap.MaxValue)
	e.change(write(set(key, "v"), set("k", data)))
	e.has(map[string]rmap.Value{key: plain("v"), "k": plain(data)})
	var many []rmap.Op
	for i := range rmap.MaxOps + 1 {
		many = append(many, set(fmt.Sprint(i), ""))
	}
	for what, w := range map[string]rmap.Write{
		"key":               write(set(key+"k", "v")),
		"key of a delete":   write(del(key + "k")),
		"key of a test":     given(absent(key+"k"), set("x", "y")),
		"value":             write(set("k", data+"v")),
		"value of a test":   given(value("k", plain(data+"v")), set("k", "w")),
		"item":              write(app("l", data+"v")),
		"items":             write(app("l", data, "v")),
		"operations":        write(many...),
		"with conditions":   {If: []rmap.Condition{absent("q")}, Ops: many[1:]},
		"the write":         write(set("1", data), set("2", data), set("3", data), set("4", data)),
		"a list as a value": write(put("l", list(data))),
	} {
		e.Logf("%s over its limit", what)
		e.refuse(w, rmap.ErrTooLarge)
	}
	e.change(write(del(key), del("k")))
}

func invalid(e *env) {
	e.change(write(set("k", "v")))
	for what, w := range map[string]rmap.Write{
		"empty key":          write(set("", "v")),
		"empty key, delete":  write(del("")),
		"empty key, add":     write(add("", 1)),
		"empty key, append":  write(app("", "x")),
		"empty key, expire":  write(expire("")),
		"empty key, test":    given(absent(""), set("k", "w")),
		"no action":          write(rmap.Op{Key: "k"}),
		"unknown action":     write(rmap.Op{Do: 'z', Key: "k"}),
		"no test":            given(rmap.Condition{Key: "k"}, set("k", "w")),
		"unknown test":       given(rmap.Condition{Key: "k", Test: 99}, set("k", "w")),
		"no kind":            write(put("k", rmap.Value{Data: "x"})),
		"unknown kind":       write(put("k", rmap.Value{Kind: 'z', Data: "x"})),
		"negative ttl":       write(lasting(-time.Second, set("k", "w"))),
		"tiny ttl":           write(lasting(time.Microsecond, set("k", "w"))),
		"endless ttl":        write(lasting(rmap.MaxTTL+time.Millisecond, set("k", "w"))),
		"negative lifetime":  living(rmap.Lifetime{TTL: -time.Second}, set("k", "w")),
		"tiny lifetime":      living(rmap.Lifetime{TTL: time.Microsecond}, set("k", "w")),
		"endless lifetime":   living(rmap.Lifetime{TTL: rmap.MaxTTL + time.Millisecond}, set("k", "w")),
		"integer of letters": write(put("k", integer("five"))),
		"integer of nothing": write(put("k", integer(""))),
		"integer too large":  write(put("k", integer("9223372036854775808"))),
		"list of letters":    write(put("k", rmap.Value{Kind: rmap.List, Data: "a,b"})),
		"list cut short":     write(put("k", rmap.Value{Kind: rmap.List, Data: "5:abc"})),
	} {
		e.Logf("%s", what)
		e.refuse(w, rmap.ErrInvalid, rmap.ErrTooLarge)
		w.Ops = append([]rmap.Op{set("first", "x")}, w.Ops...)
		e.refuse(w, rmap.ErrInvalid, rmap.ErrTooLarge)
	}
}

func names(e *env) {
	longest := strings.Repeat("n", rmap.MaxName)
	e.compare(e.follow(e.first, longest))
	if _, err := e.first.Write(e.ctx, longest, write(set("k", "v"))); err != nil {
		e.Fatalf("a name of %d bytes: %v", len(longest), err)
	}
	for _, name := range []string{"", longest + "n"} {
		e.refuseIn(name, write(set("k", "v")), rmap.ErrInvalid, rmap.ErrTooLarge)
		if _, err := e.first.Follow(name, &witness{}); err == nil {
			e.Errorf("a name of %d bytes can be followed", len(name))
		}
		if err := e.first.Scan(e.ctx, name, func([]rmap.Entry) error { return nil }); err == nil {
			e.Errorf("a name of %d bytes can be scanned", len(name))
		}
	}
}
