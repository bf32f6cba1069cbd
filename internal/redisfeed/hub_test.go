package redisfeed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect makes a client, and a hub on it, that end with the test.
func connect(t testing.TB, addr string, o Options) (*Hub, rueidis.Client) {
	t.Helper()
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{addr}})
	h := New(client, o)
	t.Cleanup(h.Close)
	return h, client
}

func newClient(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o.ForceSingleClient, o.DisableCache, o.DisableRetry, o.PipelineMultiplex = true, true, true, -1
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// A recorder remembers what it was told, and complains of what must not be.
type recorder struct {
	inside atomic.Bool // a call is running
	closed atomic.Bool // Close has returned

	mu       sync.Mutex
	up       bool
	log      []string // "up", "down" or "=" and a message
	messages int
	last     string
	why      error
	problems []string
	told     chan struct{}
}

func record() *recorder { return &recorder{told: make(chan struct{}, 1)} }

func (r *recorder) call(entry string, do func()) {
	if !r.inside.CompareAndSwap(false, true) {
		r.problem("two calls at once")
	}
	if r.closed.Load() {
		r.problem("called after Close: " + entry)
	}
	r.mu.Lock()
	if do(); len(r.log) < 1000 {
		r.log = append(r.log, entry)
	}
	r.mu.Unlock()
	r.inside.Store(false)
	select {
	case r.told <- struct{}{}:
	default:
	}
}

func (r *recorder) problem(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, text)
}

func (r *recorder) Up() {
	r.call("up", func() {
		if r.up {
			r.problems = append(r.problems, "up twice")
		}
		r.up = true
	})
}

func (r *recorder) Down(why error) {
	r.call("down", func() {
		if !r.up && !strings.Contains(why.Error(), "refuses") {
			r.problems = append(r.problems, "down without being up")
		}
		r.up, r.why = false, why
	})
}

func (r *recorder) Message(text string) {
	r.call("="+text, func() {
		if !r.up {
			r.problems = append(r.problems, "a message while down: "+text)
		}
		r.messages, r.last = r.messages+1, text
	})
}

func (r *recorder) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		r.mu.Lock()
		ok := cond()
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.told:
		case <-deadline:
			t.Fatalf("waited in vain until %s; told %q", what, r.log)
		}
	}
}

func (r *recorder) check(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.problems {
		t.Error(p)
	}
}

func (r *recorder) saw() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.log, " ")
}

// listen subscribes a recorder and waits until it is up.
func listen(t testing.TB, h *Hub, channel string) (*recorder, *Subscription) {
	t.Helper()
	r := record()
	s, err := h.Subscribe(channel, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); r.closed.Store(true); r.check(t) })
	r.until(t, "the subscription stands", func() bool { return r.up })
	return r, s
}

func publish(t testing.TB, c rueidis.Client, channel, text string) int64 {
	t.Helper()
	n, err := c.Do(t.Context(), c.B().Publish().Channel(channel).Message(text).Build()).AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestManyChannelsOfOneConnection(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, client := connect(t, server.Addr(), Options{})
	a, _ := listen(t, h, "a")
	again, s := listen(t, h, "a")
	b, _ := listen(t, h, "b")
	if n := publish(t, client, "a", "1") + publish(t, client, "b", "2"); n != 2 {
		t.Errorf("%d subscribed connections got the two messages, want one and one", n)
	}
	for _, r := range []*recorder{a, again, b} {
		r.until(t, "the message came", func() bool { return r.messages == 1 })
	}
	s.Close()
	again.closed.Store(true)
	publish(t, client, "a", "3")
	a.until(t, "the second message came", func() bool { return a.last == "3" })
	if got := a.saw() + "; " + again.saw() + "; " + b.saw(); got != "up =1 =3; up =1; up =2" {
		t.Errorf("told %q", got)
	}
	if _, err := s.Do(t.Context(), client.B().Ping().Build()); !errors.Is(err, ErrClosed) {
		t.Errorf("Do of a closed subscription: %v", err)
	}
	if st := h.Stats(); !st.Up || st.Connects != 1 || st.Ended+st.Silent+st.Refused != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestTheLastOneUnsubscribes(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, _ := connect(t, server.Addr(), Options{})
	_, s1 := listen(t, h, "a")
	_, s2 := listen(t, h, "a")
	keep, _ := listen(t, h, "b")
	s1.Close()
	s1.Close()
	s2.Close()
	soon(t, "the channel is unsubscribed", func() bool {
		return len(server.Do("PUBSUB", "CHANNELS").([]any)) == 1
	})
	r, _ := listen(t, h, "a")
	server.Do("PUBLISH", "a", "x")
	server.Do("PUBLISH", "b", "y")
	r.until(t, "the message came", func() bool { return r.last == "x" })
	keep.until(t, "the other message came", func() bool { return keep.last == "y" })
}

// soon waits for a condition of the server, which tells nobody.
func soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for began := time.Now(); !cond(); {
		if time.Since(began) > time.Minute {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestResubscribesAfterAKill(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, client := connect(t, server.Addr(), Options{})
	a, _ := listen(t, h, "a")
	b, _ := listen(t, h, "b")
	for i := range 5 {
		if n := server.KillPubSub(); n != 1 {
			t.Fatalf("%d connections are subscribed, want one", n)
		}
		for _, r := range []*recorder{a, b} {
			r.until(t, "it is up again", func() bool { return r.up && strings.Count(strings.Join(r.log, " "), "up") == i+2 })
		}
		publish(t, client, "a", "m"+strconv.Itoa(i))
	}
	a.until(t, "the last message came", func() bool { return a.last == "m4" })
	if got, want := a.saw(), "up down up =m0 down up =m1 down up =m2 down up =m3 down up =m4"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	if st := h.Stats(); st.Ended != 5 || st.Connects != 6 {
		t.Errorf("stats %+v", st)
	}
}

// late is how much later than its time something may be seen on a busy machine.
const late = 5 * time.Second

// A link that keeps its sockets and moves nothing is noticed by the answer that does not come.
func TestHalfDeadLink(t *testing.T) {
	for _, direction := range []redistest.Direction{redistest.Both, redistest.Replies, redistest.Requests} {
		t.Run(fmt.Sprint(direction), func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{})
			relay := redistest.NewRelay(t, server.Addr())
			o := Options{Heartbeat: 100 * time.Millisecond, Timeout: 200 * time.Millisecond}
			h, _ := connect(t, relay.Addr(), o)
			r, s := listen(t, h, "a")
			relay.Freeze(direction)
			began := time.Now()
			r.until(t, "it is told", func() bool { return !r.up })
			if took := time.Since(began); took > o.Heartbeat+o.Timeout+late {
				t.Errorf("noticed after %v, want %v", took, o.Heartbeat+o.Timeout)
			}
			if !strings.Contains(r.why.Error(), "no answer") {
				t.Errorf("the reason is %v", r.why)
			}
			if _, err := s.Do(t.Context(), s.B().Ping().Build()); !errors.Is(err, ErrDown) {
				t.Errorf("Do while down: %v", err)
			}
			relay.Thaw()
			r.until(t, "it is up again", func() bool { return r.up })
			server.Do("PUBLISH", "a", "x")
			r.until(t, "a message came", func() bool { return r.last == "x" })
			if h.Stats().Silent == 0 {
				t.Errorf("stats %+v", h.Stats())
			}
		})
	}
}

func TestServerFreezesAndRestarts(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, _ := connect(t, server.Addr(), Options{Heartbeat: 100 * time.Millisecond, Timeout: 200 * time.Millisecond})
	r, s := listen(t, h, "a")
	server.Freeze()
	began := time.Now()
	_, err := s.Do(t.Context(), s.B().Ping().Build())
	if took := time.Since(began); !errors.Is(err, ErrDown) || took > late {
		t.Errorf("Do on a frozen server: %v after %v", err, took)
	}
	r.until(t, "it is told", func() bool { return !r.up })
	server.Thaw()
	r.until(t, "it is up again", func() bool { return r.up })
	server.Kill()
	r.until(t, "it is told", func() bool { return !r.up })
	soon(t, "an attempt has failed", func() bool { return h.Stats().Refused > 0 })
	server.Restart()
	r.until(t, "it is up again", func() bool { return r.up })
	server.Do("PUBLISH", "a", "x")
	r.until(t, "a message came", func() bool { return r.last == "x" })
}

// TestAnswersFollowMessages holds the promise that everything else stands on: when an answer is there, what was
// published before it was computed has been handed over.
func TestAnswersFollowMessages(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, client := connect(t, server.Addr(), Options{})
	seen := new(counter)
	s, err := h.Subscribe("c", seen)
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "it is up", func() bool { return seen.up.Load() })
	script := rueidis.NewLuaScript(`redis.call('PUBLISH', ARGV[1], redis.call('INCR', KEYS[1]))`)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			_ = script.Exec(ctx, client, []string{"n"}, []string{"c"}).Error()
		}
	})
	var behind, asked atomic.Int64
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 3000 {
				out, err := s.Do(t.Context(), s.B().Get().Key("n").Build())
				if err != nil {
					t.Error(err)
					return
				}
				n, err := out[0].AsInt64()
				if rueidis.IsRedisNil(err) {
					continue
				}
				if asked.Add(1); seen.n.Load() < n {
					behind.Add(1)
				}
			}
		})
	}
	readers.Wait()
	stop()
	running.Wait()
	if behind.Load() > 0 || asked.Load() < 1000 || seen.gaps.Load() > 0 {
		t.Errorf("%d of %d answers came before the messages, and %d messages were not the next", behind.Load(), asked.Load(), seen.gaps.Load())
	}
}

// A counter receives numbers.
type counter struct {
	up   atomic.Bool
	n    atomic.Int64
	gaps atomic.Int64
}

func (c *counter) Up()        { c.up.Store(true) }
func (c *counter) Down(error) { c.up.Store(false) }
func (c *counter) Message(text string) {
	n, _ := strconv.ParseInt(text, 10, 64)
	if was := c.n.Swap(n); was != 0 && n != was+1 {
		c.gaps.Add(1)
	}
}

// Subscriptions come and go while messages are published and connections are cut.
func TestSubscribeAndCloseRace(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, client := connect(t, server.Addr(), Options{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond})
	ctx, stop := context.WithCancel(t.Context())
	var others, workers sync.WaitGroup
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_ = client.Do(ctx, client.B().Publish().Channel("c"+strconv.Itoa(i%4)).Message("x").Build()).Error()
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			_, _ = server.Try("CLIENT", "KILL", "TYPE", "pubsub")
			<-time.After(20 * time.Millisecond)
		}
	})
	for i := range 8 {
		workers.Go(func() {
			for j := range 60 {
				r := record()
				s, err := h.Subscribe("c"+strconv.Itoa((i+j)%4), r)
				if err != nil {
					t.Error(err)
					return
				}
				if j%3 > 0 {
					r.until(t, "it is up", func() bool { return r.messages > 0 || len(r.log) > 0 })
				}
				s.Close()
				r.closed.Store(true)
				r.check(t)
			}
		})
	}
	workers.Wait()
	stop()
	others.Wait()
	r, _ := listen(t, h, "c0")
	publish(t, client, "c0", "y")
	r.until(t, "the message came", func() bool { return r.last == "y" })
}

func TestCloseEndsEverything(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	relay := redistest.NewRelay(t, server.Addr())
	for _, state := range []string{"up", "frozen", "refused", "unused"} {
		t.Run(state, func(t *testing.T) {
			relay.Restore()
			h, _ := connect(t, relay.Addr(), Options{})
			r := record()
			if state != "unused" {
				r, _ = listen(t, h, "a")
			}
			switch state {
			case "frozen":
				relay.Freeze(redistest.Both)
				defer relay.Thaw()
			case "refused":
				relay.Cut()
				r.until(t, "it is told", func() bool { return !r.up })
			}
			began := time.Now()
			h.Close()
			r.closed.Store(true)
			if took := time.Since(began); took > late {
				t.Errorf("Close took %v", took)
			}
			h.Close()
			if _, err := h.Subscribe("b", r); !errors.Is(err, ErrClosed) {
				t.Errorf("Subscribe after Close: %v", err)
			}
			if r.check(t); state == "up" && strings.Contains(r.saw(), "down") {
				t.Errorf("told %q", r.saw())
			}
		})
	}
}

func TestRefusedChannelTakesNoOtherWithIt(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Users: []string{"app on >secret ~* &ok +@all"}})
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}, Username: "app", Password: "secret"})
	h := New(client, Options{Heartbeat: 20 * time.Millisecond})
	t.Cleanup(h.Close)
	bad := record()
	s, err := h.Subscribe("no", bad)
	if err != nil {
		t.Fatal(err)
	}
	listen(t, h, "ok")
	bad.until(t, "it is told", func() bool { return bad.why != nil })
	if _, err := s.Do(t.Context(), s.B().Ping().Build()); !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("Do: %v, want ErrDown with the server's reason", err)
	}
	server.Do("ACL", "SETUSER", "app", "&no")
	bad.until(t, "it is allowed and up", func() bool { return bad.up })
	if got := bad.saw(); got != "down up" {
		t.Errorf("told %q: a refusal is told once", got)
	}
}

func TestRESP2IsRefused(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := newClient(t, rueidis.ClientOption{InitAddress: []string{server.Addr()}, AlwaysRESP2: true})
	h := New(client, Options{})
	t.Cleanup(h.Close)
	s, err := h.Subscribe("a", record())
	if err != nil {
		t.Fatal(err)
	}
	soon(t, "the reason is known", func() bool {
		_, err := s.Do(t.Context(), client.B().Ping().Build())
		return errors.Is(err, ErrDown) && strings.Contains(err.Error(), "RESP2")
	})
}

// Commands that nobody waits for any more still stand in the client's queue, which must not fill up.
func TestAbandonedCommandsAreBounded(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	h, _ := connect(t, server.Addr(), Options{Heartbeat: 300 * time.Millisecond, Timeout: 5 * time.Second})
	r, s := listen(t, h, "a")
	server.Freeze()
	var refused atomic.Bool
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for !refused.Load() {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Microsecond)
				_, err := s.Do(ctx, s.B().Ping().Build())
				cancel()
				if errors.Is(err, ErrTooMany) {
					refused.Store(true)
				}
				if errors.Is(err, ErrDown) {
					return
				}
			}
		})
	}
	callers.Wait()
	if !refused.Load() {
		t.Error("the limit was not reached")
	}
	r.until(t, "it is down", func() bool { return !r.up })
	server.Thaw()
	r.until(t, "it is up", func() bool { return r.up })
	if _, err := s.Do(t.Context(), s.B().Ping().Build()); err != nil {
		t.Error(err)
	}
}
