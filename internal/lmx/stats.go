package lmx

import (
	"context"
	"encoding/json"

	"github.com/latchkey-go/latchkey/internal/tally"
	"github.com/latchkey-go/latchkey/internal/wire"
)

// stats answers a request for the broker's statistics.
func (c *Conn) stats(f *frame) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	var counts tally.Counts
	var stats []byte
	st, err := c.srv.svc.Stats(ctx)
	if err == nil {
		counts, err = tally.Of(ctx, c.srv.svc, &st, c.srv.Counts().Extra())
	}
	if err == nil {
		stats, err = json.Marshal(counts)
	}
	if err != nil {
		c.send(&reply{kind: "system-stats-response", echo: string(f.uuid), queue: -1, readers: -1, err: reason(err)})
		return
	}
	b := text(append(c.scratchless(), '{'), "type", "system-stats-response")
	b = raw(b, "uuid", string(f.uuid))
	b = append(wire.AppendName(b, "stats"), stats...)
	c.peer.Send(append(b, '}', '\n'))
}

// Extra are the counts as the statistics of a broker take them.
func (n Counts) Extra() tally.Extra {
	return tally.Extra{Sessionless: n.Sessionless, Readers: n.Readers, Clamps: n.Clamps}
}
