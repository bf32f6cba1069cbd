package lmx

import "github.com/latchkey-go/latchkey/lease"

// renew starts the ttl of a hold anew: what live-mutex has not, so that its
// clients must ask for a long ttl and keep a dead holder's lock as long.
func (c *Conn) renew(f *frame) {
	a := &reply{kind: "renew", echo: string(f.uuid), key: string(f.key), queue: -1, readers: -1}
	cmd, name, err := c.renewal(f)
	var own lease.Session
	if err == nil {
		own, err = c.session(f)
	}
	if err != nil {
		a.renewed, a.err = no, reason(err)
		c.send(a)
		return
	}
	c.srv.mu.Lock()
	r := c.srv.holder(c, cmd.ID, name)
	c.srv.mu.Unlock()
	c.command(own, r, cmd, func(l lease.Lease, err error) {
		switch {
		case err == nil:
			a.renewed = yes
			if name == "" {
				a.tokens = l.Holds
			} else {
				a.token, _ = l.TokenOf(name)
			}
		case lease.CodeOf(err) == lease.ErrClosed:
			return
		default:
			a.renewed, a.err = no, reason(err)
		}
		c.answer(a, r)
	})
}

func (c *Conn) renewal(f *frame) (lease.Command, string, error) {
	cmd := lease.Command{Verb: lease.Renew}
	_, _, err := ident("uuid", f.uuid)
	if err != nil {
		return cmd, "", err
	}
	if _, cmd.ID, err = ident("_uuid", f.hold); err != nil {
		return cmd, "", err
	}
	if !f.key.Null() {
		if cmd.Key, err = keyOf(f.key); err != nil {
			return cmd, "", err
		}
	}
	if len(f.ttl) > 0 {
		cmd.TTL, err = ttlOf(f.ttl)
	}
	return cmd, cmd.Key, err
}

// subscribe turns on notices of evictions.
func (c *Conn) subscribe(f *frame) {
	c.srv.mu.Lock()
	c.subscribed = true
	c.srv.mu.Unlock()
	c.send(&reply{kind: "subscribe-evictions-success", echo: string(f.uuid), queue: -1, readers: -1})
}
