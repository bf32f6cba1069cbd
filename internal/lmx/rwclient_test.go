package lmx_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// What the readers/writers clients of live-mutex do, frame by frame, is rebuilt
// here as tasks that take one step after the other. There are three of them: the
// write-preferring one of 0.2.25, the write-preferring one of 0.2.27, and the
// read-preferring one of 0.2.27, whose first reader locks a second key for all.
// As in JavaScript any number of tasks share one client, which is one connection.

// rwKind is one of the three.
type rwKind struct {
	name    string
	version string
	begin   map[bool]func(*rwTask) error // by whether it writes
	end     map[bool]func(*rwTask) error
}

var (
	rwOld = &rwKind{name: "0.2.25", version: "0.2.25",
		begin: map[bool]func(*rwTask) error{
			false: func(t *rwTask) error { return t.aside("register-write-flag-check") },
			true:  func(t *rwTask) error { return t.aside("register-write-flag-and-readers-check") },
		},
		end: map[bool]func(*rwTask) error{
			false: func(t *rwTask) error { return t.aside("decrement-readers") },
			true:  func(t *rwTask) error { return t.aside("set-write-flag-false-and-broadcast") },
		}}
	rwNew = &rwKind{name: "0.2.27", version: "0.2.27",
		begin: map[bool]func(*rwTask) error{false: (*rwTask).newBeginRead, true: (*rwTask).newBeginWrite},
		end:   map[bool]func(*rwTask) error{false: (*rwTask).newEndRead, true: (*rwTask).newEndWrite}}
	rwPref = &rwKind{name: "0.2.27 read-preferring", version: "0.2.27",
		begin: map[bool]func(*rwTask) error{false: (*rwTask).prefBeginRead, true: (*rwTask).prefBeginWrite},
		end:   map[bool]func(*rwTask) error{false: (*rwTask).prefEndRead, true: (*rwTask).prefEndWrite}}
)

// aside is every step of 0.2.25: a question or report inside of the base lock.
func (t *rwTask) aside(kind string) error {
	id, _, err := t.lock(t.key, 1, nil)
	if err != nil {
		return err
	}
	if err := t.ask(kind); err != nil {
		return err
	}
	return t.unlock(t.key, id, nil)
}

// newBeginRead is the reader of 0.2.27: it asks first, and keeps the base lock.
func (t *rwTask) newBeginRead() (err error) {
	if err := t.ask("register-write-flag-check"); err != nil {
		return err
	}
	if t.base, _, err = t.lock(t.key, 10, nil); err != nil {
		return err
	}
	return t.ask("increment-readers")
}

func (t *rwTask) newEndRead() error {
	if err := t.ask("decrement-readers"); err != nil {
		return err
	}
	return t.unlock(t.key, t.base, nil)
}

func (t *rwTask) newBeginWrite() (err error) {
	if t.base, _, err = t.lock(t.key, 1, nil); err != nil {
		return err
	}
	return t.ask("register-write-flag-and-readers-check")
}

func (t *rwTask) newEndWrite() error {
	if err := t.unlock(t.key, t.base, nil); err != nil {
		return err
	}
	return t.ask("set-write-flag-false-and-broadcast")
}

// writeKey is what writers lock who prefer readers, and the first reader for all.
func (t *rwTask) writeKey() string { return t.key + " write" }

func (t *rwTask) prefBeginRead() error {
	var first *rwLock
	read := t.request(t.key, 10, "begin_read", func(grant lmxtest.Frame) {
		if grant.Int("readersCount") == 1 {
			first = t.requestNow(t.writeKey(), nil, "locking_write_key", nil)
		}
	})
	_, err := t.await(read)
	if err != nil {
		return err
	}
	if first != nil {
		t.step("locks " + t.writeKey())
		if _, err := t.await(first); err != nil {
			return errors.Join(err, t.unlock(t.key, read.id, "begin_read"))
		}
	}
	return t.unlock(t.key, read.id, "begin_read")
}

func (t *rwTask) prefEndRead() error {
	id, readers, err := t.lock(t.key, 1, "end_read")
	if err != nil {
		return err
	}
	if err := t.unlock(t.key, id, "end_read"); err != nil || readers != 1 {
		return err
	}
	return t.unlock(t.writeKey(), "", "unlocking_write_key")
}

func (t *rwTask) prefBeginWrite() error {
	_, _, err := t.lock(t.writeKey(), 1, "begin_write")
	return err
}

func (t *rwTask) prefEndWrite() error { return t.unlock(t.writeKey(), "", "end_write") }

// rwTask is one of the tasks that use a client. It does one thing after the other.
type rwTask struct {
	*rwLink
	name  string
	rand  *rand.Rand
	key   string
	base  string // id of the base lock, where it is kept
	write bool
}

var (
	errGone    = errors.New("the connection has ended")
	errTimeout = errors.New("the lock request timed out")
)

const lockTries = 3 // what the clients have as default

// pause is the time between two steps. It is never the same twice, so that the
// order of events follows from the seed.
func (t *rwTask) pause() {
	if t.rand.IntN(3) > 0 {
		pass(time.Duration(t.rand.IntN(4_000_000)) * time.Nanosecond)
	}
}

// rwLock is a request for a lock.
type rwLock struct {
	id      string
	frame   lmxtest.Frame
	answers chan lmxtest.Frame
	then    func(lmxtest.Frame) // what is done when the grant is read, before anything else is
}

// lock locks a key and returns the id of the lock, and how many readers there are.
func (t *rwTask) lock(key string, limit, role any) (id string, readers int64, err error) {
	k := t.request(key, limit, role, nil)
	f, err := t.await(k)
	return k.id, f.Int("readersCount"), err
}

func (t *rwTask) request(key string, limit, role any, then func(lmxtest.Frame)) *rwLock {
	t.pause()
	t.step("locks " + key)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.requestNow(key, limit, role, then)
}

// requestNow is request for who has the mutex.
func (t *rwTask) requestNow(key string, limit, role any, then func(lmxtest.Frame)) *rwLock {
	k := &rwLock{id: t.world.id(), answers: make(chan lmxtest.Frame, 2*lockTries), then: then}
	k.frame = lmxtest.Frame{"type": "lock", "uuid": k.id, "key": key, "ttl": t.client.ttl.Milliseconds(), "max": limit,
		"rwStatus": role, "retryCount": 0, "pid": 4711, "keepLocksAfterDeath": false}
	t.locks[k.id] = k
	t.waits[k.id] = k.answers
	t.sendNow(k.frame)
	return k
}

// await waits for a grant as the clients do: it asks again under the same uuid
// when there is none in time, and at last gives up.
func (t *rwTask) await(k *rwLock) (lmxtest.Frame, error) {
	for try := range lockTries {
		if try > 0 {
			t.send(k.frame.With(lmxtest.Frame{"retryCount": try}))
		}
		if f, err := t.grant(k); !errors.Is(err, errTimeout) {
			return f, err
		}
	}
	if t.giveUp(k.id) {
		t.send(lmxtest.Frame{"type": "lock-client-timeout", "uuid": k.id, "key": k.frame["key"]})
		return nil, errTimeout
	}
	return t.grant(k) // it came at the very last
}

// grant waits for a grant, as long as one try takes.
func (t *rwTask) grant(k *rwLock) (lmxtest.Frame, error) {
	limit := time.NewTimer(t.client.lockTimeout)
	defer limit.Stop()
	for {
		select {
		case f := <-k.answers:
			if f.Has("error") {
				return nil, fmt.Errorf("the broker refuses: %v", f)
			}
			if f.True("acquired") {
				return f, nil
			}
		case <-limit.C:
			return nil, errTimeout
		case <-t.gone:
			return nil, errGone
		}
	}
}

// unlock unlocks a key: by id, or by force where there is none.
func (t *rwTask) unlock(key, id string, role any) error {
	f := lmxtest.Frame{"type": "unlock", "key": key, "_uuid": id, "force": false, "rwStatus": role, "pid": 4711}
	if id == "" {
		f = f.With(lmxtest.Frame{"force": true}).Without("_uuid")
	}
	a, err := t.call(f)
	if err == nil && !a.True("unlocked") {
		err = fmt.Errorf("the broker refuses to unlock: %v", a)
	}
	return err
}

// ask puts a question of the monitor, or reports to it. There is no limit to how
// long the answer takes.
func (t *rwTask) ask(kind string) error {
	_, err := t.call(lmxtest.Frame{"type": kind, "key": t.key})
	return err
}

func (t *rwTask) call(f lmxtest.Frame) (lmxtest.Frame, error) {
	t.pause()
	id := t.world.id()
	t.step(fmt.Sprint(f["type"], " ", f["key"]))
	answers := t.expect(id)
	t.send(f.With(lmxtest.Frame{"uuid": id}))
	select {
	case a := <-answers:
		if a.Has("error") {
			return nil, fmt.Errorf("the broker refuses: %v", a)
		}
		return a, nil
	case <-t.gone:
		return nil, errGone
	}
}

func (t *rwTask) step(what string) { t.world.note(t, what) }

// rwClient is one client object: the settings that all its connections share.
type rwClient struct {
	world       *rwWorld
	name        string
	kind        *rwKind
	lockTimeout time.Duration
	ttl         time.Duration
}

// rwLink is one connection of a client.
type rwLink struct {
	client *rwClient
	world  *rwWorld
	conn   net.Conn
	out    chan string
	gone   chan struct{} // closed when the connection has ended

	mu    sync.Mutex // guards what follows
	dead  bool
	waits map[string]chan lmxtest.Frame // who waits for frames with a uuid
	locks map[string]*rwLock            // all there were, since they may be granted once more
}

// connect makes a connection and says which version the client is.
func (c *rwClient) connect() *rwLink {
	l := &rwLink{client: c, world: c.world, conn: c.world.dial(), out: make(chan string, 4096), gone: make(chan struct{}),
		waits: map[string]chan lmxtest.Frame{}, locks: map[string]*rwLock{}}
	c.world.running.Go(l.write)
	c.world.running.Go(l.read)
	l.send(lmxtest.Frame{"type": "version", "value": c.kind.version, "pid": 4711})
	return l
}

func (l *rwLink) write() {
	for {
		select {
		case line := <-l.out:
			if _, err := l.conn.Write([]byte(line)); err != nil {
				return
			}
		case <-l.gone:
			return
		}
	}
}

func (l *rwLink) read() {
	in := bufio.NewReader(l.conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			break
		}
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var f lmxtest.Frame
		if err := d.Decode(&f); err != nil {
			l.world.failf("%s was sent %q", l.client.name, line)
			break
		}
		l.got(f)
	}
	if l.leave() {
		l.world.failf("the broker ended the connection of %s", l.client.name)
	}
	l.conn.Close()
	close(l.gone)
}

// got hands a frame to who waits for it. Grants are acknowledged at once, and those
// that nobody waits for any more are rejected.
func (l *rwLink) got(f lmxtest.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := f.Text("uuid")
	to := l.waits[id]
	granted := f["type"] == "lock" && f.True("acquired")
	switch {
	case l.dead:
		return
	case to != nil && granted:
		delete(l.waits, id)
		l.sendNow(lmxtest.Frame{"type": "lock-received", "uuid": id, "key": f["key"]})
		if then := l.locks[id].then; then != nil {
			then(f)
		}
	case to != nil && f["type"] != "lock":
		delete(l.waits, id)
	case to == nil && granted:
		l.sendNow(lmxtest.Frame{"type": "lock-received-rejected", "uuid": id, "key": f["key"]})
		return
	case to == nil && l.locks[id] == nil:
		l.world.failf("%s was sent an answer that it did not wait for: %v", l.client.name, f)
		return
	case to == nil:
		return
	}
	to <- f
}

func (l *rwLink) expect(id string) <-chan lmxtest.Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := make(chan lmxtest.Frame, 1)
	l.waits[id] = answers
	return answers
}

// giveUp says that nobody waits for a lock any more. It reports false if a grant
// came at the very last.
func (l *rwLink) giveUp(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, waited := l.waits[id]
	delete(l.waits, id)
	return waited
}

func (l *rwLink) send(f lmxtest.Frame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sendNow(f)
}

func (l *rwLink) sendNow(f lmxtest.Frame) {
	if !l.dead {
		l.out <- f.String() + "\n"
	}
}

// leave ends all that tasks do on this connection. It reports whether it had to.
func (l *rwLink) leave() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaveNow()
}

func (l *rwLink) leaveNow() bool {
	if l.dead {
		return false
	}
	l.dead = true
	l.world.left(l)
	return true
}

// cut breaks the connection.
func (l *rwLink) cut() {
	l.leave()
	l.conn.Close()
}

// beCut has the broker end the connection.
func (l *rwLink) beCut(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leaveNow() {
		l.out <- lmxtest.Frame{"type": kind}.String() + "\n"
	}
}
