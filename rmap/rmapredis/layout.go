package rmapredis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

// format is the version of everything below. It is the first word of the header and of each message, so that an older
// process refuses what it would misread.
const format = 1

// Layout of a map in Redis; the other half is lua/prelude.lua.
//
//	hash    <prefix>{<name>}      field "" is the header, every other field is a key with an entry
//	zset    <prefix>{<name>}:due  keys with a deadline, by deadline
//	stream  <prefix>{<name>}:log  the last messages, each under its number
//	        <prefix>{<name>}:tmp  exists inside a script only
//	channel <prefix>{<name>}:changes, with @<database> behind it for another than 0
//
//	header:  <format> <generation> <number> <nonce> <cleared> <ttl ms> <sliding> <expires ms> <dated>
//	entry:   <number>.<nonce>:<deadline ms, or nothing>:<kind><data>
//	message: <format> <generation> <number> <nonce> <previous nonce> <now ms> <expires ms>\n<step>...
//	step:    s<length>:<key><length>:<entry>  or  d<length>:<key>  or  x<length>:<key>  or  c  or  y
//
// Generations and nonces are 16 hexadecimal digits. Sliding and dated are 0 or 1; dated says that keys may have deadlines.
func (s *Store) hash(name string) string { return s.o.Prefix + "{" + name + "}" }
func (s *Store) due(name string) string  { return s.hash(name) + ":due" }
func (s *Store) log(name string) string  { return s.hash(name) + ":log" }
func (s *Store) tmp(name string) string  { return s.hash(name) + ":tmp" }

// channel has the database in its name, since channels of Redis are shared by all its databases.
func (s *Store) channel(name string) string {
	channel := s.hash(name) + ":changes"
	if s.o.Database != 0 {
		channel += "@" + strconv.Itoa(s.o.Database)
	}
	return channel
}

// errMalformed is what everything is that these functions cannot read and that says it is of this format.
var errMalformed = errors.New("malformed")

// checkFormat judges the first word of a header or message. Those of older versions are as unreadable as noise: there
// are none that this version could read.
func checkFormat(word string, newest int) error {
	n, err := strconv.ParseUint(word, 10, 31)
	switch {
	case err != nil:
		return errMalformed
	case n > uint64(newest):
		return fmt.Errorf("%w: version %d, and this process knows up to %d: upgrade it", rmap.ErrFormat, n, newest)
	case n < format:
		return fmt.Errorf("version %d, which no process of today writes: %w", n, errMalformed)
	}
	return nil
}

// A fields reads the texts of this package.
type fields struct{ redistext.Fields }

// revision reads the three words of a revision.
func (f *fields) revision(generation, number, nonce string) rmap.Revision {
	r := rmap.Revision{Generation: f.Hex(generation), Number: uint64(f.Number(number)), Nonce: f.Hex(nonce)}
	f.Bad = f.Bad || r.Generation == 0 || r.Number == 0 || r.Nonce == 0
	return r
}

// take cuts off n bytes.
func (f *fields) take(n int64) string {
	if f.Bad || n > int64(len(f.Rest)) {
		f.Bad = true
		return ""
	}
	text := f.Rest[:n]
	f.Rest = f.Rest[n:]
	return text
}

// counted cuts off a text with its length before it.
func (f *fields) counted() string { return f.take(f.Number(f.Until(':'))) }

// parseHeader reads the header of a map.
func parseHeader(text string, newest int) (rmap.Head, error) {
	f := &fields{redistext.Fields{Rest: text + " "}}
	if err := checkFormat(f.Until(' '), newest); err != nil {
		return rmap.Head{}, fmt.Errorf("header: %w", err)
	}
	var h rmap.Head
	h.Revision = f.revision(f.Until(' '), f.Until(' '), f.Until(' '))
	h.Cleared = uint64(f.Number(f.Until(' ')))
	ttl := f.Number(f.Until(' '))
	h.Lifetime.TTL = time.Duration(ttl) * time.Millisecond
	sliding := f.Until(' ')
	h.Lifetime.Sliding = sliding == "1"
	h.Expires = f.Number(f.Until(' '))
	dated := f.Until(' ')
	switch {
	case f.Bad, f.Rest != "", sliding != "0" && sliding != "1", dated != "0" && dated != "1", ttl > rmap.MaxTTL.Milliseconds(), h.Cleared > h.Revision.Number:
		return rmap.Head{}, fmt.Errorf("header: %w", errMalformed)
	}
	return h, nil
}

// parseEntry reads what is stored under a key.
func parseEntry(key, text string) (rmap.Entry, error) {
	f := &fields{redistext.Fields{Rest: text}}
	e := rmap.Entry{Key: key}
	e.Number = uint64(f.Number(f.Until('.')))
	e.Nonce = f.Hex(f.Until(':'))
	if deadline := f.Until(':'); deadline != "" {
		e.Deadline = f.Number(deadline)
		f.Bad = f.Bad || e.Deadline == 0
	}
	e.Value.Kind = rmap.Kind(append([]byte(f.take(1)), 0)[0])
	e.Value.Data = f.Rest
	switch e.Value.Kind {
	case rmap.Plain, rmap.Integer, rmap.List:
	default:
		f.Bad = true
	}
	if f.Bad || e.Number == 0 || e.Nonce == 0 || !validKey(key) || len(e.Value.Data) > rmap.MaxValue {
		return rmap.Entry{}, errMalformed
	}
	return e, nil
}

// storedEntry reads a field of the map. One that something else wrote is an entry of no kind, which no codec reads: it
// must not keep anybody from reading the others, nor from replacing it.
func storedEntry(key, text string) rmap.Entry {
	e, err := parseEntry(key, text)
	if err != nil {
		return rmap.Entry{Key: key, Value: rmap.Value{Data: text}}
	}
	return e
}

func validKey(key string) bool { return key != "" && len(key) <= rmap.MaxKey }

// maxMessage is the size of a message at most: a write may be of MaxWrite bytes, and names what it purges besides.
const maxMessage = 4 * (rmap.MaxWrite + rmap.PurgeBatch*rmap.MaxKey)

// parseMessage reads a change. What it returns does not keep the text alive, which can be much more than one entry.
func parseMessage(text string, newest int) (rmap.Change, error) {
	if len(text) > maxMessage {
		return rmap.Change{}, fmt.Errorf("%d bytes: %w", len(text), errMalformed)
	}
	f := &fields{redistext.Fields{Rest: text}}
	if err := checkFormat(f.Until(' '), newest); err != nil {
		return rmap.Change{}, err
	}
	var ch rmap.Change
	ch.Revision = f.revision(f.Until(' '), f.Until(' '), f.Until(' '))
	ch.Prev = f.Hex(f.Until(' '))
	ch.Now = f.Number(f.Until(' '))
	ch.Expires = f.Number(f.Until('\n'))
	for !f.Bad && f.Rest != "" {
		ch.Steps = append(ch.Steps, f.step(ch.Revision))
	}
	switch {
	case f.Bad, len(ch.Steps) == 0, (ch.Prev == 0) != (ch.Revision.Number == 1):
		return rmap.Change{}, errMalformed
	}
	return ch, nil
}

// step reads one step of the change r.
func (f *fields) step(r rmap.Revision) rmap.Step {
	s := rmap.Step{Do: rmap.Action(f.take(1)[0])}
	switch s.Do {
	case rmap.DoClear, rmap.DoDestroy:
	case rmap.DoDelete, rmap.DoExpire:
		s.Entry.Key = strings.Clone(f.counted())
		f.Bad = f.Bad || !validKey(s.Entry.Key)
	case rmap.DoSet:
		key := f.counted()
		e, err := parseEntry(key, f.counted())
		f.Bad = f.Bad || err != nil || e.Number != r.Number || e.Nonce != r.Nonce
		e.Key, e.Value.Data = strings.Clone(e.Key), strings.Clone(e.Value.Data)
		s.Entry = e
	default:
		f.Bad = true
	}
	return s
}
