package wire

import (
	"reflect"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// A request survives the way there: what one end appends, the other decodes.
func TestRequestRoundTrip(t *testing.T) {
	requests := []Request{
		{N: 1, Do: OpOpen, Name: "worker", Host: "h", PID: 7, Grace: 10 * time.Second, Resume: "abc"},
		{N: 1, Do: OpOpen, Grace: lease.NoGrace},
		{N: 1, Do: OpOpen},
		{N: 2, Do: OpAcquire, Key: "a"},
		{N: 2, Do: OpAcquire, Key: "a\n\"\\\u0001 ü 🔑"},
		{N: 1<<53 - 1, Do: OpAcquire, ID: "i", Keys: []string{"a", "b"}, Mode: lease.Counted, Max: 3, TTL: time.Second,
			Wait: time.Minute, Waited: time.Millisecond, MaxHold: time.Hour, LockDelay: time.Second, Detach: true,
			Label: "l", Declared: []string{"x", "y"}},
		{N: 3, Do: OpAcquire, Key: "a", Mode: lease.Shared, TTL: lease.Forever, Try: true, PreferReaders: true},
		{N: 4, Do: OpRenew, ID: "i", TTL: time.Second},
		{N: 4, Do: OpRenew, Token: 9, TTL: lease.Forever},
		{N: 5, Do: OpRelease, Token: lease.MaxToken - 1},
		{N: 6, Do: OpDetach, ID: "i"},
		{N: 7, Do: OpCancel, ID: "i"},
		{N: 8, Do: OpPing},
		{N: 9, Do: OpClose},
		{N: 10, Do: OpList, Prefix: "p", After: "q", Limit: 5},
		{N: 10, Do: OpList, Key: "k", Contended: true},
		{N: 11, Do: OpWatch, Prefix: "p"},
		{N: 12, Do: OpUnwatch, Watch: 11},
		{N: 13, Do: OpForce, Key: "k", Token: 4, By: "me", Reason: "stuck"},
		{N: 14, Do: OpStats},
	}
	for _, want := range requests {
		line := AppendRequest(nil, &want)
		var got Request
		if err := DecodeRequest(line, &got); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", line, got, want)
		}
	}
}

// A reply survives the way back.
func TestReplyRoundTrip(t *testing.T) {
	party := lease.Party{Session: "s", Host: "h", PID: 3, Label: "l"}
	holders := []lease.Holder{
		{Party: party, Token: 5, Since: time.Second, TTL: time.Minute, Remaining: 59 * time.Second, Detached: true},
		{Mode: lease.Counted, Limit: 2, Token: 6, TTL: lease.Forever, Remaining: lease.Forever, Broken: true},
	}
	waiters := []lease.Waiter{
		{Party: party, Mode: lease.Shared, Keys: 2, Age: time.Second, Left: lease.Forever},
		{Keys: 1, Left: time.Minute, Broken: true},
	}
	st := lease.Stats{Service: "local", Durability: "memory", Fencing: "clock", Uptime: time.Hour, Granted: 7, LastToken: 8}
	st.Wait.Observe(3 * time.Microsecond)
	replies := []Reply{
		{Kind: OK, N: 1, Session: "id", Grace: 3 * time.Second},
		{Kind: OK, N: 1, Session: "id", Grace: lease.NoGrace, Elapsed: time.Millisecond, Leases: []Resumed{
			{Lease: lease.Lease{ID: "i", Holds: []lease.Hold{{Key: "a", Token: 3}}, TTL: time.Second}, Remaining: time.Millisecond},
			{Lease: lease.Lease{ID: "j", Holds: []lease.Hold{{Key: "b", Token: 4}, {Key: "c", Token: 5}}, TTL: lease.Forever,
				Waited: time.Second, Detached: true}, Remaining: lease.Forever},
		}},
		{Kind: OK, N: 2},
		{Kind: OK, N: 5, ID: "i", Key: "a", Token: 17, TTL: 30 * time.Second, Remaining: 29998 * time.Millisecond},
		{Kind: OK, N: 5, ID: "i", Keys: []string{"a", "b"}, Tokens: []lease.Token{17, 18}, TTL: lease.Forever, Remaining: lease.Forever, Detached: true},
		{Kind: OK, N: 5, ID: "capped", Key: "a", Token: 17, TTL: lease.Forever, Remaining: time.Minute},
		{Kind: OK, N: 6, Key: "a", Token: 17, Fence: 18},
		{Kind: OK, N: 7, Infos: []lease.KeyInfo{{Key: "k", Holders: holders, Waiters: waiters, Waiting: 2, Delay: time.Second}}, More: true},
		{Kind: OK, N: 8, Stats: &st},
		{Kind: Failed, N: 9, Code: lease.ErrBusy, Op: "acquire", Key: "a", Reason: "r", Holders: holders},
		{Kind: Failed, N: 9, Code: lease.ErrDeadlock, Cycle: []lease.Wait{{Who: "x", Key: "a"}, {Who: "y", Key: "b"}}},
		{Kind: Failed, Code: lease.ErrProtocol, Reason: "not JSON"},
		{Kind: Waiting, N: 10, ID: "i", Key: "a", Position: 2, Holders: holders},
		{Kind: Part, N: 11, Leases: []Resumed{{Lease: lease.Lease{ID: "i", TTL: time.Second}}}},
		{Kind: Event, N: 12, Event: lease.EventGranted, Key: "a", Session: "s", Host: "h", PID: 1, Label: "l",
			Mode: lease.Counted, Limit: 3, Token: 9, After: time.Second},
		{Kind: Event, N: 12, Event: lease.EventDequeued, Key: "a", Code: lease.ErrTimeout},
		{Kind: Event, N: 12, Event: lease.EventGap},
		{Kind: Notice, ID: "i", Key: "a", Token: 4, Code: lease.ErrForced, By: "me"},
		{Kind: Notice, Code: lease.ErrSessionLost},
	}
	for _, want := range replies {
		line := AppendReply(nil, &want)
		var got Reply
		if err := DecodeReply(line, &got); err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", line, got, want)
		}
	}
}
