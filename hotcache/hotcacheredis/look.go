package hotcacheredis

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

const (
	// maxLook is how many reads look together, and enoughLook how many bytes of items they bring: nobody else is served
	// while the server is at it.
	maxLook    = 64
	enoughLook = 256 << 10
)

// A looker has reads that come while another one is under way wait for its answer, and then look together: one script
// for all, which costs the server a fifth of what each of its own would. So a read waits for the answer to one before it
// at most, and one that is alone for none.
type looker struct {
	idle    sync.WaitGroup // those who look together
	mu      sync.Mutex     // guards what follows
	flying  bool           // one is, or some are, under way
	waiting []*look
}

// A look is a read that waits for others.
type look struct {
	q      hotcache.Ask
	done   chan struct{} // closed when what follows is there
	alone  bool          // it is no usual read, and has to ask
	answer hotcache.Answer
	err    error
}

// look is Ask for a read of any version.
func (n *Node) look(ctx context.Context, q hotcache.Ask) (hotcache.Answer, error) {
	s := &n.looks
	s.mu.Lock()
	if !s.flying && !n.o.together {
		s.flying = true
		s.mu.Unlock()
		defer n.landed()
		return n.alone(ctx, q)
	}
	l := &look{q: q, done: make(chan struct{})}
	s.waiting = append(s.waiting, l)
	if !s.flying {
		n.next()
	}
	s.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return hotcache.Answer{}, ctx.Err()
	}
	if l.alone {
		return n.alone(ctx, q)
	}
	return l.answer, l.err
}

// landed is called when what was under way has its answer.
func (n *Node) landed() {
	n.looks.mu.Lock()
	defer n.looks.mu.Unlock()
	n.next()
}

// next has those look together who came meanwhile. The looker's mutex is held.
func (n *Node) next() {
	s := &n.looks
	batch := s.waiting
	if len(batch) > maxLook {
		batch, s.waiting = batch[:maxLook:maxLook], batch[maxLook:]
	} else {
		s.waiting = nil
	}
	if n.closed.Load() {
		for _, l := range batch {
			l.err = hotcache.ErrClosed
			close(l.done)
		}
		batch = nil
	}
	if s.flying = len(batch) > 0; s.flying {
		s.idle.Add(1)
		go n.together(batch)
	}
}

// together looks for a batch, under no reader's context: one that gives up takes nothing from the others.
func (n *Node) together(batch []*look) {
	defer n.looks.idle.Done()
	ctx, cancel := context.WithTimeout(n.life, n.o.Timeout)
	defer cancel()
	err := n.lookAll(ctx, batch)
	if reply := (*rueidis.RedisError)(nil); errors.As(err, &reply) {
		for _, l := range batch { // one of the keys may be at fault: which, shows when each asks for itself
			l.alone = true
		}
		err = nil
	}
	if n.closed.Load() && err != nil {
		err = hotcache.ErrClosed
	}
	for _, l := range batch {
		l.err = err
		close(l.done)
	}
	runtime.Gosched() // those who have their answers may read on, and then do so together
	n.landed()
}

func (n *Node) lookAll(ctx context.Context, batch []*look) error {
	if err := n.open(ctx); err != nil {
		return err
	}
	if err := n.meet(ctx); err != nil {
		return err
	}
	c := call{script: n.scripts.look, args: []string{strconv.Itoa(n.o.version), strconv.Itoa(enoughLook)}}
	c.keys = append(make([]string, 0, 1+len(batch)), n.keys.floors())
	for _, l := range batch {
		c.keys = append(c.keys, n.keys.item(l.q.Key))
	}
	m, err := n.loaded(ctx, func() (rueidis.RedisMessage, error) {
		return n.client.Do(ctx, c.command(n.client.B())).ToMessage()
	})
	if err != nil {
		return err
	}
	return n.parseLooks(reply(m), batch)
}

// parseLooks reads what lua/look.lua returns.
func (n *Node) parseLooks(r *replied, batch []*look) error {
	if r.bad || len(r.parts) != 2+len(batch) {
		return errMalformed
	}
	var stamp hotcache.Stamp
	if r.has(0) {
		stamp = r.stamp(0, n.o.version)
	}
	now := &fields{redistext.Fields{Rest: r.text(1)}}
	at := now.moment(now.Rest)
	if r.bad = r.bad || now.Bad; r.err() != nil {
		return r.err()
	}
	for i, l := range batch {
		if !r.has(2 + i) {
			l.alone = true
			continue
		}
		rec, err := parseRecord(r.text(2+i), n.o.version)
		if err != nil {
			l.alone = true
			continue
		}
		l.answer = hotcache.Answer{State: core.Hit, Stamp: stamp, Item: &rec.item, Times: rec.times(at)}
	}
	return nil
}
