package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// script writes histories by hand. Each operation is called and answered at
// stamps given by the test; stamp n was taken n milliseconds after the start.
type script struct{ h history.History }

func newScript() *script {
	s := &script{}
	for i := range 101 {
		s.h.Times = append(s.h.Times, time.Duration(i)*time.Millisecond)
	}
	return s
}

func (s *script) add(o history.Op) *script {
	if o.Owner == 0 {
		o.Owner = o.Session
	}
	s.h.Ops = append(s.h.Ops, o)
	return s
}

const ms = time.Millisecond

// granted is an acquire of one key that was granted for 1000 ms.
func granted(session int, id, key string, token lease.Token, call, ret history.Stamp) history.Op {
	return history.Op{Kind: history.Acquire, Session: session, ID: id, Call: call, Return: ret,
		Request: lease.Request{ID: id, Keys: []string{key}, TTL: time.Second},
		Held:    []lease.Hold{{Key: key, Token: token}}, Until: time.Second}
}

func shared(o history.Op) history.Op {
	o.Request.Mode = lease.Shared
	return o
}

func counted(limit int, o history.Op) history.Op {
	o.Request.Mode, o.Request.Limit = lease.Counted, limit
	return o
}

func until(d time.Duration, o history.Op) history.Op {
	o.Until, o.Request.TTL = d, d
	return o
}

// set is a grant of several keys, with tokens that follow one another.
func set(session int, id string, token lease.Token, call, ret history.Stamp, keys ...string) history.Op {
	o := granted(session, id, keys[0], token, call, ret)
	o.Request.Keys, o.Held = keys, nil
	for i, k := range keys {
		o.Held = append(o.Held, lease.Hold{Key: k, Token: token + lease.Token(i)})
	}
	return o
}

// command is a command on a hold of one key that succeeded, or failed with code.
func command(kind history.Kind, session int, id, key string, token lease.Token, call, ret history.Stamp, code lease.Code) history.Op {
	o := history.Op{Kind: kind, Session: session, ID: id, Call: call, Return: ret, Code: code}
	if code == "" && token != 0 {
		o.Held = []lease.Hold{{Key: key, Token: token}}
	}
	if kind == history.Renew {
		o.Until = time.Second
	}
	return o
}

func released(session int, id, key string, token lease.Token, call, ret history.Stamp) history.Op {
	return command(history.Release, session, id, key, token, call, ret, "")
}

// releasedKey is a release by token, of one key.
func releasedKey(session int, key string, token lease.Token, call, ret history.Stamp) history.Op {
	o := released(session, "", key, token, call, ret)
	o.Token = token
	return o
}

func unanswered(o history.Op) history.Op {
	o.Return, o.Held, o.Until = 0, nil, 0
	return o
}

// TestPlanted shows histories that no service may give, each beside one that
// differs in what makes it right. The checker must tell them apart.
func TestPlanted(t *testing.T) {
	for _, tt := range []struct {
		name      string
		good, bad *script
		says      string
	}{
		{"two exclusive holders",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(released(1, "a", "k", 1, 3, 5)).add(granted(2, "b", "k", 2, 4, 6)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(granted(2, "b", "k", 2, 3, 4)).add(released(1, "a", "k", 1, 5, 6)),
			"no order"},
		{"shared beside exclusive",
			newScript().add(shared(granted(1, "a", "k", 1, 1, 2))).add(shared(granted(2, "b", "k", 2, 3, 4))),
			newScript().add(shared(granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 3, 4)),
			"no order"},
		{"counted beside shared",
			newScript().add(counted(5, granted(1, "a", "k", 1, 1, 2))).add(counted(5, granted(2, "b", "k", 2, 3, 4))),
			newScript().add(counted(5, granted(1, "a", "k", 1, 1, 2))).add(shared(granted(2, "b", "k", 2, 3, 4))),
			"no order"},
		{"counted over the limit",
			newScript().add(counted(2, granted(1, "a", "k", 1, 1, 2))).add(counted(3, granted(2, "b", "k", 2, 3, 4))),
			newScript().add(counted(2, granted(1, "a", "k", 1, 1, 2))).add(counted(3, granted(2, "b", "k", 2, 3, 4))).
				add(counted(3, granted(3, "c", "k", 3, 5, 6))),
			"no order"},
		{"the newcomer's limit counts",
			newScript().add(counted(3, granted(1, "a", "k", 1, 1, 2))).add(counted(2, granted(2, "b", "k", 2, 3, 4))),
			newScript().add(counted(3, granted(1, "a", "k", 1, 1, 2))).add(counted(1, granted(2, "b", "k", 2, 3, 4))),
			"no order"},
		{"a token given twice",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(granted(2, "b", "l", 2, 3, 4)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(granted(2, "b", "l", 1, 3, 4)),
			"token 1 was given to"},
		{"a token that falls",
			newScript().add(granted(1, "a", "k", 7, 1, 2)).add(released(1, "a", "k", 7, 3, 4)).add(granted(2, "b", "k", 8, 5, 6)),
			newScript().add(granted(1, "a", "k", 7, 1, 2)).add(released(1, "a", "k", 7, 3, 4)).add(granted(2, "b", "k", 6, 5, 6)),
			"no order"},
		{"a hold that changes its token",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(command(history.Renew, 1, "a", "k", 1, 3, 4, "")),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(command(history.Renew, 1, "a", "k", 2, 3, 4, "")),
			"token 1 and token 2"},
		{"granted after its cancel",
			newScript().add(granted(1, "a", "k", 1, 1, 4)).add(command(history.Cancel, 1, "a", "", 0, 3, 6, "")),
			newScript().add(granted(1, "a", "k", 1, 1, 8)).add(command(history.Cancel, 1, "a", "", 0, 3, 4, "")).
				add(command(history.Renew, 1, "a", "k", 1, 9, 10, "")),
			"no order"},
		{"cancelled and still in the way",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(command(history.Cancel, 1, "a", "", 0, 3, 4, "")).add(granted(2, "b", "k", 2, 5, 6)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(command(history.Cancel, 1, "a", "", 0, 3, 4, "")).
				add(command(history.Release, 1, "a", "k", 1, 5, 6, "")),
			"no order"},
		{"ended before its promise",
			newScript().add(until(40*ms, granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 3, 45)),
			newScript().add(until(40*ms, granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 3, 35)),
			"no order"},
		{"told of an expiry before it was due",
			newScript().add(until(40*ms, granted(1, "a", "k", 1, 1, 2))).add(history.Op{Kind: history.Lost, Session: 1, ID: "a",
				Held: []lease.Hold{{Key: "k", Token: 1}}, Code: lease.ErrExpired, Call: 41, Return: 41}),
			newScript().add(until(40*ms, granted(1, "a", "k", 1, 1, 2))).add(history.Op{Kind: history.Lost, Session: 1, ID: "a",
				Held: []lease.Hold{{Key: "k", Token: 1}}, Code: lease.ErrExpired, Call: 39, Return: 39}),
			"promised until 40ms"},
		{"told of its end and still in the way",
			newScript().add(until(20*ms, granted(1, "a", "k", 1, 1, 2))).add(command(history.Renew, 1, "a", "k", 0, 25, 26, lease.ErrNotHeld)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(command(history.Renew, 1, "a", "k", 0, 25, 26, lease.ErrNotHeld)),
			"no order"},
		{"a renewal that did not hold",
			newScript().add(until(20*ms, granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 3, 30)),
			newScript().add(until(20*ms, granted(1, "a", "k", 1, 1, 2))).add(command(history.Renew, 1, "a", "k", 1, 10, 11, "")).
				add(granted(2, "b", "k", 2, 12, 30)),
			"no order"},
		{"a set granted beside one of its keys",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(released(1, "a", "k", 1, 3, 8)).add(set(2, "b", 2, 4, 9, "j", "k")),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(set(2, "b", 2, 4, 6, "j", "k")).add(released(1, "a", "k", 1, 7, 8)),
			"no order"},
		{"sets granted key by key",
			newScript().add(set(1, "a", 1, 1, 5, "j", "k")).add(releasedKey(1, "j", 1, 6, 7)).add(granted(2, "b", "j", 3, 8, 9)).
				add(command(history.Renew, 1, "a", "k", 2, 10, 11, "")),
			// Each key alone is explained: a had j first and b had k first. Together they are not.
			newScript().add(history.Op{Kind: history.Acquire, Session: 1, ID: "a", Call: 1, Return: 8, Until: time.Second,
				Request: lease.Request{ID: "a", Keys: []string{"j", "k"}}, Held: []lease.Hold{{Key: "j", Token: 1}, {Key: "k", Token: 4}}}).
				add(history.Op{Kind: history.Acquire, Session: 2, ID: "b", Call: 1, Return: 8, Until: time.Second,
					Request: lease.Request{ID: "b", Keys: []string{"j", "k"}, Mode: lease.Shared},
					Held:    []lease.Hold{{Key: "j", Token: 3}, {Key: "k", Token: 2}}}).
				add(releasedKey(1, "j", 1, 2, 9)).add(releasedKey(2, "k", 2, 2, 9)),
			"no order"},
		{"a force that left a holder",
			newScript().add(shared(granted(1, "a", "k", 1, 1, 2))).add(force("k", 0, 3, 4, 9, 1)),
			newScript().add(shared(granted(1, "a", "k", 1, 1, 2))).add(shared(granted(2, "b", "k", 2, 1, 2))).add(force("k", 0, 3, 4, 9, 1)),
			"no order"},
		{"a fence below what it fences",
			newScript().add(granted(1, "a", "k", 5, 1, 2)).add(force("k", 0, 3, 4, 6, 5)),
			newScript().add(granted(1, "a", "k", 5, 1, 2)).add(force("k", 0, 3, 4, 4, 5)),
			"fences with 4"},
		{"a fence that the next grant is below",
			newScript().add(granted(1, "a", "k", 5, 1, 2)).add(force("k", 0, 3, 4, 6, 5)).add(granted(2, "b", "k", 7, 5, 6)),
			newScript().add(granted(1, "a", "k", 5, 1, 2)).add(force("k", 0, 3, 4, 9, 5)).add(granted(2, "b", "k", 7, 5, 6)),
			"no order"},
		{"a goodbye that kept a hold",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Close, Session: 1, Call: 3, Return: 4}).
				add(granted(2, "b", "k", 2, 5, 6)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Close, Session: 1, Call: 3, Return: 4}).
				add(history.Op{Kind: history.Release, Session: 2, ID: "a", Owner: 1, Call: 5, Return: 6, Held: []lease.Hold{{Key: "k", Token: 1}}}),
			"no order"},
		{"a resume that forgot a hold",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Resume, Session: 1, Call: 3, Return: 4,
				Leases: []lease.Lease{{ID: "a", Holds: []lease.Hold{{Key: "k", Token: 1}}}}}),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Resume, Session: 1, Call: 3, Return: 4}),
			"no order"},
		{"a stranger's hold in a resume",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Resume, Session: 1, Call: 3, Return: 4,
				Leases: []lease.Lease{{ID: "a", Holds: []lease.Hold{{Key: "k", Token: 1}}}}}),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(history.Op{Kind: history.Resume, Session: 2, Call: 3, Return: 4,
				Leases: []lease.Lease{{ID: "a", Holds: []lease.Hold{{Key: "k", Token: 1}}}}}),
			"never asked"},
		{"an unknown grant that was one",
			newScript().add(unanswered(granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 5, 6)),
			newScript().add(unanswered(granted(1, "a", "k", 1, 1, 2))).add(granted(2, "b", "k", 2, 5, 6)).
				add(command(history.Renew, 2, "b", "k", 2, 9, 10, "")).add(released(1, "a", "k", 1, 7, 8)),
			"no order"},
		{"an unknown release",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(unanswered(released(1, "a", "k", 1, 3, 4))).add(granted(2, "b", "k", 2, 5, 6)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(granted(2, "b", "k", 2, 3, 6)).add(unanswered(released(1, "a", "k", 1, 7, 8))),
			"no order"},
		{"told of a loss after its release",
			newScript().add(until(20*ms, granted(1, "a", "k", 1, 1, 2))).add(released(1, "a", "k", 1, 3, 4)),
			newScript().add(until(20*ms, granted(1, "a", "k", 1, 1, 2))).add(released(1, "a", "k", 1, 3, 4)).
				add(history.Op{Kind: history.Lost, Session: 1, ID: "a", Held: []lease.Hold{{Key: "k", Token: 1}}, Code: lease.ErrExpired, Call: 30, Return: 30}),
			"released and lost"},
		{"passed in the queue",
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(queued(3, granted(2, "b", "k", 2, 2, 9))).
				add(queued(5, granted(3, "c", "k", 3, 4, 20))).add(released(1, "a", "k", 1, 6, 7)).add(released(2, "b", "k", 2, 10, 11)),
			newScript().add(granted(1, "a", "k", 1, 1, 2)).add(queued(3, granted(2, "b", "k", 3, 2, 20))).
				add(queued(5, granted(3, "c", "k", 2, 4, 9))).add(released(1, "a", "k", 1, 6, 7)).add(released(3, "c", "k", 2, 10, 11)),
			"passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.good.h.Check(); err != nil {
				t.Errorf("the right history is rejected: %v", err)
			}
			err := tt.bad.h.Check()
			if err == nil {
				t.Fatal("the wrong history is explained")
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("rejected with %q, want it to say %q", err, tt.says)
			}
		})
	}
}

func force(key string, token lease.Token, call, ret history.Stamp, fence lease.Token, ended ...lease.Token) history.Op {
	o := history.Op{Kind: history.Force, Token: token, Call: call, Return: ret, Fence: fence,
		Request: lease.Request{Keys: []string{key}}}
	for _, t := range ended {
		o.Held = append(o.Held, lease.Hold{Key: key, Token: t})
	}
	return o
}

func queued(at history.Stamp, o history.Op) history.Op {
	o.Queued = at
	return o
}
