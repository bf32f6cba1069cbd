package lmx

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// frame is what a client sent. The values are parts of the line.
type frame struct {
	kind      wire.Value // "type"
	uuid      wire.Value // of the frame, echoed in the answer
	hold      wire.Value // "_uuid": the id of a lock
	lockUUID  wire.Value // of acquire-many
	key       wire.Value
	keys      wire.Value
	ttl       wire.Value
	max       wire.Value
	maxRead   wire.Value
	maxWrite  wire.Value
	wait      wire.Value
	force     wire.Value
	role      wire.Value // "rwStatus"
	pid       wire.Value
	keep      wire.Value // "keepLocksAfterDeath"
	version   wire.Value // "value"
	timestamp wire.Value
	inspect   wire.Value // "inspectCommand"
}

// parse reads a line. False means that it is no JSON object.
func (f *frame) parse(line []byte) bool {
	*f = frame{}
	return wire.Object(line, f.member) == nil
}

func (f *frame) member(name []byte, v wire.Value) {
	switch string(name) {
	case "type":
		f.kind = v
	case "uuid":
		f.uuid = v
	case "_uuid":
		f.hold = v
	case "lockUuid":
		f.lockUUID = v
	case "key":
		f.key = v
	case "keys":
		f.keys = v
	case "ttl":
		f.ttl = v
	case "max":
		f.max = v
	case "maxRead":
		f.maxRead = v
	case "maxWrite":
		f.maxWrite = v
	case "wait":
		f.wait = v
	case "force":
		f.force = v
	case "rwStatus":
		f.role = v
	case "pid":
		f.pid = v
	case "keepLocksAfterDeath":
		f.keep = v
	case "value":
		f.version = v
	case "timestamp":
		f.timestamp = v
	case "inspectCommand":
		f.inspect = v
	}
}

// plain reports whether a value is a string that says what is between its quotes.
func plain(v wire.Value) bool {
	return v.IsText() && bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v)
}

// ident is an id as it came, to be echoed, and what it says. A number is taken for
// the text of its digits: some clients count.
func ident(name string, v wire.Value) (echo, id string, err error) {
	echo = string(v)
	switch {
	case v.Null():
		return echo, "", lease.Refuse("%s is missing", name)
	case v.IsNumber():
		id = echo
	case plain(v):
		id = echo[1 : len(echo)-1]
	default:
		var wrong string
		if id, wrong = v.Text(); wrong != "" {
			return echo, "", lease.Refuse("%s %s", name, wrong)
		}
	}
	switch {
	case id == "":
		return echo, "", lease.Refuse("%s is empty", name)
	case len(id) > lease.MaxIDLength:
		return echo, "", lease.Refuse("%s is %d bytes, at most %d are allowed (MaxIDLength)", name, len(id), lease.MaxIDLength)
	}
	return echo, id, nil
}

// echoed is keyOf for a key that goes back to the client: as it came, and what it
// says, which is a part of it where that can be.
func echoed(v wire.Value) (echo, key string, err error) {
	echo = string(v)
	if plain(v) {
		key = echo[1 : len(echo)-1]
		return echo, key, lease.CheckKey(key)
	}
	key, err = keyOf(v)
	return echo, key, err
}

// keyOf reads a key.
func keyOf(v wire.Value) (string, error) {
	if v.Null() {
		return "", lease.Refuse("key is missing")
	}
	key, wrong := v.Text()
	if wrong != "" {
		return "", lease.Refuse("key %s", wrong)
	}
	return key, lease.CheckKey(key)
}

// reason is what an error says to people, without the operation and key that the
// client knows.
func reason(err error) string {
	if e, ok := err.(*lease.Error); ok && e.Reason != "" {
		if e.Code == lease.ErrInternal {
			return "internal error; the broker's log says more"
		}
		return e.Reason
	}
	return strings.ReplaceAll(string(lease.CodeOf(err)), "_", " ")
}
