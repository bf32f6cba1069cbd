package rmaptest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
	"github.com/latchkey-go/latchkey/rmap/rmaptest"
)

// broken is a real store with a defect in front.
type broken struct {
	rmap.Store
	d  defect
	mu sync.Mutex // guards what a defect counts
	n  int
}

// count counts calls, from 1.
func (b *broken) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	return b.n
}

func (b *broken) Write(ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	if b.d.asked != nil {
		w.If, w.Ops = slices.Clone(w.If), slices.Clone(w.Ops)
		b.d.asked(&w)
	}
	if b.d.write != nil {
		return b.d.write(b, ctx, name, w)
	}
	r, err := b.Store.Write(ctx, name, w)
	if b.d.result != nil && err == nil {
		b.d.result(&w, &r)
	}
	return r, err
}

func (b *broken) Scan(ctx context.Context, name string, yield func([]rmap.Entry) error) error {
	return b.Store.Scan(ctx, name, func(chunk []rmap.Entry) error {
		if b.d.scan != nil {
			chunk = b.d.scan(chunk)
		}
		if err := yield(chunk); !b.d.deaf {
			return err
		}
		return nil
	})
}

func (b *broken) Since(ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
	if b.d.since != nil {
		return b.d.since(b, ctx, name, r)
	}
	return b.Store.Since(ctx, name, r)
}

func (b *broken) Follow(name string, f rmap.Follower) (rmap.Feed, error) {
	inner := &brokenFollower{Follower: f, b: b}
	feed, err := b.Store.Follow(name, inner)
	if err != nil {
		return nil, err
	}
	return &brokenFeed{Feed: feed, b: b, f: inner}, nil
}

type brokenFollower struct {
	rmap.Follower
	b    *broken
	held []rmap.Change // by a defect
}

func (f *brokenFollower) Changed(c rmap.Change) {
	if f.b.d.told == nil {
		f.Follower.Changed(c)
		return
	}
	c.Steps = slices.Clone(c.Steps)
	for _, c := range f.b.d.told(f, c) {
		f.Follower.Changed(c)
	}
}

type brokenFeed struct {
	rmap.Feed
	b *broken
	f *brokenFollower
}

func (f *brokenFeed) Head(ctx context.Context) (rmap.Head, error) {
	h, err := f.Feed.Head(ctx)
	if f.b.d.head != nil && err == nil {
		f.b.d.head(&h)
	}
	return h, err
}

func (f *brokenFeed) Close() {
	if !f.b.d.noClose {
		f.Feed.Close()
	}
}

// defect is one way to break the contract: every hook is optional.
type defect struct {
	name   string
	caught []string // the tests that must fail, as group/Name

	asked   func(w *rmap.Write)
	write   func(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error)
	result  func(w *rmap.Write, r *rmap.Result)
	told    func(f *brokenFollower, c rmap.Change) []rmap.Change
	head    func(h *rmap.Head)
	scan    func([]rmap.Entry) []rmap.Entry
	since   func(b *broken, ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error)
	noClose bool
	deaf    bool
}

// one makes a hook of a function that changes the change.
func one(change func(c *rmap.Change)) func(*brokenFollower, rmap.Change) []rmap.Change {
	return func(_ *brokenFollower, c rmap.Change) []rmap.Change {
		change(&c)
		return []rmap.Change{c}
	}
}

func ops(change func(op *rmap.Op)) func(*rmap.Write) {
	return func(w *rmap.Write) {
		for i := range w.Ops {
			change(&w.Ops[i])
		}
	}
}

// defects are run by the suite, and so inside a synctest bubble.
func defects() []defect {
	return slices.Concat(brokenFeeds(), brokenWrites(), brokenTimes(), brokenReads())
}

func brokenFeeds() []defect {
	return []defect{
		{name: "skips a number", caught: []string{"generations/Begin", "histories/Increments", "model/RandomWrites"},
			told: func(_ *brokenFollower, c rmap.Change) []rmap.Change {
				if c.Revision.Number == 3 {
					return nil
				}
				return []rmap.Change{c}
			}},
		{name: "tells twice", caught: []string{"generations/Begin", "feeds/EveryFollowerIsTold"},
			told: func(_ *brokenFollower, c rmap.Change) []rmap.Change { return []rmap.Change{c, c} }},
		{name: "swaps two", caught: []string{"generations/Begin", "feeds/HeadIsInOrder"},
			told: func(f *brokenFollower, c rmap.Change) []rmap.Change {
				f.held = append(f.held, c)
				if len(f.held) < 2 {
					return nil
				}
				out := f.held
				f.held = nil
				slices.Reverse(out)
				return out
			}},
		{name: "one behind", caught: []string{"ops/Set", "feeds/HeadIsInOrder", "feeds/EveryFollowerIsTold"},
			told: func(f *brokenFollower, c rmap.Change) []rmap.Change {
				out := f.held
				f.held = []rmap.Change{c}
				return out
			}},
		{name: "repeats a nonce", caught: []string{"ops/Set", "generations/Begin"},
			told: one(func(c *rmap.Change) { c.Revision.Nonce = 7 })},
		{name: "wrong previous nonce", caught: []string{"generations/Begin", "ops/Delete"},
			told: one(func(c *rmap.Change) { c.Prev ^= 1 })},
		{name: "does not say what was before", caught: []string{"generations/Begin", "generations/AfterDestroy"},
			told: one(func(c *rmap.Change) { c.Prev = 0 })},
		{name: "does not announce an expiry", caught: []string{"ttl/PurgeIsAChange", "ttl/PurgeOnTheWay", "model/RandomWrites"},
			told: one(func(c *rmap.Change) {
				c.Steps = slices.DeleteFunc(c.Steps, func(s rmap.Step) bool { return s.Do == rmap.DoExpire })
			})},
		{name: "tells an expiry as a deletion", caught: []string{"ttl/PurgeIsAChange", "ttl/Expire", "model/RandomWrites"},
			told: one(func(c *rmap.Change) {
				for i := range c.Steps {
					if c.Steps[i].Do == rmap.DoExpire {
						c.Steps[i].Do = rmap.DoDelete
					}
				}
			})},
		{name: "forgets a deadline on the way", caught: []string{"ttl/ToTheMillisecond", "keys/AnyKey", "model/RandomWrites"},
			told: one(func(c *rmap.Change) {
				for i := range c.Steps {
					c.Steps[i].Entry.Deadline = 0
				}
			})},
		{name: "tells half of a batch", caught: []string{"batches/OneChange", "histories/BatchesAreAtomic"},
			told: one(func(c *rmap.Change) { c.Steps = c.Steps[:(len(c.Steps)+1)/2] })},
		{name: "goes on after Close", noClose: true, caught: []string{"feeds/CloseIsTheEnd", "feeds/CloseOfOneLeavesOthers"}},
		{name: "tells another end of the map", caught: []string{"lifetime/Absolute"},
			head: func(h *rmap.Head) { h.Expires += 5 }},
		{name: "does not know that it was cleared", caught: []string{"ops/Clear", "generations/Destroy", "model/RandomWrites"},
			head: func(h *rmap.Head) { h.Cleared = 0 }},
	}
}

func brokenWrites() []defect {
	return []defect{
		{name: "loses what was there", caught: []string{"ops/Old", "histories/BatchesAreAtomic"},
			result: func(w *rmap.Write, r *rmap.Result) { r.Old = make([]*rmap.Entry, len(r.Old)) }},
		{name: "tells what was there without being asked", caught: []string{"ops/Set"}, asked: func(w *rmap.Write) { w.WantOld = true }},
		{name: "writes a batch piece by piece", caught: []string{"batches/OneChange", "batches/AllOrNone", "histories/BatchesAreAtomic"},
			write: pieceByPiece},
		{name: "compares without the kind", caught: []string{"conditions/Each", "model/RandomWrites"}, write: anyKind},
		{name: "ignores a nonce", caught: []string{"conditions/Each", "conditions/NoncesAreOfEntries", "model/RandomWrites"},
			asked: func(w *rmap.Write) {
				for i := range w.If {
					if w.If[i].Test == rmap.HasNonce {
						w.If[i].Test = rmap.IsPresent
					}
				}
			}},
		{name: "forgets the last condition", caught: []string{"conditions/Each", "conditions/OfAnotherKey", "histories/Linearizable"},
			asked: func(w *rmap.Write) { w.If = w.If[:max(0, len(w.If)-1)] }},
		{name: "hides what is in the way", caught: []string{"conditions/Each", "histories/CompareAndSet"},
			result: func(_ *rmap.Write, r *rmap.Result) { r.Current = nil }},
		{name: "counts conditions from zero", caught: []string{"conditions/TheFirstIsTold", "ops/EmptyAndAbsentDiffer"},
			result: func(_ *rmap.Write, r *rmap.Result) { r.Conflict = max(0, r.Conflict-1) }},
		{name: "takes the deletion of nothing for a change", caught: []string{"ops/DeleteOfNothing", "model/RandomWrites"},
			result: func(_ *rmap.Write, r *rmap.Result) { r.Changed = true }},
		{name: "writes when there is nothing to do", caught: []string{"ops/DeleteOfNothing", "ops/NoOperations", "lists/NothingToDo"},
			asked: func(w *rmap.Write) {
				w.Ops = append(w.Ops, rmap.Op{Do: rmap.DoSet, Key: "dirt", Value: rmap.Value{Kind: rmap.Plain}})
			}},
		{name: "adds without a lock", caught: []string{"histories/Increments"}, write: readThenWrite},
		{name: "adds in doubles", caught: []string{"integers/Exact", "model/RandomWrites"},
			asked: ops(func(op *rmap.Op) { op.Delta = int64(float64(op.Delta)) })},
		{name: "adds to text", caught: []string{"integers/OtherKinds", "batches/AllOrNone"}, write: addToText},
		{name: "appends twice", caught: []string{"lists/AppendUnique", "lists/NothingToDo", "model/RandomWrites"},
			asked: ops(func(op *rmap.Op) {
				if op.Do == rmap.DoAppendUnique {
					op.Do = rmap.DoAppend
				}
			})},
		{name: "loses empty items", caught: []string{"lists/AnyItem", "model/RandomWrites"},
			asked: ops(func(op *rmap.Op) {
				op.Items = slices.DeleteFunc(slices.Clone(op.Items), func(s string) bool { return s == "" })
			})},
		{name: "ends keys at a zero byte", caught: []string{"keys/AnyKey", "keys/AllAtOnce"},
			asked: ops(func(op *rmap.Op) {
				if before, _, cut := strings.Cut(op.Key, "\x00"); cut && before != "" {
					op.Key = before
				}
			})},
		{name: "has no limit", caught: []string{"limits/MaxEntries", "model/RandomWrites"}, asked: func(w *rmap.Write) { w.MaxEntries = 0 }},
		{name: "takes anything", caught: []string{"limits/Invalid"},
			asked: func(w *rmap.Write) {
				w.Ops = slices.DeleteFunc(w.Ops, func(op rmap.Op) bool { return op.Key == "" && op.Do != rmap.DoClear && op.Do != rmap.DoDestroy })
			}},
		{name: "writes in vain", caught: []string{"context/EndedBefore"},
			write: func(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
				return b.Store.Write(context.WithoutCancel(ctx), name, w)
			}},
	}
}

func brokenTimes() []defect {
	return []defect{
		{name: "knows whole seconds only", caught: []string{"ttl/ToTheMillisecond", "model/RandomWrites"},
			asked: ops(func(op *rmap.Op) { op.TTL = op.TTL.Truncate(time.Second) })},
		{name: "keeps no ttl", caught: []string{"ttl/KeepTTL", "model/RandomWrites"}, asked: ops(func(op *rmap.Op) { op.KeepTTL = false })},
		{name: "keeps every ttl", caught: []string{"ttl/SetWithoutRemovesIt", "model/RandomWrites"}, asked: ops(func(op *rmap.Op) { op.KeepTTL = true })},
		{name: "has no lifetime", caught: []string{"lifetime/Absolute", "lifetime/Mismatch", "lifetime/TheEndBeginsAnother"},
			asked: func(w *rmap.Write) { w.Lifetime = nil }},
		{name: "slides what is absolute", caught: []string{"lifetime/Absolute"},
			asked: func(w *rmap.Write) {
				if w.Lifetime != nil {
					w.Lifetime = &rmap.Lifetime{TTL: w.Lifetime.TTL, Sliding: true}
				}
			}},
		{name: "takes any lifetime along", caught: []string{"lifetime/Mismatch", "lifetime/ForEver", "model/RandomWrites"},
			write: func(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
				if r, err := b.Store.Write(ctx, name, w); err == nil {
					return r, nil
				}
				w.Lifetime = nil
				return b.Store.Write(ctx, name, w)
			}},
		{name: "destroys no more than it clears", caught: []string{"generations/Destroy", "generations/AfterDestroy"},
			asked: ops(func(op *rmap.Op) {
				if op.Do == rmap.DoDestroy {
					op.Do = rmap.DoClear
				}
			})},
		{name: "begins anew after a reset", caught: []string{"ops/Clear", "generations/ResetGoesOn"},
			result: func(w *rmap.Write, r *rmap.Result) {
				if len(w.Ops) > 0 && w.Ops[0].Do == rmap.DoClear && r.Changed {
					r.Revision.Number = 1
				}
			}},
	}
}

func brokenReads() []defect {
	return []defect{
		{name: "overlooks an entry", caught: []string{"scan/All", "scan/UnderWrites", "limits/Sizes"},
			scan: func(chunk []rmap.Entry) []rmap.Entry { return chunk[:len(chunk)-1] }},
		{name: "forgets who wrote an entry", caught: []string{"ops/Set", "scan/All"},
			scan: func(chunk []rmap.Entry) []rmap.Entry {
				chunk = slices.Clone(chunk)
				for i := range chunk {
					chunk[i].Nonce = 0
				}
				return chunk
			}},
		{name: "swallows the error of a reader", caught: []string{"scan/ErrorOfYield"}, deaf: true},
		{name: "leaves a gap in the past", caught: []string{"since/WhatFollowed", "since/LongAgo"},
			since: func(b *broken, ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
				got, err := b.Store.Since(ctx, name, r)
				return got[min(1, len(got)):], err
			}},
		{name: "knows no beginning", caught: []string{"since/WhatFollowed"},
			since: func(b *broken, ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
				if r.Nonce == 0 {
					return nil, nil
				}
				return b.Store.Since(ctx, name, r)
			}},
		{name: "makes up a past", caught: []string{"since/NotOfAnotherPast"}, since: byNumber},
		{name: "remembers nothing", caught: []string{"since/WhatFollowed", "since/LongAgo"},
			since: func(*broken, context.Context, string, rmap.Revision) ([]rmap.Change, error) { return nil, nil }},
	}
}

// pieceByPiece does each operation in a write of its own.
func pieceByPiece(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	if len(w.Ops) < 2 {
		return b.Store.Write(ctx, name, w)
	}
	var all rmap.Result
	for _, op := range w.Ops {
		piece := w
		piece.Ops = []rmap.Op{op}
		r, err := b.Store.Write(ctx, name, piece)
		if err != nil {
			return r, err
		}
		r.Old = append(all.Old, r.Old...)
		r.Changed = r.Changed || all.Changed
		all = r
	}
	return all, nil
}

// anyKind takes a value of the same bytes for the same value.
func anyKind(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	r, err := b.Store.Write(ctx, name, w)
	if err == nil && r.Conflict != 0 && r.Current != nil {
		if c := &w.If[r.Conflict-1]; c.Test == rmap.HasValue && c.Value.Data == r.Current.Value.Data {
			w.If = slices.Clone(w.If) // the caller's is not to be touched
			w.If[r.Conflict-1].Value.Kind = r.Current.Value.Kind
			return b.Store.Write(ctx, name, w)
		}
	}
	return r, err
}

// readThenWrite adds to what it read before.
func readThenWrite(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	if b.count()%7 != 0 || len(w.Ops) == 0 || w.Ops[0].Do != rmap.DoAdd {
		return b.Store.Write(ctx, name, w)
	}
	w.Ops = w.Ops[1:] // this one was read by another at the same time
	return b.Store.Write(ctx, name, w)
}

// addToText takes any text for a number.
func addToText(b *broken, ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	r, err := b.Store.Write(ctx, name, w)
	for i := range w.Ops {
		if err != nil && w.Ops[i].Do == rmap.DoAdd {
			w.Ops = slices.Clone(w.Ops)
			w.Ops[i] = rmap.Op{Do: rmap.DoSet, Key: w.Ops[i].Key, Value: rmap.Value{Kind: rmap.Integer, Data: "1"}}
			return b.Store.Write(ctx, name, w)
		}
	}
	return r, err
}

// byNumber looks at no nonce of what it is asked for.
func byNumber(b *broken, ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
	var got []rmap.Change
	f := &collector{}
	feed, err := b.Store.Follow(name, f)
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	h, err := feed.Head(ctx)
	for n := r.Number + 1; err == nil && n <= h.Revision.Number; n++ {
		got = append(got, rmap.Change{Revision: rmap.Revision{Generation: r.Generation, Number: n}})
	}
	return got, err
}

type collector struct{}

func (*collector) Up()                 {}
func (*collector) Down(error)          {}
func (*collector) Changed(rmap.Change) {}
func (*collector) Unreadable(error)    {}

// defectEnv names the defect that the child process is to judge.
const defectEnv = "LATCHKEY_RMAPTEST_DEFECT"

// control names the absence of a defect.
const control = "none"

// TestBrokenStore is the child's part: the suite on a broken store.
func TestBrokenStore(t *testing.T) {
	all := append(defects(), defect{name: control})
	i := slices.IndexFunc(all, func(d defect) bool { return d.name == os.Getenv(defectEnv) })
	if i < 0 {
		t.Skip("only for the processes that TestSuiteSeesDefects starts")
	}
	rmaptest.Run(t, rmaptest.Subject{
		Open: func(t *testing.T) (first, second rmap.Store) {
			s := rmaplocal.New(rmaplocal.Options{})
			t.Cleanup(s.Close)
			b := &broken{Store: s, d: all[i]}
			return b, b
		},
		Bubble:    true,
		Remembers: 1024,
	})
}

// Each defect makes each of its tests fail. Each test is judged in a process of its own, because a broken store may
// take its process with it.
func TestSuiteSeesDefects(t *testing.T) {
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			for _, name := range d.caught {
				group, test, _ := strings.Cut(name, "/")
				out := child(t, d.name, "^TestBrokenStore$/^"+group+"$/^"+test+"$")
				if !strings.Contains(out, "--- FAIL: TestBrokenStore/"+name+" ") {
					t.Errorf("%s did not fail:\n%s", name, out)
				}
			}
		})
	}
}

// The same store without a defect passes all of it.
func TestSuitePassesWithoutDefect(t *testing.T) {
	out := child(t, control, "^TestBrokenStore$")
	if strings.Contains(out, "--- FAIL") || !strings.Contains(out, "--- PASS: TestBrokenStore/histories/BatchesAreAtomic") {
		t.Errorf("the store without a defect failed:\n%s", out)
	}
}

func child(t *testing.T, defect, run string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+run, "-test.v", "-test.timeout=60s", "-rapid.nofailfile",
		"-rapid.shrinktime=1s", "-rapid.seed=1") // what one run finds the next one finds too
	cmd.Env = append(os.Environ(), defectEnv+"="+defect)
	out, _ := cmd.CombinedOutput() // a failure is what is wanted
	return string(out)
}
