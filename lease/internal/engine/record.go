package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// recordKind is the first byte of a journal record. The numbers are on disk:
// they are never used for anything else.
type recordKind byte

const (
	recMark       recordKind = 1 // Token: reserved up to here; TTL: longest unsynced promise
	recSession    recordKind = 2 // ID, Party, TTL: grace
	recSessionEnd recordKind = 3 // ID
	recGrant      recordKind = 4 // the request and its holds
	recEnd        recordKind = 5 // Token; TTL and Key: a lock-delay
	recRenew      recordKind = 6 // Token, TTL
	recDetach     recordKind = 7 // Token
	recDelay      recordKind = 8 // Key, TTL: a lock-delay that ran when a snapshot was taken; 0: it is over
	recQuiet      recordKind = 9 // TTL: nothing is granted for that long from each start, until it is recorded as 0
)

// Record is one journal record. Every record names tokens, never only keys, so
// that a replay cannot end a later hold of the same key; and applying one twice
// changes nothing, so that a snapshot may overlap the records after it.
type Record struct {
	Kind  recordKind
	Token uint64
	TTL   time.Duration
	Key   string
	ID    string // session
	Party lease.Party
	Grant *grantRecord
}

type grantRecord struct {
	Request   string
	Session   string
	Label     string
	Mode      lease.Mode
	Flags     requestFlags
	Limit     int32
	TTL       time.Duration
	MaxHold   time.Duration
	LockDelay time.Duration
	Keys      []string
	Tokens    []uint64 // zero for a key whose hold has ended
}

// Append encodes the record: a kind byte, then the fields of that kind as
// varints and length-prefixed strings.
func (r *Record) Append(b []byte) []byte {
	b = append(b, byte(r.Kind))
	switch r.Kind {
	case recMark, recRenew:
		b = binary.AppendUvarint(b, r.Token)
		b = binary.AppendVarint(b, int64(r.TTL))
	case recSession:
		b = appendString(b, r.ID)
		b = appendString(b, r.Party.Session)
		b = appendString(b, r.Party.Host)
		b = binary.AppendVarint(b, int64(r.Party.PID))
		b = binary.AppendVarint(b, int64(r.TTL))
	case recSessionEnd:
		b = appendString(b, r.ID)
	case recEnd:
		b = binary.AppendUvarint(b, r.Token)
		b = binary.AppendVarint(b, int64(r.TTL))
		b = appendString(b, r.Key)
	case recDetach:
		b = binary.AppendUvarint(b, r.Token)
	case recDelay:
		b = appendString(b, r.Key)
		b = binary.AppendVarint(b, int64(r.TTL))
	case recQuiet:
		b = binary.AppendVarint(b, int64(r.TTL))
	case recGrant:
		b = r.Grant.append(b)
	}
	return b
}

func (g *grantRecord) append(b []byte) []byte {
	b = appendString(b, g.Request)
	b = appendString(b, g.Session)
	b = appendString(b, g.Label)
	b = append(b, byte(g.Mode), byte(g.Flags))
	b = binary.AppendVarint(b, int64(g.Limit))
	b = binary.AppendVarint(b, int64(g.TTL))
	b = binary.AppendVarint(b, int64(g.MaxHold))
	b = binary.AppendVarint(b, int64(g.LockDelay))
	b = binary.AppendUvarint(b, uint64(len(g.Keys)))
	for i, k := range g.Keys {
		b = appendString(b, k)
		b = binary.AppendUvarint(b, g.Tokens[i])
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// DecodeRecord reads a record, all of it.
func DecodeRecord(b []byte) (Record, error) {
	if len(b) == 0 {
		return Record{}, errors.New("journal record: empty")
	}
	d := decoder{b: b[1:]}
	r := Record{Kind: recordKind(b[0])}
	switch r.Kind {
	case recMark, recRenew:
		r.Token, r.TTL = d.uint(), d.duration()
	case recSession:
		r.ID = d.string()
		r.Party = lease.Party{Session: d.string(), Host: d.string(), PID: int(d.int())}
		r.TTL = d.duration()
	case recSessionEnd:
		r.ID = d.string()
	case recEnd:
		r.Token, r.TTL, r.Key = d.uint(), d.duration(), d.string()
	case recDetach:
		r.Token = d.uint()
	case recDelay:
		r.Key, r.TTL = d.string(), d.duration()
	case recQuiet:
		r.TTL = d.duration()
	case recGrant:
		r.Grant = d.grant()
	default:
		return Record{}, fmt.Errorf("journal record: unknown kind %d", b[0])
	}
	if d.bad || len(d.b) > 0 {
		return Record{}, fmt.Errorf("journal record of kind %d: malformed", r.Kind)
	}
	return r, nil
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) grant() *grantRecord {
	g := &grantRecord{Request: d.string(), Session: d.string(), Label: d.string()}
	g.Mode, g.Flags = lease.Mode(d.byte()), requestFlags(d.byte())
	limit := d.int()
	g.TTL, g.MaxHold, g.LockDelay = d.duration(), d.duration(), d.duration()
	n := d.uint()
	if limit < 0 || limit > lease.MaxHolders || n == 0 || n > lease.MaxKeys {
		d.bad = true
		return g
	}
	g.Limit = int32(limit)
	for range n {
		g.Keys = append(g.Keys, d.string())
		g.Tokens = append(g.Tokens, d.uint())
	}
	return g
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) duration() time.Duration { return time.Duration(d.int()) }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// recordGrant writes the grant of r, and first, once, its session.
func (e *Engine) recordGrant(r *request) {
	if !e.cfg.Durable {
		return
	}
	e.markSynced(r)
	s := r.sess
	if !s.journaled {
		s.journaled = true
		e.record(s.record(), false)
	}
	e.record(grantOf(r), r.flags&synced != 0)
}

func (s *Session) record() Record {
	return Record{Kind: recSession, ID: s.id, Party: s.party, TTL: s.grace}
}

func grantOf(r *request) Record {
	g := &grantRecord{
		Request: r.id, Session: r.sess.id, Label: r.label(), Mode: r.mode,
		Flags: r.flags &^ (sessionEnded | namesake), Limit: r.limit, TTL: r.ttl,
		Keys: make([]string, len(r.holds)), Tokens: make([]uint64, len(r.holds)),
	}
	if r.extra != nil {
		g.MaxHold, g.LockDelay = r.extra.maxHold, r.extra.lockDelay
	}
	for i := range r.holds {
		g.Keys[i], g.Tokens[i] = r.holds[i].key.name, r.holds[i].token
	}
	return Record{Kind: recGrant, Grant: g}
}

// markSynced decides, under a lazy policy, whether r must be synced all the
// same, or else makes its ttl known as one that a crash may forget.
func (e *Engine) markSynced(r *request) {
	switch {
	case !e.cfg.Lazy || r.flags&synced != 0:
	case r.ttl > LazyTTL:
		r.flags |= synced
	case r.ttl > e.most:
		e.most = min(2*r.ttl, LazyTTL) // doubled, so that slowly rising ttls cost few syncs
		e.record(Record{Kind: recMark, Token: e.mark, TTL: e.most}, true)
	}
}

func delayedKey(k *key, d time.Duration) string {
	if d == 0 {
		return ""
	}
	return k.name
}
