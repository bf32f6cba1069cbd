package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// unlockScript deletes a key only when it still holds the caller's value: the
// release that Redis itself documents for locks of this kind.
const unlockScript = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

// redisServer is a Redis server that was started for one row.
type redisServer struct {
	process *process.Process
	addr    string
	durable bool
}

// startRedis starts redis-server on a free port with a folder of its own and its
// built-in settings, but for what is measured: no snapshots, and with durable an
// append-only file that is synced before every answer.
func (e *env) startRedis(ctx context.Context, durable bool) (*redisServer, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server is not installed (Debian package redis-server): %w", err)
	}
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(e.dir, "redis-")
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	only := "no"
	if durable {
		only = "yes"
	}
	p, err := e.start(ctx, process.Command{Name: "redis-server", Program: program, Ready: process.Listening(addr), Args: []string{
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", only,
		"--appendfsync", "always", "--daemonize", "no"}})
	if err != nil {
		return nil, err
	}
	return &redisServer{p, addr, durable}, nil
}

// redisCaller locks and unlocks in Redis as its documentation says to: SET with
// NX and PX and a random value, and a script that compares before it deletes.
type redisCaller struct {
	client rueidis.Client
	unlock *rueidis.Lua
	keys   []string
	before answers.Tally
}

// dial connects with so many connections, which must be a power of two.
func (s *redisServer) dial(ctx context.Context, e *env, connections, callers int) (*redisCaller, error) {
	multiplex := -1 // one connection; zero would be the library's default
	for n := connections; n > 1; n /= 2 {
		multiplex = max(multiplex, 0) + 1
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.addr}, PipelineMultiplex: multiplex, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	e.later(func() error { c.Close(); return nil })
	r := &redisCaller{client: c, unlock: rueidis.NewLuaScript(unlockScript)}
	for i := range callers {
		r.keys = append(r.keys, fmt.Sprintf("bench:caller:%02d", i))
	}
	if err := s.verify(ctx, c); err != nil {
		return nil, err
	}
	r.before, err = r.tally(ctx)
	return r, err
}

// verify asks the server whether it is as durable as the row says.
func (s *redisServer) verify(ctx context.Context, c rueidis.Client) error {
	for name, want := range map[string]string{"appendonly": "no", "appendfsync": "always"} {
		if name == "appendonly" && s.durable {
			want = "yes"
		}
		got, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if err != nil {
			return fmt.Errorf("redis: %w", err)
		}
		if got[name] != want {
			return rounds.Wrong("redis says %s is %q, not %q", name, got[name], want)
		}
	}
	return nil
}

func (r *redisCaller) pair(ctx context.Context, caller int) error {
	var value [16]byte
	_, _ = rand.Read(value[:]) // never fails, see its documentation
	key, mine := r.keys[caller], hex.EncodeToString(value[:])
	set := r.client.B().Set().Key(key).Value(mine).Nx().PxMilliseconds(ttl.Milliseconds()).Build()
	answer, err := r.client.Do(ctx, set).ToString()
	if err != nil {
		if rueidis.IsRedisNil(err) {
			return rounds.Wrong("redis says that nobody's key %s is locked", key)
		}
		return fmt.Errorf("redis: set: %w", err)
	}
	if answer != "OK" {
		return rounds.Wrong("redis answered SET with %q", answer)
	}
	n, err := r.unlock.Exec(ctx, r.client, []string{key}, []string{mine}).AsInt64()
	if err != nil {
		return fmt.Errorf("redis: unlock: %w", err)
	}
	if n != 1 {
		return rounds.Wrong("redis deleted %d keys for an unlock of %s", n, key)
	}
	return nil
}

var statCalls = regexp.MustCompile(`cmdstat_(set|del):calls=(\d+)`)

// tally reads what Redis counted: the deletions are those inside the script.
func (r *redisCaller) tally(ctx context.Context) (answers.Tally, error) {
	var t answers.Tally
	info, err := r.client.Do(ctx, r.client.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		return t, fmt.Errorf("redis: info: %w", err)
	}
	for _, m := range statCalls.FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			return t, fmt.Errorf("redis: info: %w", err)
		}
		if m[1] == "set" {
			t.Granted = n
		} else {
			t.Released = n
		}
	}
	held, err := r.client.Do(ctx, r.client.B().Dbsize().Build()).AsInt64()
	t.Held = int(held)
	return t, err
}

func (s *redisServer) arm(r *redisCaller, name string, connections int) rounds.Arm {
	how := "no persistence"
	if s.durable {
		how = "appendfsync always"
	}
	return rounds.Arm{
		Name:    name,
		Setting: fmt.Sprintf("%s, %s, SET NX PX + Lua through rueidis, %s", plural(len(r.keys), "caller"), plural(connections, "connection"), how),
		PIDs:    []int{s.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, len(r.keys), d, r.pair)
		},
		Check: func(ctx context.Context, sample *rounds.Sample) error {
			now, err := r.tally(ctx)
			if err != nil {
				return err
			}
			before := r.before
			r.before = now
			return now.Since(before, sample.Ops)
		},
	}
}

// redisVersion asks the program; empty when it is not there.
func redisVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	for f := range strings.FieldsSeq(string(out)) {
		if v, ok := strings.CutPrefix(f, "v="); ok {
			return v
		}
	}
	return ""
}
