package wire

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// replyDecoder fills a Reply.
type replyDecoder struct {
	decoder
	reply *Reply
	ok    int8 // the value of ok: 1 true, -1 false, 0 absent
	lost  bool
}

// DecodeReply fills r from one line. The error is a *lease.Error with
// lease.ErrProtocol: the connection has no future. r keeps no part of line.
func DecodeReply(line []byte, r *Reply) error {
	*r = Reply{Remaining: absent}
	d := replyDecoder{decoder: decoder{scanner: scanner{data: line}}, reply: r}
	if d.peek() != '{' {
		return notObject(line)
	}
	d.pos++
	for first := true; d.more('}', first); first = false {
		d.value(d.name())
	}
	d.finish()
	switch {
	case d.err != "":
		return protocolError("not JSON: %s at byte %d", d.err, d.at+1)
	case d.wrong != "":
		return protocolError("%s", d.wrong)
	}
	return d.verdict()
}

// absent marks a remaining time that the frame did not have.
const absent = -1

// left is what remains of a ttl: for ever if the ttl is and nothing else was said.
func left(remaining, ttl time.Duration) time.Duration {
	switch {
	case remaining != absent:
		return remaining
	case ttl == lease.Forever:
		return lease.Forever
	}
	return 0
}

// verdict finds the kind of the frame and checks what belongs to it.
func (d *replyDecoder) verdict() error {
	r := d.reply
	r.Remaining = left(r.Remaining, r.TTL)
	if len(r.Keys) != len(r.Tokens) {
		return protocolError("%d keys with %d tokens", len(r.Keys), len(r.Tokens))
	}
	switch {
	case d.ok > 0:
		r.Kind = OK
	case d.ok < 0:
		if r.Kind = Failed; r.Code == "" {
			return protocolError("a failure without a code")
		}
		return nil
	case d.lost:
		r.Kind = Notice
		return nil
	case r.Event != "":
		r.Kind = Event
	case r.Kind == Waiting:
	case r.Leases != nil:
		r.Kind = Part
	default:
		return protocolError("a frame that is neither an answer, an event nor a notice")
	}
	if r.N == 0 {
		return protocolError("n is missing")
	}
	return nil
}

// value reads the value of one field; the fields of the common answers come
// first.
func (d *replyDecoder) value(name []byte) {
	if d.err != "" {
		return
	}
	r := d.reply
	d.field = name
	switch string(name) {
	case "n":
		r.N = uint64(d.integer(1, maxInteger-1))
	case "ok":
		if d.ok = -1; d.flag() {
			d.ok = 1
		}
	case "id":
		r.ID = d.text()
	case "key":
		r.Key = d.text()
	case "token":
		r.Token = d.token()
	case "ttl":
		r.TTL = d.millis(0)
	case "forever":
		if d.flag() {
			r.TTL = lease.Forever
		}
	case "elapsed":
		r.Elapsed = d.millis(0)
	case "remaining":
		r.Remaining = d.millis(0)
	case "waited":
		r.Waited = d.millis(0)
	case "detached":
		r.Detached = d.flag()
	default:
		d.rare(string(name))
	}
}

// rare reads the fields of frames that are not grants.
func (d *replyDecoder) rare(name string) {
	r := d.reply
	switch name {
	case "queued":
		if d.flag() {
			r.Kind = Waiting
		}
	case "position":
		r.Position = int(d.integer(0, 1<<31-1))
	case "keys":
		d.keys()
	case "tokens":
		r.Tokens = d.tokens()
	case "code":
		r.Code = lease.Code(d.text())
	case "lost":
		d.lost = true
		r.Code = lease.Code(d.text())
	case "op":
		r.Op = d.text()
	case "reason":
		r.Reason = d.text()
	case "holders", "ahead":
		r.Holders = d.holders()
	case "cycle":
		d.cycle()
	case "by":
		r.By = d.text()
	case "fence":
		r.Fence = d.token()
	case "grace":
		if r.Grace = d.millis(0); r.Grace == 0 {
			r.Grace = lease.NoGrace
		}
	case "leases":
		d.leases()
	case "more":
		r.More = d.flag()
	case "stats":
		d.stats()
	case "event":
		r.Event = lease.EventKind(d.text())
	case "mode":
		r.Mode = d.mode()
	case "max":
		r.Limit = int(d.integer(0, 1<<31-1))
	case "after":
		r.After = d.millis(0)
	default:
		party := lease.Party{Session: r.Session, Host: r.Host, PID: r.PID, Label: r.Label}
		d.party(name, &party)
		r.Session, r.Host, r.PID, r.Label = party.Session, party.Host, party.PID, party.Label
	}
}

// party reads a field of a lease.Party, and skips any other.
func (d *decoder) party(name string, p *lease.Party) {
	switch name {
	case "session":
		p.Session = d.text()
	case "host":
		p.Host = d.text()
	case "pid":
		p.PID = int(d.integer(-1<<31, 1<<31-1))
	case "label":
		p.Label = d.text()
	default:
		d.skip(1)
	}
}

// keys reads the keys of a lease, which are strings, or of a listing, which are
// objects.
func (d *replyDecoder) keys() {
	r := d.reply
	d.list("strings or objects", func() {
		if d.peek() == '{' {
			r.Infos = append(r.Infos, d.info())
		} else {
			r.Keys = append(r.Keys, d.text())
		}
	})
}

func (d *decoder) info() (k lease.KeyInfo) {
	d.object(func(name string) {
		switch name {
		case "key":
			k.Key = d.text()
		case "holders":
			k.Holders = d.holders()
		case "waiters":
			d.list("objects", func() { k.Waiters = append(k.Waiters, d.waiter()) })
		case "waiting":
			k.Waiting = int(d.integer(0, 1<<31-1))
		case "delay":
			k.Delay = d.millis(0)
		default:
			d.skip(1)
		}
	})
	return k
}

func (d *decoder) holders() (out []lease.Holder) {
	d.list("objects", func() { out = append(out, d.holder()) })
	return out
}

func (d *decoder) holder() (h lease.Holder) {
	h.Remaining = absent
	d.object(func(name string) {
		switch name {
		case "mode":
			h.Mode = d.mode()
		case "max":
			h.Limit = int(d.integer(0, 1<<31-1))
		case "token":
			h.Token = d.token()
		case "since":
			h.Since = d.millis(0)
		case "ttl":
			h.TTL = d.millis(0)
		case "remaining":
			h.Remaining = d.millis(0)
		case "forever":
			if d.flag() {
				h.TTL = lease.Forever
			}
		case "detached":
			h.Detached = d.flag()
		case "broken":
			h.Broken = d.flag()
		default:
			d.party(name, &h.Party)
		}
	})
	h.Remaining = left(h.Remaining, h.TTL)
	return h
}

func (d *decoder) waiter() (w lease.Waiter) {
	w.Left = lease.Forever
	d.object(func(name string) {
		switch name {
		case "mode":
			w.Mode = d.mode()
		case "max":
			w.Limit = int(d.integer(0, 1<<31-1))
		case "keys":
			w.Keys = int(d.integer(0, 1<<31-1))
		case "age":
			w.Age = d.millis(0)
		case "left":
			w.Left = d.millis(0)
		case "broken":
			w.Broken = d.flag()
		default:
			d.party(name, &w.Party)
		}
	})
	return w
}

func (d *replyDecoder) cycle() {
	d.list("objects", func() {
		var w lease.Wait
		d.object(func(name string) {
			switch name {
			case "who":
				w.Who = d.text()
			case "key":
				w.Key = d.text()
			default:
				d.skip(1)
			}
		})
		d.reply.Cycle = append(d.reply.Cycle, w)
	})
}

func (d *replyDecoder) leases() {
	d.reply.Leases = []Resumed{}
	d.list("objects", func() {
		h := Resumed{Remaining: absent}
		var keys []string
		var tokens []lease.Token
		d.object(func(name string) {
			switch name {
			case "id":
				h.Lease.ID = d.text()
			case "keys":
				keys = d.texts()
			case "tokens":
				tokens = d.tokens()
			case "ttl":
				h.Lease.TTL = d.millis(0)
			case "forever":
				if d.flag() {
					h.Lease.TTL = lease.Forever
				}
			case "remaining":
				h.Remaining = d.millis(0)
			case "waited":
				h.Lease.Waited = d.millis(0)
			case "detached":
				h.Lease.Detached = d.flag()
			default:
				d.skip(1)
			}
		})
		if len(keys) != len(tokens) {
			d.complain("%d keys with %d tokens", len(keys), len(tokens))
			return
		}
		for i, k := range keys {
			h.Lease.Holds = append(h.Lease.Holds, lease.Hold{Key: k, Token: tokens[i]})
		}
		h.Remaining = left(h.Remaining, h.Lease.TTL)
		d.reply.Leases = append(d.reply.Leases, h)
	})
}
