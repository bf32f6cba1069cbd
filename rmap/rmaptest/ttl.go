package rmaptest

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// ttls checks deadlines of entries: where they lie, who keeps them, and that their end is a change like any other.
func ttls() []test {
	return []test{
		{"ToTheMillisecond", toTheMillisecond},
		{"SetWithoutRemovesIt", setWithout},
		{"KeepTTL", keepTTL},
		{"PurgeIsAChange", purgeIsAChange},
		{"PurgeOnTheWay", purgeOnTheWay},
		{"PurgeBesideAConflict", purgeBesideConflict},
		{"ExpiredIsAbsent", expiredIsAbsent},
		{"Expire", expireByName},
		{"ManyDueAtOnce", manyDue},
		{"ReplacedInTime", replacedInTime},
	}
}

func deadline(c rmap.Change) int64 { return c.Steps[len(c.Steps)-1].Entry.Deadline }

func toTheMillisecond(e *env) {
	for _, ttl := range []time.Duration{time.Second + 500*time.Millisecond, 300 * time.Millisecond, 2999 * time.Millisecond,
		rmap.MinTTL, long, rmap.MaxTTL} {
		for _, op := range []rmap.Op{set("k", "v"), add("n", 1), app("l", "x"), uniq("u", ttl.String())} {
			c := e.change(write(lasting(ttl, op)))
			if got, want := deadline(c), c.Now+ttl.Milliseconds(); got != want {
				e.Fatalf("%c with a ttl of %v at %d ends at %d, want %d", op.Do, ttl, c.Now, got, want)
			}
		}
	}
}

func setWithout(e *env) {
	for _, op := range []rmap.Op{set("k", "v"), add("n", 1), app("l", "x"), uniq("u", "x")} {
		e.change(write(lasting(long, op)))
		if op.Do == rmap.DoAppendUnique {
			op = uniq("u", "y")
		}
		equal(e, "the deadline after a second, without ttl,", deadline(e.change(write(op))), 0)
	}
}

func keepTTL(e *env) {
	var first int64
	for _, op := range []rmap.Op{set("k", "v"), add("n", 1), app("l", "x"), uniq("u", "x")} {
		first = deadline(e.change(write(keeping(lasting(long, op))))) // new, so that TTL counts
		if first == 0 {
			e.Fatalf("%c with KeepTTL on what was not there has no deadline", op.Do)
		}
		if op.Do == rmap.DoAppendUnique {
			op = uniq("u", "y")
		}
		equal(e, "the deadline that was kept", deadline(e.change(write(keeping(lasting(2*long, op))))), first)
		if op.Do == rmap.DoAppendUnique {
			op = uniq("u", "z")
		}
		equal(e, "the deadline that was kept", deadline(e.change(write(keeping(op)))), first)
	}
	equal(e, "the deadline after Remove", deadline(e.change(write(strip("u", "x")))), first)
	// For ever is kept as well.
	e.change(write(set("f", "v")))
	equal(e, "the deadline of for ever", deadline(e.change(write(keeping(lasting(long, set("f", "w")))))), 0)
	equal(e, "the deadline inside of a batch", deadline(e.change(write(set("g", "v"), keeping(lasting(long, set("g", "w")))))), 0)
}

func purgeIsAChange(e *env) {
	c := e.change(write(lasting(short, set("k", "v")), set("stays", "w"), lasting(long, set("later", "x"))))
	e.reach(c.Now + short.Milliseconds())
	purge := e.change(rmap.Write{})
	e.steps(purge, ended("k"))
	equal(e, "the number", purge.Revision.Number, c.Revision.Number+1)
	e.has(map[string]rmap.Value{"stays": plain("w"), "later": plain("x")})
	e.same(rmap.Write{})
}

func purgeOnTheWay(e *env) {
	c := e.change(write(lasting(short, set("k", "v")), set("stays", "w")))
	e.reach(c.Now + short.Milliseconds())
	e.steps(e.change(write(set("new", "x"))), ended("k"), did("new", plain("x")))
	// A deletion of what has just ended is none, but its end is told.
	c = e.change(write(lasting(short, set("k", "v"))))
	e.reach(deadline(c))
	r := e.write(want(del("k")))
	if !r.Changed || len(r.Old) != 1 || r.Old[0] != nil {
		e.Fatalf("a deletion of an entry past its deadline told %+v", r)
	}
	e.steps(e.w.last(), ended("k"))
}

func purgeBesideConflict(e *env) {
	c := e.change(write(lasting(short, set("k", "v")), set("stays", "w")))
	e.reach(c.Now + short.Milliseconds())
	r := e.write(given(absent("stays"), set("new", "x")))
	if r.Conflict != 1 || r.Current == nil || r.Current.Value != plain("w") {
		e.Fatalf("the conflict is told as %+v", r)
	}
	e.has(map[string]rmap.Value{"stays": plain("w")})
	if !r.Changed {
		// The contract allows that a failed condition purges, and a store that does not leaves it to the next write.
		e.steps(e.change(rmap.Write{}), ended("k"))
		return
	}
	e.steps(e.w.last(), ended("k"))
}

func expiredIsAbsent(e *env) {
	c := e.change(write(lasting(short, add("n", 5)), lasting(short, app("l", "x")), lasting(short, app("u", "x")),
		lasting(short, set("text", "v")), lasting(short, set("k", "v"))))
	e.reach(c.Now + short.Milliseconds())
	if got := e.entries(); len(got) != 0 {
		e.Fatalf("past their deadline there are %+v", got)
	}
	r := e.write(want(add("n", 1), app("l", "y"), uniq("u", "x"), add("text", 1), keeping(lasting(long, set("k", "w")))))
	for i, old := range r.Old {
		if old != nil {
			e.Errorf("before operation %d there was %+v, past its deadline", i+1, old)
		}
	}
	e.has(map[string]rmap.Value{"n": integer("1"), "l": list("y"), "u": list("x"), "text": integer("1"), "k": plain("w")})
	for key, x := range e.entries() {
		if (x.Deadline != 0) != (key == "k") {
			e.Errorf("%q has the deadline %d", key, x.Deadline)
		}
	}
}

func expireByName(e *env) {
	e.same(write(expire("k")))
	e.change(write(set("ever", "v"), lasting(long, set("later", "w"))))
	e.same(write(expire("ever"), expire("later"), expire("nothing")))
	c := e.change(write(lasting(short, set("k", "v"))))
	e.reach(deadline(c))
	e.steps(e.change(write(expire("k"), expire("ever"), expire("k"))), ended("k"))
	e.same(write(expire("k")))
	e.has(map[string]rmap.Value{"ever": plain("v"), "later": plain("w")})
}

// One write removes a bounded number on its way, and by and by all are removed. Those that are named go at once.
func manyDue(e *env) {
	const n = 3*rmap.PurgeBatch + 10
	var w rmap.Write
	for i := range n {
		w.Ops = append(w.Ops, lasting(short, set(fmt.Sprint("key ", i), "v")))
	}
	c := e.change(w)
	e.reach(c.Now + short.Milliseconds())
	names := []rmap.Op{}
	for i := n - 1; i >= n-200; i-- {
		names = append(names, expire(fmt.Sprint("key ", i)))
	}
	// What was not removed on the way is absent all the same, for a condition and for an operation.
	r := e.write(rmap.Write{If: []rmap.Condition{absent("key 0"), absent(fmt.Sprint("key ", n-1))}, Ops: []rmap.Op{}})
	if r.Conflict != 0 || !r.Changed {
		e.Fatalf("with many due, absence of two of them told %+v", r)
	}
	total := len(e.w.last().Steps)
	for e.write(rmap.Write{}).Changed {
		removed := len(e.w.last().Steps)
		if removed > rmap.PurgeBatch {
			e.Fatalf("one write removed %d entries on its way, at most %d", removed, rmap.PurgeBatch)
		}
		total += removed
	}
	equal(e, "how many were removed", total, n)
	c = e.change(w)
	e.reach(c.Now + short.Milliseconds())
	told := e.change(write(names...))
	for _, op := range names {
		if !slices.ContainsFunc(told.Steps, func(s rmap.Step) bool { return s == ended(op.Key) }) {
			e.Fatalf("%q was to be expired by name, and was not", op.Key)
		}
	}
}

// An entry that was written again does not end when the one before it was to.
func replacedInTime(e *env) {
	c := e.change(write(lasting(short, set("ever", "v")), lasting(short, set("longer", "v")), lasting(short, set("again", "v"))))
	e.change(write(set("ever", "w"), lasting(long, set("longer", "w")), del("again"), set("again", "w")))
	e.reach(c.Now + short.Milliseconds())
	r := e.write(rmap.Write{})
	// On a machine that stood still they may have ended before they were written again, and are there all the same.
	if told := e.w.told()[1]; r.Changed && len(told.Steps) == 4 {
		e.Fatalf("entries that were written again ended: %+v", e.w.last())
	}
	e.has(map[string]rmap.Value{"ever": plain("w"), "longer": plain("w"), "again": plain("w")})
	e.change(write(reset()))
	e.same(write(expire("longer")))
}
