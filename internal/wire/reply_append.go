package wire

import (
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// AppendReply appends the frame of r with its newline. Frames stay within
// MaxReply: a listing is cut, and says so; long texts are the contract's to
// bound.
func AppendReply(b []byte, r *Reply) []byte {
	start := len(b)
	b = append(b, '{')
	if r.N != 0 {
		b = append(b, `"n":`...)
		b = strconv.AppendUint(b, r.N, 10)
	}
	switch r.Kind {
	case OK:
		b = append(name(b, "ok"), "true"...)
		b = appendDone(b, r, start)
	case Failed:
		b = append(name(b, "ok"), "false"...)
		b = putText(b, "code", string(r.Code))
		b = addText(b, "op", r.Op)
		b = addText(b, "key", r.Key)
		b = addText(b, "reason", r.Reason)
		b = addHolders(b, "holders", r.Holders)
		b = addCycle(b, r.Cycle)
	case Waiting:
		b = append(name(b, "queued"), "true"...)
		b = addText(b, "id", r.ID)
		b = addText(b, "key", r.Key)
		b = putInt(b, "position", int64(r.Position))
		b = addHolders(b, "ahead", r.Holders)
	case Part:
		b = addLeases(b, r.Leases)
	case Event:
		b = putText(b, "event", string(r.Event))
		b = appendEvent(b, r)
	case Notice:
		b = putText(b, "lost", string(r.Code))
		b = addText(b, "id", r.ID)
		b = addText(b, "key", r.Key)
		b = addInt(b, "token", int64(r.Token))
		b = addText(b, "by", r.By)
	}
	return append(b, '}', '\n')
}

// appendDone appends what an OK frame carries.
func appendDone(b []byte, r *Reply, start int) []byte {
	if r.Session != "" {
		b = putText(b, "session", r.Session)
		if r.Grace != 0 {
			b = putInt(b, "grace", floor(r.Grace))
		}
		b = putInt(b, "elapsed", floor(r.Elapsed))
		return addLeases(b, r.Leases)
	}
	b = addText(b, "id", r.ID)
	b = addHolds(b, r.Key, r.Token, r.Keys, r.Tokens)
	if r.TTL != 0 {
		b = addSpan(b, r.TTL, lease.Forever)
		b = putInt(b, "elapsed", floor(r.Elapsed))
		b = addRemaining(b, r.Remaining)
		b = putInt(b, "waited", floor(r.Waited))
	}
	b = addFlag(b, "detached", r.Detached)
	b = addInt(b, "fence", int64(r.Fence))
	switch {
	case r.Infos != nil:
		b = appendInfos(b, r, start)
	case r.Stats != nil:
		b = append(name(b, "stats"), statsJSON(r.Stats)...)
	}
	return b
}

// addSpan appends a ttl and what is left of it.
func addSpan(b []byte, ttl, remaining time.Duration) []byte {
	if ttl == lease.Forever {
		b = addFlag(b, "forever", true)
	} else {
		b = putInt(b, "ttl", floor(ttl))
	}
	return addRemaining(b, remaining)
}

func addRemaining(b []byte, d time.Duration) []byte {
	if d == lease.Forever {
		return b
	}
	return putInt(b, "remaining", floor(d))
}

func addHolds(b []byte, key string, token lease.Token, keys []string, tokens []lease.Token) []byte {
	if key != "" {
		return putInt(putText(b, "key", key), "token", int64(token))
	}
	if len(keys) == 0 {
		return b
	}
	b = append(name(b, "keys"), '[')
	for _, k := range keys {
		b = quote(comma(b), k)
	}
	b = append(name(append(b, ']'), "tokens"), '[')
	for _, t := range tokens {
		b = strconv.AppendUint(comma(b), uint64(t), 10)
	}
	return append(b, ']')
}

func appendEvent(b []byte, r *Reply) []byte {
	b = addText(b, "key", r.Key)
	b = addText(b, "session", r.Session)
	b = addText(b, "host", r.Host)
	b = addInt(b, "pid", int64(r.PID))
	b = addText(b, "label", r.Label)
	if r.Key != "" {
		b = putText(b, "mode", r.Mode.String())
	}
	b = addInt(b, "max", int64(r.Limit))
	b = addInt(b, "token", int64(r.Token))
	b = addInt(b, "after", floor(r.After))
	return addText(b, "code", string(r.Code))
}

func addLeases(b []byte, leases []Resumed) []byte {
	if leases == nil {
		return b
	}
	b = append(name(b, "leases"), '[')
	for i := range leases {
		b = appendLease(comma(b), &leases[i])
	}
	return append(b, ']')
}

func appendLease(b []byte, h *Resumed) []byte {
	b = putText(append(b, '{'), "id", h.Lease.ID)
	b = addHolds(b, "", 0, keysOf(h.Lease.Holds), tokensOf(h.Lease.Holds))
	b = addSpan(b, h.Lease.TTL, h.Remaining)
	b = putInt(b, "waited", floor(h.Lease.Waited))
	b = addFlag(b, "detached", h.Lease.Detached)
	return append(b, '}')
}

func keysOf(holds []lease.Hold) []string {
	keys := make([]string, len(holds))
	for i, h := range holds {
		keys[i] = h.Key
	}
	return keys
}

func tokensOf(holds []lease.Hold) []lease.Token {
	tokens := make([]lease.Token, len(holds))
	for i, h := range holds {
		tokens[i] = h.Token
	}
	return tokens
}

func addCycle(b []byte, cycle []lease.Wait) []byte {
	if len(cycle) == 0 {
		return b
	}
	b = append(name(b, "cycle"), '[')
	for _, w := range cycle {
		b = putText(append(comma(b), '{'), "who", w.Who)
		b = append(putText(b, "key", w.Key), '}')
	}
	return append(b, ']')
}

// Open replies are split so that none is over MaxReply: a lease of 64 keys may
// take this much.
const leaseRoom = 512 << 10

// AppendOpened appends the answer to an open: parts while the leases of a
// resumed session do not fit one frame, and then the reply itself.
func AppendOpened(b []byte, r *Reply) []byte {
	rest := r.Leases
	for {
		n := fitting(rest)
		if n == len(rest) {
			break
		}
		part := Reply{Kind: Part, N: r.N, Leases: rest[:n]}
		b = AppendReply(b, &part)
		rest = rest[n:]
	}
	last := *r
	last.Leases = rest
	return AppendReply(b, &last)
}

// fitting returns how many leases fit a frame: at least one.
func fitting(leases []Resumed) int {
	size := 0
	var scratch []byte
	for i := range leases {
		scratch = appendLease(scratch[:0], &leases[i])
		if size += len(scratch) + 1; size > leaseRoom && i > 0 {
			return i
		}
	}
	return len(leases)
}

// appendInfos appends the page of a listing that fits the frame: whole keys,
// but of a crowded one as many holders and waiters as fit.
func appendInfos(b []byte, r *Reply, start int) []byte {
	const tail = len(`],"more":false}` + "\n")
	more := r.More
	b = append(name(b, "keys"), '[')
	for i := range r.Infos {
		before := len(b)
		b = appendFitting(comma(b), &r.Infos[i])
		if len(b)-start+tail > MaxReply { // never the first one
			b = b[:before]
			more = true
			break
		}
	}
	return append(name(append(b, ']'), "more"), strconv.FormatBool(more)...)
}

// keyRoom is what the holders of one key may take in a frame, and its waiters:
// a little less than half, for the key itself and the frame around it.
const keyRoom = MaxReply/2 - 8<<10

// appendFitting appends a key with as many holders and waiters as leave it
// smaller than a frame.
func appendFitting(b []byte, k *lease.KeyInfo) []byte {
	var scratch []byte
	count := func(n int, add func(b []byte, i int) []byte) int {
		for i, total := 0, 0; i < n; i++ {
			scratch = add(scratch[:0], i)
			if total += len(scratch) + 1; total > keyRoom {
				return i
			}
		}
		return n
	}
	holders, waiters := len(k.Holders), len(k.Waiters)
	if holders+waiters > 100 { // fewer always fit
		holders = count(holders, func(b []byte, i int) []byte { return appendHolder(b, &k.Holders[i]) })
		waiters = count(waiters, func(b []byte, i int) []byte { return appendWaiter(b, &k.Waiters[i]) })
	}
	return appendInfo(b, k, holders, waiters)
}

func appendInfo(b []byte, k *lease.KeyInfo, holders, waiters int) []byte {
	b = putText(append(b, '{'), "key", k.Key)
	b = addHolders(b, "holders", k.Holders[:holders])
	if waiters > 0 {
		b = append(name(b, "waiters"), '[')
		for i := range k.Waiters[:waiters] {
			b = appendWaiter(comma(b), &k.Waiters[i])
		}
		b = append(b, ']')
	}
	b = putInt(b, "waiting", int64(k.Waiting))
	b = addInt(b, "delay", floor(k.Delay))
	return append(b, '}')
}

func addHolders(b []byte, n string, holders []lease.Holder) []byte {
	if len(holders) == 0 {
		return b
	}
	b = append(name(b, n), '[')
	for i := range holders {
		b = appendHolder(comma(b), &holders[i])
	}
	return append(b, ']')
}

func appendParty(b []byte, p *lease.Party, m lease.Mode, limit int) []byte {
	b = addText(b, "session", p.Session)
	b = addText(b, "host", p.Host)
	b = addInt(b, "pid", int64(p.PID))
	b = addText(b, "label", p.Label)
	b = putText(b, "mode", m.String())
	return addInt(b, "max", int64(limit))
}

func appendHolder(b []byte, h *lease.Holder) []byte {
	b = appendParty(append(b, '{'), &h.Party, h.Mode, h.Limit)
	b = putInt(b, "token", int64(h.Token))
	b = putInt(b, "since", floor(h.Since))
	b = addSpan(b, h.TTL, h.Remaining)
	b = addFlag(b, "detached", h.Detached)
	return append(addFlag(b, "broken", h.Broken), '}')
}

func appendWaiter(b []byte, w *lease.Waiter) []byte {
	b = appendParty(append(b, '{'), &w.Party, w.Mode, w.Limit)
	b = putInt(b, "keys", int64(w.Keys))
	b = putInt(b, "age", floor(w.Age))
	if w.Left != lease.Forever {
		b = putInt(b, "left", floor(w.Left))
	}
	return append(addFlag(b, "broken", w.Broken), '}')
}
