package rmaptest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapWatches checks that a subscriber is told what changed, in order, or that it must read again.
func mapWatches() []test {
	return []test{
		{"Causes", watchCauses},
		{"BatchInOrder", watchBatch},
		{"NothingChanged", watchNothing},
		{"TwoSubscribers", watchTwo},
		{"SlowOne", watchSlow},
		{"Overflow", watchOverflow},
		{"OverflowAtClose", watchOverflowAtClose},
		{"ContextEnds", watchContext},
		{"BreakAndAgain", watchBreak},
		{"NeverRead", watchNeverRead},
		{"ReadsShowIt", watchReads},
		{"FirstChange", watchFirst},
	}
}

func watchCauses(e *env) {
	a, b := pair(e, texts{})
	ta, tb := record(e, a, rmap.WatchOptions{}), record(e, b, rmap.WatchOptions{})
	var revisions []rmap.Revision
	do := func(r rmap.Revision, err error) {
		e.Helper()
		revisions = append(revisions, e.did(r, err))
	}
	do(a.Set(e.ctx, "k", ""))
	do(b.Set(e.ctx, "k", "w"))
	do(a.SetIfAbsent(e.ctx, "l", "x"))
	do(b.Delete(e.ctx, "k"))
	do(a.CompareAndSet(e.ctx, "l", "x", "y"))
	do(a.Reset(e.ctx))
	do(a.Set(e.ctx, "k", "1"))
	do(b.Destroy(e.ctx))
	do(a.Set(e.ctx, "k", "2"))
	for _, tp := range []*tape[string, string]{ta, tb} {
		events := tp.tells(e, "set k: none to ", "set k:  to w", "set l: none to x", "delete k: w to none", "set l: x to y", "reset",
			"set k: none to 1", "reset", "set k: none to 2")
		for i, ev := range events {
			if ev.Revision != revisions[i] || ev.Err != nil {
				e.Errorf("the event %v has the revision %v and the error %v, want %v", line(ev), ev.Revision, ev.Err, revisions[i])
			}
			if s := ev.String(); strings.Contains(s, " w") || !strings.Contains(s, ev.Cause.String()) {
				e.Errorf("an event for logs is %q", s)
			}
		}
	}
}

func watchBatch(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "0"))
	tp := record(e, m, rmap.WatchOptions{})
	r := e.did(m.Batch().Set("k", "1").Set("l", "1").Delete("k").Reset().Set("k", "2").Write(e.ctx))
	for _, ev := range tp.tells(e, "set k: 0 to 1", "set l: none to 1", "delete k: 1 to none", "reset", "set k: none to 2") {
		if ev.Revision != r {
			e.Errorf("%v is of another revision than %v", ev, r)
		}
	}
}

// What changes nothing is not told.
func watchNothing(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	tp := record(e, m, rmap.WatchOptions{})
	e.did(m.Delete(e.ctx, "none"))
	e.fails(rmap.ErrConflict)(m.SetIfAbsent(e.ctx, "k", "w"))
	e.fails(rmap.ErrInvalid)(m.Set(e.ctx, "", "w"))
	e.did(m.Batch().IfPresent("k").Write(e.ctx))
	e.synced(m)
	e.did(m.Set(e.ctx, "end", "v"))
	tp.tells(e, "set end: none to v")
}

func watchTwo(e *env) {
	m := joined(e, e.first, numbers{})
	var tapes []*tape[string, int]
	var want []string
	for i := range 40 {
		if i%10 == 0 {
			tapes = append(tapes, record(e, m, rmap.WatchOptions{}))
		}
		e.did(m.SetAndWait(e.ctx, fmt.Sprint("key ", i), i))
		want = append(want, fmt.Sprintf("set key %d: none to %d", i, i))
	}
	for i, tp := range tapes { // each has what came after it subscribed
		tp.tells(e, want[10*i:]...)
	}
}

// One that does not come back from its loop keeps nobody else waiting.
func watchSlow(e *env) {
	a, b := pair(e, numbers{})
	slow := b.Watch(e.ctx, rmap.WatchOptions{Events: 2})
	stuck, release := make(chan struct{}), make(chan struct{})
	var causes []rmap.Cause
	var group sync.WaitGroup
	group.Go(func() {
		for ev := range slow {
			if len(causes) == 0 {
				close(stuck)
				<-release
			}
			if causes = append(causes, ev.Cause); ev.Key == "end" {
				return
			}
		}
	})
	tp := record(e, b, rmap.WatchOptions{})
	e.did(a.Set(e.ctx, "first", 1))
	<-stuck
	for i := range 100 {
		e.did(a.Set(e.ctx, "k", i))
	}
	e.synced(b)
	if v, _ := b.Get("k"); v != 99 {
		e.Fatalf("it is %d", v)
	}
	tp.until(e, 101)
	close(release)
	e.until("the slow one has been told to read again", func() bool {
		e.did(a.Set(e.ctx, "end", 1))
		done := make(chan struct{})
		go func() { group.Wait(); close(done) }()
		select {
		case <-done:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	if causes[0] != rmap.CauseSet || causes[1] != rmap.CauseAgain {
		e.Fatalf("the slow one was told %v", causes)
	}
	for _, ev := range tp.all() {
		if ev.Cause == rmap.CauseAgain {
			e.Fatal("the quick one was told to read again")
		}
	}
}

// One that falls behind is told so once, with a revision that reads show, and then what came later.
func watchOverflow(e *env) {
	m := joined(e, e.first, numbers{})
	e.did(m.SetAndWait(e.ctx, "begin", 1))
	exact := m.Watch(e.ctx, rmap.WatchOptions{Events: 10})
	over := m.Watch(e.ctx, rmap.WatchOptions{Events: 10})
	var last rmap.Revision
	for i := range 10 {
		last = e.did(m.SetAndWait(e.ctx, "k", i))
	}
	n := 0
	for ev := range exact { // as many as it has room for are no overflow
		if line(ev) != fmt.Sprintf("set k: %s to %d", map[bool]string{true: "none", false: fmt.Sprint(n - 1)}[n == 0], n) {
			e.Fatalf("event %d is %s", n, line(ev))
		}
		if n++; n == 10 {
			break
		}
	}
	if s := m.Stats(); s.Overflows != 0 || s.Dropped != 0 {
		e.Fatalf("Stats are %+v", s)
	}
	for i := range 25 {
		last = e.did(m.SetAndWait(e.ctx, "k", 10+i))
	}
	var got []string
	for ev := range over {
		got = append(got, line(ev))
		switch len(got) {
		case 1:
			if s := m.Snapshot(); ev.Cause != rmap.CauseAgain || ev.Revision != last || s.Revision() != last {
				e.Fatalf("it was told %v at %v, want again at %v", ev, s.Revision(), last)
			}
			e.did(m.SetAndWait(e.ctx, "k", 100))
			e.did(m.SetAndWait(e.ctx, "k", 101))
		case 3:
			if want := "again, set k: 34 to 100, set k: 100 to 101"; strings.Join(got, ", ") != want {
				e.Fatalf("it was told %q, want %q", got, want)
			}
			if s := m.Stats(); s.Overflows != 1 || s.Dropped != 35 {
				e.Fatalf("Stats are %+v", s)
			}
			return
		}
	}
	e.Fatal("the sequence ended")
}

func watchOverflowAtClose(e *env) {
	m := joined(e, e.first, numbers{})
	seq := m.Watch(e.ctx, rmap.WatchOptions{Events: 1})
	for i := range 3 {
		e.did(m.SetAndWait(e.ctx, "k", i))
	}
	m.Close()
	var got []string
	for ev := range seq {
		got = append(got, line(ev))
	}
	if strings.Join(got, ", ") != "again" {
		e.Fatalf("it was told %q", got)
	}
}

func watchContext(e *env) {
	m := joined(e, e.first, numbers{})
	ctx, cancel := context.WithCancel(e.ctx)
	seq := m.Watch(ctx, rmap.WatchOptions{})
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range seq {
			close(begun)
		}
	}()
	e.did(m.Set(e.ctx, "k", 1))
	<-begun
	cancel()
	<-ended
	for range m.Watch(ctx, rmap.WatchOptions{}) {
		e.Error("a subscription with an ended context was told something")
	}
	// One that was never read is gone as well.
	ctx, cancel = context.WithCancel(e.ctx)
	seq = m.Watch(ctx, rmap.WatchOptions{Events: 1})
	cancel()
	e.until("it is forgotten", func() bool {
		before := m.Stats().Dropped
		for i := range 3 {
			e.did(m.SetAndWait(e.ctx, "k", i))
		}
		return m.Stats().Dropped == before
	})
	for range seq {
		e.Error("after its context it was told something")
	}
}

func watchBreak(e *env) {
	m := joined(e, e.first, numbers{})
	seq := m.Watch(e.ctx, rmap.WatchOptions{Events: 2})
	e.did(m.SetAndWait(e.ctx, "k", 1))
	for range seq {
		break
	}
	for i := range 5 {
		e.did(m.SetAndWait(e.ctx, "k", i))
	}
	if s := m.Stats(); s.Dropped != 0 {
		e.Fatalf("after it left, %d events were kept for it and dropped", s.Dropped)
	}
	for ev := range seq {
		e.Fatalf("the second loop was told %v", ev)
	}
}

func watchNeverRead(e *env) {
	m := joined(e, e.first, numbers{})
	for range 10 {
		m.Watch(e.ctx, rmap.WatchOptions{Events: 3})
	}
	for i := range 50 {
		e.did(m.SetAndWait(e.ctx, "k", i))
	}
	if s := m.Stats(); s.Overflows != 10 || s.Dropped != 500 {
		e.Fatalf("Stats are %+v", s)
	}
	shows(e, m, map[string]int{"k": 49})
}

// When an event is told, reads show that state or a later one. The tape checks the revision; this is about the entry.
func watchReads(e *env) {
	a, b := pair(e, numbers{})
	var group sync.WaitGroup
	for range 4 {
		seq := b.Watch(e.ctx, rmap.WatchOptions{Events: 10000})
		group.Go(func() {
			for ev := range seq {
				if v, ok := b.Get("k"); ev.Cause == rmap.CauseSet && (!ok || v < ev.New) {
					e.Errorf("it was told that k is %d, and reads %d, %t", ev.New, v, ok)
					return
				}
				if ev.New == 999 {
					return
				}
			}
		})
	}
	for i := range 1000 {
		e.did(a.Set(e.ctx, "k", i))
	}
	group.Wait()
}

// The first change of a map that has never been is told as any other.
func watchFirst(e *env) {
	a, b := pair(e, texts{})
	tp := record(e, b, rmap.WatchOptions{})
	e.did(a.Set(e.ctx, "k", "v"))
	e.synced(b)
	if e.subject.Remembers > 0 {
		tp.tells(e, "set k: none to v")
	}
	shows(e, b, map[string]string{"k": "v"})
}
