package hotcacheredis

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

//go:embed lua/prelude.lua
var prelude string

//go:embed lua/hit.lua
var hit string

//go:embed lua/first.lua
var first string

//go:embed lua/look.lua
var lookBody string

//go:embed lua/ask.lua
var askBody string

//go:embed lua/fill.lua
var fillBody string

//go:embed lua/renew.lua
var renewBody string

//go:embed lua/fail.lua
var failBody string

//go:embed lua/invalidate.lua
var invalidateBody string

//go:embed lua/beat.lua
var beatBody string

//go:embed lua/adopt.lua
var adoptBody string

//go:embed lua/copy.lua
var copyBody string

// A script is its text and the name by which the server knows it.
type script struct{ text, sha string }

func newScript(parts ...string) script {
	text := strings.Join(parts, "")
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

// scripts are all of a node.
type scripts struct {
	ask, look, fill, renew, fail, invalidate, beat, copied script
	adopt                                                  script // never called by its name: see Node.load
}

// newScripts returns the scripts of one cache. The name of its keys is a part of their texts, so that what the server
// knows by their names it was given for this cache, and not for another one that has been looked at: see Node.load.
func newScripts(base string) scripts {
	// The flag has a full server run what frees memory, and what must not be refused: invalidations. What stores data is
	// refused as a whole, before it begins.
	const always, fits = "#!lua flags=allow-oom\n", "#!lua\n"
	of := "\n-- of " + strconv.Quote(base) + "\n"
	return scripts{
		ask:        newScript(always, hit, first, prelude, askBody, of),
		look:       newScript(always, hit, lookBody, of),
		fill:       newScript(fits, prelude, fillBody, of),
		renew:      newScript(always, prelude, renewBody, of),
		fail:       newScript(always, prelude, failBody, of),
		invalidate: newScript(always, prelude, invalidateBody, of),
		beat:       newScript(always, prelude, beatBody, of),
		copied:     newScript(fits, prelude, copyBody, of),
		adopt:      newScript(always, prelude, adoptBody, of),
	}
}

// A call is one run of a script.
type call struct {
	script script
	keys   []string
	args   []string
}

// call makes one of what the prelude takes and what the body does. item is the key that it is about, if it is.
func (n *Node) call(sc script, trust time.Duration, item, load string, args ...string) call {
	c := call{script: sc, keys: []string{n.keys.floors(), n.keys.former(), n.keys.members()}}
	if item != "" {
		c.keys = append(c.keys, item, load)
	}
	c.args = append(make([]string, 0, 5+len(args)), strconv.Itoa(n.o.version), n.keys.feed(), redistext.Hex16(redistext.Random()),
		micros(n.o.Rules.FloorTTL), micros(trust))
	c.args = append(c.args, args...)
	return c
}

// command is built anew for each time that a call is sent: the client takes it back.
func (c call) command(b rueidis.Builder) rueidis.Completed {
	return b.Evalsha().Sha1(c.script.sha).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// whole has the server read the script too, without knowing it afterwards by a name that anybody calls.
func (c call) whole(b rueidis.Builder) rueidis.Completed {
	return b.Eval().Script(c.script.text).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
}

// run is the way in which everything but the feed asks the server.
func (n *Node) run(ctx context.Context, c call) (rueidis.RedisMessage, error) {
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	if err := n.meet(ctx); err != nil {
		return rueidis.RedisMessage{}, err
	}
	return n.loaded(ctx, func() (rueidis.RedisMessage, error) {
		return n.client.Do(ctx, c.command(n.client.B())).ToMessage()
	})
}

// loaded asks, and asks again when the server did not know the script and has been given it.
func (n *Node) loaded(ctx context.Context, ask func() (rueidis.RedisMessage, error)) (rueidis.RedisMessage, error) {
	for tries := 0; ; tries++ {
		before := n.loads.Load()
		m, err := ask()
		if e, ok := rueidis.IsRedisErr(err); !ok || !e.IsNoScript() || tries == maxLoads {
			return m, err
		}
		if err := n.load(ctx, before); err != nil {
			return m, err
		}
	}
}

// maxLoads is how often one call gives the server its scripts: it can be started again meanwhile.
const maxLoads = 2

// load gives the server the scripts, unless somebody of this process has since they were found missing.
//
// A server forgets scripts with its life and not otherwise, and what it stores may then be what it was a while ago.
// So it gets them only behind the script that begins a generation if that is so, and on the same connection, which
// cannot outlive it either: what a script finds that the server knows has been looked at in this life.
func (n *Node) load(ctx context.Context, before uint64) error {
	select {
	case n.one <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.life.Done():
		return hotcache.ErrClosed
	}
	if n.loads.Load() != before {
		<-n.one
		return nil
	}
	done := make(chan error, 1)
	go func() { // the client cannot be told to give up an attempt to connect
		defer func() { <-n.one }()
		done <- n.install()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) install() error {
	conn, release := n.client.Dedicate()
	defer release()
	ctx, cancel := context.WithTimeout(n.life, n.o.Timeout)
	defer cancel()
	if err := redisfeed.Greet(ctx, conn); err != nil {
		return err
	}
	adopt := n.call(n.scripts.adopt, n.trusted(), "", "")
	if err := conn.Do(ctx, adopt.whole(conn.B())).Error(); err != nil {
		return err
	}
	s := &n.scripts
	for _, sc := range []script{s.ask, s.look, s.fill, s.renew, s.fail, s.invalidate, s.beat, s.copied} {
		if err := conn.Do(ctx, conn.B().ScriptLoad().Script(sc.text).Build()).Error(); err != nil {
			return err
		}
	}
	n.loads.Add(1)
	return nil
}

// trusted is for how long members may trust their memory, as far as this process knows.
func (n *Node) trusted() time.Duration { return time.Duration(n.trust.Load()) }
