package lmx

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// answer is a yes, a no, or not said.
type answer uint8

const (
	unsaid answer = iota
	no
	yes
)

// reply is an answer to a client. Fields that are zero are left out, but for the
// counts, where none is -1.
type reply struct {
	kind      string
	echo      string // the frame's uuid as it came
	key       string // as it came
	keys      []string
	listed    bool // keys is sent even if empty
	acquired  answer
	unlocked  answer
	released  answer
	renewed   answer
	token     lease.Token
	tokens    []lease.Hold
	lockUUID  string
	contended string
	queue     int // lockRequestCount
	readers   int // readersCount
	err       string
	warning   string
	why       string // reason
}

func (r *reply) append(b []byte) []byte {
	b = append(b, '{')
	b = text(b, "type", r.kind)
	b = raw(b, "uuid", r.echo)
	b = raw(b, "key", r.key)
	if r.listed || len(r.keys) > 0 {
		b = list(b, "keys", r.keys)
	}
	b = said(b, "acquired", r.acquired)
	b = said(b, "unlocked", r.unlocked)
	b = said(b, "released", r.released)
	b = said(b, "renewed", r.renewed)
	if r.token > 0 {
		b = strconv.AppendUint(wire.AppendName(b, "fencingToken"), uint64(r.token), 10)
	}
	b = text(b, "lockUuid", r.lockUUID)
	if r.tokens != nil {
		b = append(wire.AppendName(b, "fencingTokens"), '{')
		for _, h := range r.tokens {
			b = append(wire.AppendText(wire.AppendComma(b), h.Key), ':')
			b = strconv.AppendUint(b, uint64(h.Token), 10)
		}
		b = append(b, '}')
	}
	b = text(b, "contendedKey", r.contended)
	if r.readers >= 0 {
		b = strconv.AppendInt(wire.AppendName(b, "readersCount"), int64(r.readers), 10)
	}
	if r.queue >= 0 {
		b = strconv.AppendInt(wire.AppendName(b, "lockRequestCount"), int64(r.queue), 10)
	}
	b = text(b, "reason", r.why)
	b = text(b, "warning", r.warning)
	b = text(b, "error", r.err)
	return append(b, '}', '\n')
}

func text(b []byte, n, v string) []byte {
	if v == "" {
		return b
	}
	return wire.AppendText(wire.AppendName(b, n), v)
}

// raw appends a value as its client sent it, but for what is not UTF-8: no frame
// may have that.
func raw(b []byte, n, v string) []byte {
	if v == "" {
		return b
	}
	if !utf8.ValidString(v) {
		v = strings.ToValidUTF8(v, string(utf8.RuneError))
	}
	return append(wire.AppendName(b, n), v...)
}

func said(b []byte, n string, a answer) []byte {
	switch a {
	case yes:
		return append(wire.AppendName(b, n), "true"...)
	case no:
		return append(wire.AppendName(b, n), "false"...)
	}
	return b
}

func list(b []byte, n string, v []string) []byte {
	b = append(wire.AppendName(b, n), '[')
	for _, s := range v {
		b = wire.AppendText(wire.AppendComma(b), s)
	}
	return append(b, ']')
}

// send sends a reply from the reader.
func (c *Conn) send(r *reply) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.scratch = r.append(c.scratch[:0])
	c.peer.Send(c.scratch)
	c.trim()
}

// bring sends a reply from a callback of the connection's session.
func (c *Conn) bring(r *reply) {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.scratch = r.append(c.scratch[:0])
	c.peer.Bring(c.scratch)
	c.trim()
}

// trim keeps one large answer from costing memory for ever.
func (c *Conn) trim() {
	if cap(c.scratch) > 4<<10 {
		c.scratch = nil
	}
}

// sortedKeys drops repeats and sorts.
func sortedKeys(keys []string) []string {
	slices.Sort(keys)
	return slices.Compact(keys)
}
