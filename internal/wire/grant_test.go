package wire

import (
	"reflect"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// asReply is what DecodeReply makes of the same line.
func (g *Grant) asReply() Reply {
	return Reply{Kind: OK, N: g.N, ID: string(g.ID), Key: string(g.Key), Token: g.Token, TTL: g.TTL, Elapsed: g.Elapsed,
		Remaining: g.Remaining, Waited: g.Waited, Detached: g.Detached}
}

func grants() []Reply {
	hold := []lease.Hold{{Key: "deploy/ä", Token: 17}}
	now := time.Now()
	some := lease.Lease{ID: "9f3c2a", Holds: hold, TTL: 30 * time.Second, Deadline: now.Add(29 * time.Second), Waited: time.Second}
	kept, forever := some, some
	kept.Detached = true
	forever.TTL, forever.Deadline = lease.Forever, time.Time{}
	return []Reply{Granted(1, &some, now, now), Granted(2, &kept, now, now), Granted(3, &forever, now, now), Ended(1<<53-1, &some)}
}

// Every answer about one key has the shape that is scanned, and nothing else has.
func TestScanGrant(t *testing.T) {
	for _, r := range grants() {
		line := AppendReply(nil, &r)
		line = line[:len(line)-1]
		var g Grant
		if !ScanGrant(line, &g) {
			t.Errorf("not scanned: %s", line)
		} else if got := g.asReply(); !reflect.DeepEqual(got, r) {
			t.Errorf("%s\n got %+v\nwant %+v", line, got, r)
		}
		for i := range line {
			if ScanGrant(line[:i], &g) {
				t.Errorf("scanned a part: %s", line[:i])
			}
		}
		if ScanGrant(append(line, ' '), &g) {
			t.Errorf("scanned with a rest: %s", line)
		}
	}
	many := lease.Lease{ID: "x", Holds: []lease.Hold{{Key: "a", Token: 1}, {Key: "b", Token: 2}}, TTL: time.Second}
	escaped := lease.Lease{ID: "x", Holds: []lease.Hold{{Key: "\n", Token: 1}}, TTL: time.Second}
	for _, r := range []Reply{Ended(1, &many), Ended(1, &escaped), {Kind: OK, N: 1}, Failure(1, "renew", lease.ErrNotHeld),
		{Kind: OK, N: 4, Session: "s"}, Lost(lease.Notice{ID: "x", Key: "k", Token: 3, Code: lease.ErrExpired})} {
		var g Grant
		if line := AppendReply(nil, &r); ScanGrant(line[:len(line)-1], &g) {
			t.Errorf("scanned: %s", line)
		}
	}
}

// What is scanned is what is decoded.
func FuzzScanGrant(f *testing.F) {
	for _, r := range grants() {
		line := AppendReply(nil, &r)
		f.Add(line[:len(line)-1])
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var g Grant
		if !ScanGrant(line, &g) {
			return
		}
		var r Reply
		if err := DecodeReply(line, &r); err != nil {
			if text := string(g.ID) + string(g.Key); string([]rune(text)) == text {
				t.Fatalf("%q: scanned as %+v, decoded as %v", line, g, err)
			}
			return // text that is not UTF-8 is for the caller to compare
		}
		if got := g.asReply(); !reflect.DeepEqual(got, r) {
			t.Fatalf("%q\nscanned %+v\ndecoded %+v", line, got, r)
		}
	})
}
