package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// wide is a text of n bytes that takes the most room in a frame.
func wide(n int) string { return strings.Repeat("\x01", n) }

func crowd(n int) []lease.Holder {
	p := lease.Party{Session: wide(lease.MaxLabelLength), Host: wide(lease.MaxLabelLength), PID: 1, Label: wide(lease.MaxLabelLength)}
	out := make([]lease.Holder, n)
	for i := range out {
		out[i] = lease.Holder{Party: p, Mode: lease.Shared, Token: lease.MaxToken - 1, TTL: time.Hour, Remaining: time.Hour}
	}
	return out
}

// A listing is cut to a frame at a key, says that there is more, and one key that
// is too large by itself is shown in part.
func TestListingFitsFrame(t *testing.T) {
	var many lease.Listing
	for i := range 500 {
		many.Keys = append(many.Keys, lease.KeyInfo{Key: fmt.Sprintf("%0*d", lease.MaxKeyLength, i), Holders: crowd(1)})
	}
	one := lease.Listing{Keys: []lease.KeyInfo{{Key: wide(lease.MaxKeyLength), Holders: crowd(1000),
		Waiters: make([]lease.Waiter, 1000), Waiting: 10_000}}}
	for i := range one.Keys[0].Waiters {
		one.Keys[0].Waiters[i].Party = one.Keys[0].Holders[0].Party
	}
	for name, l := range map[string]lease.Listing{"many keys": many, "one key": one} {
		r := Listed(7, &l)
		line := AppendReply([]byte("before\n"), &r)[len("before\n"):]
		if len(line) > MaxReply+1 {
			t.Errorf("%s: %d bytes, the limit is %d", name, len(line)-1, MaxReply)
		}
		var got Reply
		if err := DecodeReply(line, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := len(got.Infos)
		if n == 0 || got.More != (n < len(l.Keys)) {
			t.Errorf("%s: %d of %d keys, more is %v", name, n, len(l.Keys), got.More)
		}
		if k := got.Infos[0]; k.Waiting != l.Keys[0].Waiting || len(k.Holders) == 0 {
			t.Errorf("%s: the first key has %d holders and %d waiting", name, len(k.Holders), k.Waiting)
		}
	}
}

// A session that holds more than one frame can tell is resumed in parts, and
// nothing is lost between them.
func TestResumeInParts(t *testing.T) {
	l := lease.Lease{TTL: time.Minute}
	for i := range lease.MaxKeys {
		l.Holds = append(l.Holds, lease.Hold{Key: wide(lease.MaxKeyLength-3) + fmt.Sprintf("%03d", i), Token: lease.Token(i + 1)})
	}
	leases := make([]lease.Lease, 8)
	for i := range leases {
		leases[i] = l
		leases[i].ID = fmt.Sprint(i)
	}
	r := Reply{Kind: OK, N: 1, Session: "s", Leases: Resume(leases, time.Now())}
	var ids []string
	parts := 0
	for line := range bytes.Lines(AppendOpened(nil, &r)) {
		if len(line) > MaxReply+1 {
			t.Fatalf("a frame of %d bytes, the limit is %d", len(line)-1, MaxReply)
		}
		var got Reply
		if err := DecodeReply(line, &got); err != nil {
			t.Fatal(err)
		}
		for _, h := range got.Leases {
			ids = append(ids, h.Lease.ID)
			if len(h.Lease.Holds) != lease.MaxKeys {
				t.Errorf("lease %s has %d holds", h.Lease.ID, len(h.Lease.Holds))
			}
		}
		switch {
		case got.Kind == Part:
			parts++
		case got.Kind != OK || got.Session != "s":
			t.Errorf("got %+v, want the answer", got.Kind)
		}
	}
	if parts == 0 || strings.Join(ids, " ") != "0 1 2 3 4 5 6 7" {
		t.Errorf("%d parts with leases %v", parts, ids)
	}
}

// The code and the words of an error get to the far end; a cause becomes text;
// what a defect says does not leave the server.
func TestFailures(t *testing.T) {
	tests := []struct {
		err  error
		is   lease.Code
		text string
	}{
		{lease.ErrClosed, lease.ErrClosed, "acquire: closed"},
		{&lease.Error{Code: lease.ErrBusy, Key: "k", Holders: []lease.Holder{{Remaining: time.Second}}}, lease.ErrBusy,
			`acquire "k": busy: held by unnamed session (1s left)`},
		{&lease.Error{Code: lease.ErrUnavailable, Reason: "journal", Cause: fs.ErrPermission}, lease.ErrUnavailable,
			"acquire: unavailable: journal: permission denied"},
		{&lease.Error{Code: lease.ErrUnavailable, Op: "grant", Cause: fs.ErrPermission}, lease.ErrUnavailable,
			"grant: unavailable: permission denied"},
		{fmt.Errorf("wrapped: %w", lease.Refuse("no")), lease.ErrRefused, "acquire: refused: no"},
		{fmt.Errorf("wrapped: %w", lease.ErrOver), lease.ErrOver, "acquire: over: wrapped: over"},
		{errors.New("secret"), lease.ErrInternal, "acquire: internal: a defect in the server, see its log"},
		{&lease.Error{Code: lease.ErrDeadlock, Cycle: []lease.Wait{{Who: "a", Key: "x"}, {Who: "b", Key: "y"}}}, lease.ErrDeadlock,
			`acquire: deadlock: a waits for "x", b waits for "y"`},
	}
	for _, tt := range tests {
		var r Reply
		near := Failure(3, "acquire", tt.err)
		if err := DecodeReply(AppendReply(nil, &near), &r); err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); !errors.Is(err, tt.is) || err.Error() != tt.text {
			t.Errorf("%v became\n %q, want\n %q", tt.err, err, tt.text)
		}
	}
	r := Reply{Kind: Failed, N: 1, Code: "preempted", Reason: "by the king"}
	if err := r.Err(); !errors.Is(err, lease.ErrInternal) || !strings.Contains(err.Error(), `"preempted"`) {
		t.Errorf("a code of a later version became %q", err)
	}
}

// Conversions between frames and the contract lose nothing.
func TestConversions(t *testing.T) {
	deadline := time.Now().Add(time.Minute)
	l := lease.Lease{ID: "i", Holds: []lease.Hold{{Key: "a", Token: 4}}, TTL: time.Minute, Deadline: deadline, Waited: time.Second}
	now := deadline.Add(-20 * time.Second)
	r := Granted(1, &l, now.Add(-3*time.Second), now)
	if r.Elapsed != 3*time.Second || r.Remaining != 20*time.Second {
		t.Errorf("elapsed %v, remaining %v", r.Elapsed, r.Remaining)
	}
	back := r.Lease(now.Add(-3 * time.Second))
	if !back.Deadline.Equal(deadline) {
		t.Errorf("the deadline came back %v later", back.Deadline.Sub(deadline))
	}
	past := Granted(1, &l, now, deadline.Add(time.Second))
	if past.Remaining != 0 {
		t.Errorf("remaining %v after the end", past.Remaining)
	}
	ended := Ended(1, &l)
	if got := ended.Lease(now); !got.Deadline.IsZero() || got.Token() != 4 {
		t.Errorf("a released lease came back as %+v", got)
	}
	many := lease.Request{Keys: []string{"a", "b"}, TTL: lease.Forever}
	q := Acquire(1, &many)
	if got := q.Lease(); len(got.Keys) != 2 || got.TTL != lease.Forever {
		t.Errorf("got %+v", got)
	}
	for _, verb := range []lease.Verb{lease.Ping, lease.Renew, lease.Release, lease.Detach, lease.Cancel} {
		c := lease.Command{Verb: verb, ID: "i"}
		q := Command(1, &c)
		if got := q.Command(); got.Verb != verb || q.Do.String() != verb.String() {
			t.Errorf("%v became %v by %q", verb, got.Verb, q.Do)
		}
	}
	open := Request{Do: OpOpen}
	if got := open.Session().Grace; got != lease.DefaultGrace {
		t.Errorf("an absent grace is %v", got)
	}
}

// sameAfter sends a reply through its frame and compares what comes out.
func sameAfter[T any](t *testing.T, r Reply, want T, back func(*Reply) T) {
	t.Helper()
	var far Reply
	line := AppendReply(nil, &r)
	if err := DecodeReply(line, &far); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if got := back(&far); !reflect.DeepEqual(got, want) {
		t.Errorf("%s\n got %+v\nwant %+v", line, got, want)
	}
}

// What the contract says comes through frames unchanged, in both directions.
func TestThroughFrames(t *testing.T) {
	party := lease.Party{Session: "s", Host: "h", PID: 1, Label: "l"}
	holder := lease.Holder{Party: party, Token: 3, TTL: time.Second, Remaining: time.Second}
	queued := lease.Queued{ID: "i", Key: "k", Position: 2, Ahead: []lease.Holder{holder}}
	sameAfter(t, Queue(1, &queued), queued, (*Reply).Queued)
	event := lease.Event{Kind: lease.EventExpired, Party: party, Key: "k", Mode: lease.Counted, Limit: 2, Token: 4, After: time.Second}
	sameAfter(t, Happened(1, &event), event, (*Reply).Happening)
	notice := lease.Notice{ID: "i", Key: "k", Token: 4, Code: lease.ErrForced, By: "me"}
	sameAfter(t, Lost(notice), notice, (*Reply).Loss)
	forced := lease.Forced{Holds: []lease.Hold{{Key: "k", Token: 4}, {Key: "k", Token: 5}}, Token: 6}
	sameAfter(t, ForceDone(1, &forced), forced, (*Reply).Forced)
	listing := lease.Listing{Keys: []lease.KeyInfo{{Key: "k", Holders: []lease.Holder{holder}}}, More: true}
	sameAfter(t, Listed(1, &listing), listing, (*Reply).Listing)
	sameAfter(t, Listed(1, &lease.Listing{}), lease.Listing{}, (*Reply).Listing)

	now := time.Now()
	leases := []lease.Lease{
		{ID: "i", Holds: forced.Holds, TTL: time.Minute, Deadline: now.Add(time.Second), Waited: time.Second, Detached: true},
		{ID: "j", Holds: forced.Holds[:1], TTL: lease.Forever},
		{ID: "k", Holds: forced.Holds[:1], TTL: lease.Forever, Deadline: now.Add(time.Minute)},
	}
	resumed := Reply{Kind: OK, N: 1, Session: "id", Leases: Resume(leases, now)}
	sameAfter(t, resumed, leases, func(r *Reply) []lease.Lease { return r.ResumedLeases(now) })

	options := lease.SessionOptions{Name: "n", Host: "h", PID: 3, Grace: time.Second, Resume: "r"}
	query := lease.Query{Prefix: "p", After: "a", Limit: 3, Contended: true, Brief: true}
	force := lease.ForceRequest{Key: "k", Token: 3, By: "me", Reason: "why"}
	for _, tt := range []struct {
		frame Request
		want  any
		back  func(*Request) any
	}{
		{Open(1, &options), options, func(r *Request) any { return r.Session() }},
		{List(1, &query), query, func(r *Request) any { return r.Query() }},
		{Watch(1, &query), lease.Query{Prefix: "p"}, func(r *Request) any { return r.Query() }},
		{Watch(1, &lease.Query{Key: "k", Prefix: "p"}), lease.Query{Key: "k"}, func(r *Request) any { return r.Query() }},
		{Force(1, &force), force, func(r *Request) any { return r.Force() }},
	} {
		var far Request
		line := AppendRequest(nil, &tt.frame)
		if err := DecodeRequest(line, &far); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := tt.back(&far); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s\n got %+v\nwant %+v", line, got, tt.want)
		}
	}
}

// Durations that are asked for never become none, and what is left is never more
// than it was.
func TestRounding(t *testing.T) {
	for d, want := range map[time.Duration]int64{1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -1: -1, 0: 0} {
		if got := ceil(d); got != want {
			t.Errorf("ceil(%v) = %d, want %d", d, got, want)
		}
	}
	for d, want := range map[time.Duration]int64{1: 0, 2*time.Millisecond - 1: 1, -5: 0} {
		if got := floor(d); got != want {
			t.Errorf("floor(%v) = %d, want %d", d, got, want)
		}
	}
}

// The frames of a lone caller's round trip cost few allocations: the key, the
// id and the holds that outlive the frame.
func TestAllocations(t *testing.T) {
	var q Request
	var r Reply
	acquire := []byte(`{"n":5,"do":"acquire","id":"9f3c2a","key":"deploy","ttl":30000}`)
	grant := []byte(`{"n":5,"ok":true,"id":"9f3c2a","key":"deploy","token":17,"ttl":30000,"elapsed":0,"remaining":30000,"waited":0}`)
	buf := make([]byte, 0, 1024)
	for name, tt := range map[string]struct {
		most float64
		run  func() error
	}{
		"decode acquire": {2, func() error { return DecodeRequest(acquire, &q) }},
		"decode grant":   {2, func() error { return DecodeReply(grant, &r) }},
		"encode acquire": {0, func() error { buf = AppendRequest(buf[:0], &q); return nil }},
		"encode grant":   {0, func() error { buf = AppendReply(buf[:0], &r); return nil }},
	} {
		if err := tt.run(); err != nil {
			t.Fatal(err)
		}
		if got := testing.AllocsPerRun(100, func() { _ = tt.run() }); got > tt.most {
			t.Errorf("%s allocates %v times, want at most %v", name, got, tt.most)
		}
	}
}

func BenchmarkFrames(b *testing.B) {
	var q Request
	var r Reply
	acquire := []byte(`{"n":5,"do":"acquire","id":"9f3c2a","key":"deploy","ttl":30000}`)
	grant := []byte(`{"n":5,"ok":true,"id":"9f3c2a","key":"deploy","token":17,"ttl":30000,"elapsed":0,"remaining":30000,"waited":0}`)
	buf := make([]byte, 0, 1024)
	b.Run("decode acquire", func(b *testing.B) {
		for b.Loop() {
			if err := DecodeRequest(acquire, &q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode grant", func(b *testing.B) {
		for b.Loop() {
			if err := DecodeReply(grant, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode acquire", func(b *testing.B) {
		for b.Loop() {
			buf = AppendRequest(buf[:0], &q)
		}
	})
	b.Run("encode grant", func(b *testing.B) {
		for b.Loop() {
			buf = AppendReply(buf[:0], &r)
		}
	})
}
