package rmapredis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistext"
	"github.com/latchkey-go/latchkey/rmap"
)

//go:embed lua/prelude.lua
var prelude string

//go:embed lua/write.lua
var writeBody string

//go:embed lua/set.lua
var setFirst string

// setBody is what is behind setFirst for when that falls through.
const setBody = "map.op = 1\nmap.set(ARGV[1], ARGV[2], 0)\nreturn { 0, false }"

// A Script is a script that changes a map in one atomic step, together with whatever else it does. [NewScript] makes
// one; it is for variables of packages, and may be used from any goroutine.
type Script struct {
	lua *rueidis.Lua
}

// NewScript makes a script of a body in Lua. The body sees its own KEYS and ARGV, as given to [Run], and the map as a
// table named map, whose functions are listed at the top of lua/prelude.lua in the source of this package. It must not
// touch the keys of the map in another way: only so does every replica learn what happened. What the body does to the
// map is written after it has returned, and not at all when it fails; what it does to keys of its own is written at
// once, so it must look at the map first.
func NewScript(body string) *Script { return &Script{lua: rueidis.NewLuaScript(source("", body))} }

// source puts a script together. What is in first may return before the rest begins.
func source(first, body string) string {
	// The shebang has the server refuse the script before it begins when it could not end it: for want of memory, on a
	// replica, when the disk fails.
	return "#!lua\n" + first + prelude + "local reply = (function(KEYS, ARGV)\n" + body +
		"\nend)(own.KEYS, own.ARGV)\nreturn commit(reply)\n"
}

// A Done is what became of a [Run].
type Done struct {
	Revision rmap.Revision        // of the change, or the one at which the map was found
	Changed  bool                 // whether there was a change
	Reply    rueidis.RedisMessage // what the body returned
}

// Run runs a script on a map. keys and args are those that the body sees; keys that it touches belong to them. An
// error wraps [rmap.ErrUnknown] when the script may have run.
func Run(ctx context.Context, s *Store, sc *Script, name string, keys, args []string) (Done, error) {
	if err := s.ready(ctx, name); err != nil {
		return Done{}, err
	}
	done, err := s.run(ctx, sc, name, settings{}, keys, args)
	if err != nil {
		return Done{}, fmt.Errorf("rmapredis: script on map %q: %w", name, err)
	}
	return done, nil
}

// settings are what a writer says of the map.
type settings struct {
	lifetime   *rmap.Lifetime
	maxEntries int
}

// run is the one way in which anything is changed.
func (s *Store) run(ctx context.Context, sc *Script, name string, w settings, keys, args []string) (Done, error) {
	allKeys, allArgs := s.words(name, w, keys, args)
	ctx, cancel := redistext.Limited(ctx, s.o.Timeout)
	defer cancel()
	reply, err := sc.lua.Exec(ctx, s.client, allKeys, allArgs).ToMessage()
	if err != nil {
		return Done{}, s.failed(err)
	}
	done, err := parseDone(reply)
	if err != nil {
		return Done{}, fmt.Errorf("%w: the reply of the script: %w", rmap.ErrUnknown, err)
	}
	return done, nil
}

// words are the keys and arguments of a script: first those of the prelude, then those of the body.
func (s *Store) words(name string, w settings, keys, args []string) (allKeys, allArgs []string) {
	ttl, sliding := "", "0"
	if w.lifetime != nil {
		ttl = strconv.FormatInt(w.lifetime.TTL.Milliseconds(), 10)
		if w.lifetime.Sliding {
			sliding = "1"
		}
	}
	allKeys = append([]string{s.hash(name), s.due(name), s.log(name), s.tmp(name)}, keys...)
	allArgs = append([]string{s.channel(name), redistext.Hex16(redistext.Random()), redistext.Hex16(redistext.Random()), strconv.Itoa(s.o.version), ttl, sliding,
		strconv.Itoa(w.maxEntries)}, args...)
	return allKeys, allArgs
}

// parseDone reads what every script returns: whether there was a change, three words of the revision, and the reply of
// the body; or, from lua/set.lua, the beginning of a header.
func parseDone(reply rueidis.RedisMessage) (Done, error) {
	if place, err := reply.ToString(); err == nil {
		f := &fields{redistext.Fields{Rest: place}}
		f.Until(' ')
		done := Done{Changed: true, Revision: f.revision(f.Until(' '), f.Until(' '), f.Until(' '))}
		if f.Bad || f.Rest != "" {
			return Done{}, errMalformed
		}
		return done, nil
	}
	parts, err := reply.ToArray()
	if err != nil || len(parts) < 4 {
		return Done{}, errMalformed
	}
	changed, err := parts[0].AsInt64()
	if err != nil {
		return Done{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	done := Done{Changed: changed == 1}
	if len(parts) > 4 {
		done.Reply = parts[4]
	}
	var text [3]string
	for i := range text {
		if text[i], err = parts[i+1].ToString(); err != nil {
			return Done{}, fmt.Errorf("%w: %w", errMalformed, err)
		}
	}
	if text[0] == "" {
		return done, nil
	}
	f := &fields{}
	if done.Revision = f.revision(text[0], text[1], text[2]); f.Bad {
		return Done{}, errMalformed
	}
	return done, nil
}
