package leaseremote

import (
	"bufio"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// resumeBeside resumes a session on a connection of its own, as a frame of a
// connection that was given up does when the broker comes to it late.
func (b *broker) resumeBeside(id string) net.Conn {
	b.t.Helper()
	nc, err := b.dial(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { nc.Close() })
	in := bufio.NewReader(nc)
	for _, line := range []string{`{"latchkey":1}`, `{"n":1,"do":"open","resume":"` + id + `"}`} {
		if _, err := nc.Write([]byte(line + "\n")); err != nil {
			b.t.Fatal(err)
		}
		if answer, err := in.ReadString('\n'); err != nil || strings.Contains(answer, `"ok":false`) {
			b.t.Fatalf("%s: %s %v", line, answer, err)
		}
	}
	return nc
}

// A client that gave up an attempt to resume, and whose next one came through, is
// not driven out by the first when the broker comes to it at last: nothing is
// lost, and who waits keeps the place. Somebody who has copied the id still ends
// the session.
func TestOwnAbandonedResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		other := open(t, v, lease.SessionOptions{Grace: lease.MaxGrace})
		other.ask(one("k")).ok()
		u := open(t, v, lease.SessionOptions{Name: "u"})
		l := u.ask(lease.Request{ID: "x", Keys: []string{"a"}, TTL: lease.Forever}).ok()
		next := u.ask(lease.Request{ID: "w", Keys: []string{"k"}})
		next.pending()
		id := u.s.ID()
		b.once(drop, false, `"resume":"`+id+`"`)
		b.cut()
		time.Sleep(2 * time.Second)
		if left := time.Until(u.s.Deadline()); left < time.Second {
			t.Fatalf("the deadline is %v ahead: it did not resume", left)
		}
		late := b.resumeBeside(id)
		synctest.Wait()
		late.Close()
		time.Sleep(1500 * time.Millisecond) // not when a ping is due, which could meet a closed relay
		u.do(lease.Command{Verb: lease.Renew, ID: "x"}).ok()
		next.pending()
		if got := b.holders("a"); len(got) != 1 || got[0] != l.Token() || u.s.ID() != id {
			t.Fatalf("holders %v, want %v", got, l.Token())
		}
		if n := u.notices(); len(n) != 0 {
			t.Fatalf("notices %+v, want none", n)
		}
		other.do(lease.Command{Verb: lease.Release, ID: "id-k"}).ok()
		next.ok()

		b.resumeBeside(id)
		synctest.Wait()
		u.do(lease.Command{Verb: lease.Renew, ID: "x"}).fails(lease.ErrSessionLost)
		if d := u.s.Deadline(); d.After(time.Now()) {
			t.Fatalf("the session that was taken over looks good until %v", d)
		}
	})
}

// The takeover may be told in place of the answer to the open. It is no word on
// the end of the session, so that no hold is reported lost.
func TestTakenOverWhileResuming(t *testing.T) {
	for _, excused := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			var steal atomic.Bool
			b.lie = func(fromBroker bool, line string) string {
				if fromBroker && strings.Contains(line, `"leases"`) && steal.Swap(false) {
					return `{"ok":false,"code":"session_lost","reason":"another connection resumed the session"}` + "\n"
				}
				return line
			}
			u := open(t, b.connect(), lease.SessionOptions{})
			u.ask(lease.Request{ID: "x", Keys: []string{"a"}, TTL: lease.Forever}).ok()
			if excused {
				b.once(drop, false, `"resume"`)
			}
			steal.Store(true)
			b.cut()
			time.Sleep(2500 * time.Millisecond)
			renew := u.do(lease.Command{Verb: lease.Renew, ID: "x"})
			if excused {
				renew.ok()
			} else {
				renew.fails(lease.ErrSessionLost)
			}
			if n := u.notices(); len(n) != 0 {
				t.Fatalf("notices %+v, want none", n)
			}
		})
	}
}

// An answer that is of another session, or of other keys, than was asked for
// vouches for nothing: the connection is given up, and the next one asks again.
func TestAnswersOfSomethingElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		var lies atomic.Int32
		b.lie = func(fromBroker bool, line string) string {
			was := line
			switch {
			case !fromBroker || lies.Load() == 0:
			case strings.Contains(line, `"leases"`):
				line = strings.Replace(line, `"session":"`, `"session":"X`, 1)
			case strings.Contains(line, `"key":"b","token"`):
				line = strings.Replace(line, `"key":"b"`, `"key":"z"`, 1)
			case strings.Contains(line, `"keys":["c","d"]`):
				line = strings.Replace(line, `"keys":["c","d"]`, `"keys":["c","z"]`, 1)
			}
			if line != was {
				lies.Add(-1)
			}
			return line
		}
		u := open(t, b.connect(), lease.SessionOptions{})
		u.ask(lease.Request{ID: "x", Keys: []string{"a"}, TTL: lease.Forever}).ok()
		lies.Store(1)
		b.cut()
		time.Sleep(500 * time.Millisecond)
		u.do(lease.Command{Verb: lease.Renew, ID: "x"}).ok()
		for _, keys := range [][]string{{"b"}, {"c", "d"}} {
			lies.Store(1)
			l := u.ask(lease.Request{ID: keys[0], Keys: keys, TTL: lease.Forever}).ok()
			for i, h := range l.Holds {
				if h.Key != keys[i] {
					t.Errorf("granted %v, want %v", l.Holds, keys)
				}
			}
			if lies.Load() != 0 {
				t.Errorf("no lie was told of %v", keys)
			}
		}
		if n := u.notices(); len(n) != 0 {
			t.Fatalf("notices %+v, want none", n)
		}
	})
}
