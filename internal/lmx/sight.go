package lmx

import (
	"context"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

const (
	// maxListing bounds the bytes of a list of keys, so that it fits what may be
	// queued for a client.
	maxListing = lease.MaxUnsent/4 - 1<<10

	longest = 6 // bytes of JSON for one of a key, at most
)

// ls lists the keys that are held or waited for.
func (c *Conn) ls(f *frame) {
	b := raw(append(c.scratchless(), '{'), "uuid", string(f.uuid))
	b = append(wire.AppendName(b, "ls_result"), '[')
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	q := lease.Query{Limit: lease.MaxListed, Brief: true}
	fits := true
	for more := true; more && fits; {
		l, err := c.srv.svc.List(ctx, q)
		if err != nil {
			c.send(&reply{echo: string(f.uuid), queue: -1, readers: -1, err: reason(err)})
			return
		}
		for _, k := range l.Keys {
			if fits = len(b)+longest*len(k.Key) < maxListing; !fits {
				break
			}
			b = wire.AppendText(wire.AppendComma(b), k.Key)
			q.After = k.Key
		}
		more = l.More
	}
	b = append(b, ']')
	if !fits {
		b = text(b, "warning", "there are more keys than fit a frame; the rest is left out")
	}
	c.peer.Send(append(b, '}', '\n'))
}

// info tells the state of a key. It names the ids of holds that this dialect
// made, as its clients expect; of others there is only the number.
func (c *Conn) info(f *frame) {
	key, err := keyOf(f.key)
	var k lease.KeyInfo
	if err == nil {
		k, err = c.look(key)
	}
	if err != nil {
		c.send(&reply{kind: "lock-info-response", echo: string(f.uuid), key: string(f.key), queue: -1, readers: -1, err: reason(err)})
		return
	}
	var ids []string
	c.srv.mu.Lock()
	readers := c.srv.readersOf(key)
	if k := c.srv.keys[key]; k != nil {
		for _, r := range k.holders {
			ids = append(ids, r.id)
		}
	}
	c.srv.mu.Unlock()
	b := text(append(c.scratchless(), '{'), "type", "lock-info-response")
	b = raw(raw(b, "uuid", string(f.uuid)), "key", string(f.key))
	b = append(wire.AppendName(b, "lockInfo"), "true"...)
	b = strconv.AppendBool(wire.AppendName(b, "isLocked"), len(k.Holders) > 0)
	b = list(b, "lockholderUUIDs", ids)
	b = number(b, "lockholderCount", len(k.Holders))
	b = number(b, "readersCount", readers)
	b = number(b, "lockRequestCount", k.Waiting)
	c.peer.Send(append(b, '}', '\n'))
}

func number(b []byte, n string, v int) []byte {
	return strconv.AppendInt(wire.AppendName(b, n), int64(v), 10)
}

// ping answers a sign of life.
func (c *Conn) ping(f *frame) {
	b := text(append(c.scratchless(), '{'), "type", "pong")
	b = raw(b, "uuid", string(f.uuid))
	b = raw(b, "timestamp", string(f.timestamp))
	b = strconv.AppendInt(wire.AppendName(b, "serverTimestamp"), time.Now().UnixMilli(), 10)
	c.peer.Send(append(append(wire.AppendName(b, "ping"), "true"...), '}', '\n'))
}

// inspect answers the prompt of lmx_inspect_broker.
func (c *Conn) inspect(f *frame) {
	command, wrong := f.inspect.Text()
	if wrong != "" {
		c.send(&reply{echo: string(f.uuid), queue: -1, readers: -1, err: "inspectCommand " + wrong})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	st, err := c.srv.svc.Stats(ctx)
	if err != nil {
		c.send(&reply{echo: string(f.uuid), queue: -1, readers: -1, err: reason(err)})
		return
	}
	b := raw(append(c.scratchless(), '{'), "uuid", string(f.uuid))
	switch command {
	case "lockcount", "lock-count", "lock_count":
		b = number(b, "inspectResult", st.Keys)
	case "clientcount", "client-count", "client_count":
		b = number(b, "inspectResult", c.srv.Counts().Clients)
	default:
		b = append(wire.AppendName(b, "inspectResult"), "null"...)
		b = text(b, "warning", "unknown inspectCommand "+lease.QuoteKey(command)+"; there are lockcount and clientcount")
	}
	c.peer.Send(append(b, '}', '\n'))
}
