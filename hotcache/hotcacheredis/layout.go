package hotcacheredis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// format is the version of everything below. It is the first word of the header, of records and of messages, so that an
// older process refuses what it would misread.
const format = 1

// Layout of a cache in Redis; the other half is lua/prelude.lua.
//
//	hash    <base>:floors       field "" is the header; every other field is a key, with its floor
//	hash    <base>:former       the older half of the floors
//	zset    <base>:members      who may trust its memory, until when; "" is always there, "?" is whoever was forgotten
//	string  <base>:item:<key>   a record, until it is of no use any more
//	string  <base>:load:<key>   a lease or a failure, until it ends
//	string  <base>:copy:<key>   a record of a hot key of which another node is the home
//	channel <base>:feed         invalidations, wakes, and what members tell everybody
//	channel <base>:to:<member>  what is told one member
//
//	header:  <format> <generation> <number> <nonce> <born> <since> <former> <floor ttl> <life>
//	record:  <format> <generation> <number> <version> <absent> <soft> <hard> <keep> <data>
//	floor:   <version>, with u behind it if there was an invalidation without a version
//	lease:   l <generation> <token> <min> <waiters>
//	failure: f <generation> <why>
//	message: <format> i <generation> <number> <nonce> <previous nonce> <version> <member>\n<key>
//	         <format> w\n<key>
//	         <format> t\n<text>
//
// <base> is <prefix>{<namespace>}. Generations, nonces, versions, tokens, and the number of a record are 16 hexadecimal
// digits. Times are microseconds of the server's clock, of 16 digits in a record; born is that of the generation, since
// that of the present half of the floors, former the number of floors in the other one, life that of the server. What
// belongs to an item counts only in the generation that it names.
type keys struct{ base string }

func (k keys) floors() string           { return k.base + ":floors" }
func (k keys) former() string           { return k.base + ":former" }
func (k keys) members() string          { return k.base + ":members" }
func (k keys) item(key string) string   { return k.base + ":item:" + key }
func (k keys) load(key string) string   { return k.base + ":load:" + key }
func (k keys) copied(key string) string { return k.base + ":copy:" + key }
func (k keys) feed() string             { return k.base + ":feed" }

func (k keys) to(m hotcache.Member) string { return k.base + ":to:" + string(m) }

// errMalformed is what everything is that these functions cannot read and that says it is of this format.
var errMalformed = errors.New("malformed")

// checkFormat judges the first word of a header, record or message.
func checkFormat(word string, newest int) error {
	n, err := strconv.ParseUint(word, 10, 31)
	switch {
	case err != nil, n < format:
		return errMalformed
	case n > uint64(newest):
		return fmt.Errorf("%w: version %d, and this process knows up to %d: upgrade it", ErrFormat, n, newest)
	}
	return nil
}

// A fields reads the texts of this package.
type fields struct{ redistext.Fields }

// moment reads a time of 16 digits.
func (f *fields) moment(word string) int64 {
	n, err := strconv.ParseUint(word, 10, 63)
	f.Bad = f.Bad || err != nil || len(word) != 16
	return int64(n)
}

// position reads where a node stands in its feed.
func (f *fields) position() hotcache.Position {
	p := hotcache.Position{Generation: f.Hex(f.Until(' ')), Number: uint64(f.Number(f.Until(' '))), Nonce: f.Hex(f.Until(' '))}
	f.Bad = f.Bad || p.Generation == 0 || p.Nonce == 0
	return p
}

// parseHeader reads where a node stands from its header. What else is there is the business of the scripts.
func parseHeader(text string, newest int) (hotcache.Position, error) {
	f := &fields{redistext.Fields{Rest: text + " "}}
	if err := checkFormat(f.Until(' '), newest); err != nil {
		return hotcache.Position{}, fmt.Errorf("header: %w", err)
	}
	p := f.position()
	for range 4 { // born, since, former, floor ttl
		f.Number(f.Until(' '))
	}
	if life := f.Until(' '); f.Bad || life == "" || f.Rest != "" {
		return hotcache.Position{}, fmt.Errorf("header: %w", errMalformed)
	}
	return p, nil
}

// A record is an item or a copy as it is stored.
type record struct {
	item             hotcache.Item
	stamp            hotcache.Stamp
	soft, hard, keep int64 // in microseconds of the server's clock
}

// times returns how long the record is good, at a moment of the server's clock.
func (r record) times(now int64) hotcache.Times {
	left := func(until int64) time.Duration { return time.Duration(until-now) * time.Microsecond }
	return hotcache.Times{Soft: left(r.soft), Hard: left(r.hard), Keep: left(r.keep)}
}

func parseRecord(text string, newest int) (record, error) {
	f := &fields{redistext.Fields{Rest: text}}
	if err := checkFormat(f.Until(' '), newest); err != nil {
		return record{}, fmt.Errorf("record: %w", err)
	}
	var r record
	r.stamp.Generation, r.stamp.Number = f.Hex(f.Until(' ')), f.Hex(f.Until(' '))
	r.item.Version = hotcache.Version(f.Hex(f.Until(' ')))
	absent := f.Until(' ')
	r.item.Absent = absent == "1"
	r.soft, r.hard, r.keep = f.moment(f.Until(' ')), f.moment(f.Until(' ')), f.moment(f.Until(' '))
	if f.Bad || absent != "0" && absent != "1" || r.item.Absent && f.Rest != "" || len(f.Rest) > hotcache.MaxValue {
		return record{}, fmt.Errorf("record: %w", errMalformed)
	}
	if f.Rest != "" {
		r.item.Data = []byte(f.Rest)
	}
	return r, nil
}

// A message is what comes in a channel: an invalidation with who made it, a wake, or what was told.
type message struct {
	kind byte // as in the layout
	inv  hotcache.Invalidation
	by   hotcache.Member
	text string // for a wake, the key
}

func parseMessage(text string, newest int) (message, error) {
	if len(text) > MaxTell+hotcache.MaxKey {
		return message{}, fmt.Errorf("message of %d bytes: %w", len(text), errMalformed)
	}
	f := &fields{redistext.Fields{Rest: text}}
	if err := checkFormat(f.Until(' '), newest); err != nil {
		return message{}, fmt.Errorf("message: %w", err)
	}
	var m message
	switch {
	case strings.HasPrefix(f.Rest, "i "):
		f.Rest = f.Rest[2:]
		m.kind = 'i'
		m.inv.Position = f.position()
		m.inv.Prev = f.Hex(f.Until(' '))
		m.inv.Version = hotcache.Version(f.Hex(f.Until(' ')))
		m.by = hotcache.Member(strings.Clone(f.Until('\n')))
		m.inv.Key = strings.Clone(f.Rest)
		f.Bad = f.Bad || m.inv.Key == "" || len(m.inv.Key) > hotcache.MaxKey || m.inv.Number == 0 || m.inv.Prev == 0 ||
			m.by != "" && checkMember(m.by) != nil
	case strings.HasPrefix(f.Rest, "w\n"), strings.HasPrefix(f.Rest, "t\n"):
		m.kind, m.text = f.Rest[0], strings.Clone(f.Rest[2:])
		f.Bad = f.Bad || m.kind == 'w' && (m.text == "" || len(m.text) > hotcache.MaxKey)
	default:
		f.Bad = true
	}
	if f.Bad {
		return message{}, fmt.Errorf("message: %w", errMalformed)
	}
	return m, nil
}

// maxMember is the length of the name of a member in bytes.
const maxMember = 64

// checkMember refuses names that would be misread, or could be taken for that of somebody who was forgotten.
func checkMember(m hotcache.Member) error {
	if m == "" || len(m) > maxMember {
		return fmt.Errorf("%w: the name of a member has %d bytes: at least one and at most %d", hotcache.ErrInvalid, len(m), maxMember)
	}
	for i := range len(m) {
		if c := m[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return fmt.Errorf("%w: the name of a member, %q, has other characters than letters, digits, - and _", hotcache.ErrInvalid, m)
		}
	}
	return nil
}

// longest is the longest time that a record knows, so that its digits suffice.
const longest = 20 * 365 * 24 * time.Hour

// micros puts a duration into words for a script.
func micros(d time.Duration) string {
	return strconv.FormatInt(max(min(d, longest), -longest).Microseconds(), 10)
}

// millis does so for Redis itself. It rounds up: nothing ends before it was to.
func millis(d time.Duration) string {
	d = min(d, longest)
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
