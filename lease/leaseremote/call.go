package leaseremote

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// call is one request of a session from the moment it is made to the one
// callback with its outcome.
type call struct {
	n      uint64 // names it on every connection it is sent on
	do     wire.Op
	req    lease.Request // of an acquire, normalized
	cmd    lease.Command // of the commands
	caller lease.Caller  // of an acquire
	done   func(lease.Lease, error)

	start  time.Time    // when it was made
	sent   time.Time    // when it was last appended to a connection; zero if never
	awake  asleep.Mark  // made before that
	told   bool         // Queued was called
	again  bool         // it was sent on an earlier connection, so it may have been carried out
	parked bool         // a broker that closes sent it back: nothing was done
	ours   bool         // made by the session itself; nobody waits for the outcome
	fouls  int          // connections that ended in a breach of protocol while it was on them
	mine   bool         // of a release: it named a hold of this session when it was made, or one that was told lost
	hold   *lease.Lease // of a release or detach: that hold, once the broker does not list it any more
	oneKey [1]string    // where req.Keys points for a single key
}

// newCall returns a call that is not in use.
func (v *Service) newCall() *call {
	if c, ok := v.idle.Get().(*call); ok {
		return c
	}
	return new(call)
}

// recycle takes back a call whose outcome was told. Nothing points to it then:
// what is unanswered is in session.calls, what is answered in session.ready.
func (v *Service) recycle(c *call) {
	*c = call{}
	v.idle.Put(c)
}

// newAcquire makes the call of a request. The caller's slices are not kept.
func (v *Service) newAcquire(r *lease.Request, who lease.Caller) *call {
	c := v.newCall()
	c.do, c.req, c.caller = wire.OpAcquire, *r, who
	if len(r.Keys) == 1 {
		c.oneKey[0] = r.Keys[0]
		c.req.Keys = c.oneKey[:]
	}
	if len(r.Declared) > 0 {
		c.req.Declared = slices.Clone(r.Declared)
	}
	return c
}

func (v *Service) newCommand(cmd *lease.Command, done func(lease.Lease, error)) *call {
	c := v.newCall()
	c.cmd, c.done = *cmd, done
	switch cmd.Verb {
	case lease.Ping:
		c.do = wire.OpPing
	case lease.Renew:
		c.do = wire.OpRenew
	case lease.Release:
		c.do = wire.OpRelease
	case lease.Detach:
		c.do = wire.OpDetach
	case lease.Cancel:
		c.do = wire.OpCancel
	}
	return c
}

// checkCommand refuses what would not make a valid frame: one bad frame must not
// cost the connection that many calls share.
func checkCommand(cmd *lease.Command) error {
	switch cmd.Verb {
	case lease.Ping:
		return nil
	case lease.Renew:
		if cmd.TTL != 0 {
			ttl, err := lease.NormalizeTTL(cmd.TTL)
			if err != nil {
				return err
			}
			cmd.TTL = ttl
		}
	case lease.Release, lease.Detach:
	case lease.Cancel:
		if cmd.ID == "" {
			return lease.Refuse("cancel needs the id of the request")
		}
	default:
		return lease.Refuse("verb %d is not a verb", uint8(cmd.Verb))
	}
	switch {
	case cmd.ID == "" && cmd.Token == 0:
		return lease.Refuse("%s needs the id or the token of the hold", cmd.Verb)
	case cmd.Token >= lease.MaxToken:
		return lease.Refuse("token %d is not below 2^53 (MaxToken)", cmd.Token)
	case cmd.Key != "":
		if err := lease.CheckKey(cmd.Key); err != nil {
			return err
		}
	}
	return checkID("id", cmd.ID)
}

// frame sets q to what is sent now. Durations that count from the start of the
// call are those that are left.
func (c *call) frame(q *wire.Request, now time.Time) {
	switch c.do {
	case wire.OpAcquire:
		*q = wire.Acquire(c.n, &c.req)
		if age := now.Sub(c.start); age >= time.Millisecond {
			q.Waited = min(c.req.Waited+age, lease.MaxWait)
			if q.Wait > 0 {
				q.Wait = max(q.Wait-age, time.Millisecond)
			}
		}
	case wire.OpClose:
		*q = wire.Request{N: c.n, Do: wire.OpClose}
	default:
		*q = wire.Command(c.n, &c.cmd)
	}
}

// waits reports whether the call may wait for its turn, and so for a broker
// that is away.
func (c *call) waits() bool { return c.do == wire.OpAcquire && !c.req.Try }

// leavesHold reports whether the call, if it was carried out, left something that
// outlives the session.
func (c *call) leavesHold() bool {
	return c.do == wire.OpAcquire && c.req.Detach || c.do == wire.OpDetach
}

// ends reports whether the call, once carried out, leaves no hold behind.
func (c *call) ends() bool { return c.do == wire.OpRelease || c.do == wire.OpCancel }

// about reports whether a command is about a hold of the lease with this id.
func (c *call) about(id string, x lease.Hold) bool {
	if c.cmd.ID == "" {
		return c.cmd.Token != 0 && x.Token == c.cmd.Token
	}
	return c.cmd.ID == id && (c.cmd.Key == "" || c.cmd.Key == x.Key)
}

// key is the key to name in an error.
func (c *call) key() string {
	if c.do == wire.OpAcquire && len(c.req.Keys) > 0 {
		return c.req.Keys[0]
	}
	return c.cmd.Key
}

// fail makes an error about the call.
func (c *call) fail(code lease.Code, reason string, cause error) error {
	if x, ok := cause.(*lease.Error); ok {
		// Its code must not match beside ours.
		reason, cause = reason+": "+x.Error(), nil
	}
	return &lease.Error{Code: code, Op: c.do.String(), Key: c.key(), Reason: reason, Cause: cause}
}

// name fills in what an error of this side does not say: the operation.
func (c *call) name(err error) error {
	if x, ok := err.(*lease.Error); ok && x.Op == "" {
		x.Op = c.do.String()
	}
	return err
}
