package lmxload

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// witnessEvery is how often the holder of a contested key asks the broker for
// something before it unlocks. Until the answer is here no other connection may
// be told that it has the key, and a broker that grants twice has had the time
// to say so.
const witnessEvery = 64

// Run locks and unlocks every key of every connection, again and again, until d
// has passed. Each key gets one pair at least, so that Run with no time at all
// shows whether keys are free. A pair's latency goes from the lock frame to the
// answer to the unlock.
func Run(ctx context.Context, conns []*Conn, d time.Duration) (rounds.Sample, error) {
	for _, c := range conns {
		// Room for a fast broker, so that growing is rare while it is timed.
		c.took = make([]time.Duration, 0, min(len(c.slots)+int(d/(5*time.Microsecond))/len(conns), 1<<18))
		c.waited = 0
	}
	start := time.Now()
	for _, c := range conns {
		c.start(pairing, start.Add(d))
		for i := range c.slots {
			c.lock(i, start)
		}
	}
	err := drive(ctx, conns)
	s := rounds.Sample{Elapsed: time.Since(start)}
	if err != nil {
		return s, err
	}
	waited := 0
	for _, c := range conns {
		s.Ops += len(c.took)
		waited += c.waited
	}
	s.Latency = make([]time.Duration, 0, s.Ops)
	for _, c := range conns {
		s.Latency = append(s.Latency, c.took...)
	}
	if waited > 0 {
		s.Facts = map[string]float64{"% of the grants that had to wait": 100 * float64(waited) / float64(s.Ops)}
	}
	return s, nil
}

// Pairs is how many pairs the connection made in the last Run.
func (c *Conn) Pairs() int { return len(c.took) }

// Take locks every key and keeps it.
func (c *Conn) Take(ctx context.Context) error { return c.each(ctx, keeping) }

// Drop unlocks what Take locked.
func (c *Conn) Drop(ctx context.Context) error { return c.each(ctx, dropping) }

// Held judges that somebody holds every key: it asks for each, must be told to
// wait, and gives up.
func (c *Conn) Held(ctx context.Context) error { return c.each(ctx, probing) }

// each does one thing with every slot, not more than the window at a time.
func (c *Conn) each(ctx context.Context, what task) error {
	now := time.Now()
	c.start(what, now)
	for range min(window, len(c.slots)) {
		c.startNext(now)
	}
	return drive(ctx, []*Conn{c})
}

func (c *Conn) start(what task, until time.Time) { c.what, c.next, c.until = what, 0, until }

// drive sends what there is to send and handles what comes, until every request is
// answered. It is one thread for all connections. Whatever has arrived is read
// before anything is sent, so that two grants of a contested key that are there at
// the same time are seen as two.
func drive(ctx context.Context, conns []*Conn) error {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("lmxload: epoll: %w", err)
	}
	defer unix.Close(ep)
	for i, c := range conns {
		if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return fmt.Errorf("lmxload: epoll: %w", err)
		}
	}
	for _, c := range conns {
		if err := c.flush(); err != nil {
			return err
		}
	}
	ready := make([]unix.EpollEvent, len(conns))
	last := time.Now() // when something came
	for busy(conns) {
		n, err := unix.EpollWait(ep, ready, int(glance.Milliseconds()))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("lmxload: epoll: %w", err)
		}
		now := time.Now()
		if n > 0 {
			last = now
		} else if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if now.Sub(last) > patience {
			return rounds.Wrong("requests are not answered within %v", patience)
		}
		if err := turn(conns, ready[:max(n, 0)], now); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func turn(conns []*Conn, ready []unix.EpollEvent, now time.Time) error {
	for _, r := range ready {
		if err := conns[r.Fd].arrived(now); err != nil {
			return err
		}
	}
	for _, r := range ready {
		if err := conns[r.Fd].flush(); err != nil {
			return err
		}
	}
	return nil
}

// busy reports whether a connection waits for an answer.
func busy(conns []*Conn) bool {
	for _, c := range conns {
		if c.open > 0 {
			return true
		}
	}
	return false
}

func (c *Conn) startNext(now time.Time) {
	if c.next == len(c.slots) {
		return
	}
	if c.what == dropping {
		c.unlock(c.next)
	} else {
		c.lock(c.next, now)
	}
	c.next++
}

// handle judges one frame and does what it leads to.
func (c *Conn) handle(line []byte, now time.Time) error {
	var f frame
	if !f.parse(line) {
		return rounds.Wrong("a line that is no frame: %s", line)
	}
	i, s := c.slotOf(&f)
	if s == nil {
		return rounds.Wrong("an answer to nothing that was asked: %s", line)
	}
	if f.problem != nil || f.again || string(f.key) != s.key {
		return rounds.Wrong("the request about %s was answered with %s", s.key, line)
	}
	ok := false
	var err error
	switch s.state {
	case locking:
		if string(f.kind) == "lock" && f.acquired != missing {
			ok, err = c.answered(i, s, &f, now)
		}
	case witnessing:
		if ok = f.info == yes; ok {
			c.open--
			c.witnessed(i, s, now)
		}
	case unlocking:
		if ok = string(f.kind) == "unlock" && f.unlocked == yes; ok {
			c.open--
			c.done(i, s, now)
		}
	}
	if err == nil && !ok {
		err = rounds.Wrong("the request about %s was answered with %s", s.key, line)
	}
	return err
}

// slotOf finds the slot whose open request a frame answers, or nil.
func (c *Conn) slotOf(f *frame) (int, *slot) {
	if len(f.uuid) != idLen {
		return 0, nil
	}
	i, err := strconv.ParseUint(string(f.uuid[idSlot:idSeq]), 16, 16)
	if err != nil || i >= uint64(len(c.slots)) {
		return 0, nil
	}
	s := &c.slots[i]
	if s.state == idle || s.state == held || string(f.uuid) != string(s.asked[:]) {
		return 0, nil
	}
	return int(i), s
}

// answered handles the answer to a lock frame: granted, or told to wait, which
// is said once. It reports whether that was in order.
func (c *Conn) answered(i int, s *slot, f *frame, now time.Time) (bool, error) {
	if c.what == probing {
		if f.acquired == no {
			c.open--
			c.tell(s, &s.asked, "lock-client-timeout")
			c.ask(i)
		}
		return f.acquired == no, nil
	}
	if f.acquired == no {
		ok := c.opts.Contest != nil && !s.queued
		s.queued = true
		return ok, nil
	}
	c.open--
	if err := c.judge(s, f); err != nil {
		return true, err
	}
	s.hold = s.asked
	s.holds++
	if s.queued {
		c.waited++
	}
	c.tell(s, &s.hold, "lock-received")
	switch {
	case c.what == keeping:
		s.state = held
		c.startNext(now)
	case c.opts.Contest != nil && s.holds%witnessEvery == 0:
		c.ask(i)
	default:
		c.unlock(i)
	}
	return true, nil
}

func (c *Conn) judge(s *slot, f *frame) error {
	tokens := &s.tokens
	if x := c.opts.Contest; x != nil {
		if err := x.Enter(); err != nil {
			return err
		}
		tokens = &x.Rising
	}
	if !c.opts.Tokens {
		return nil
	}
	return tokens.Next(f.token)
}

// witnessed goes on after the answer to a question.
func (c *Conn) witnessed(i int, s *slot, now time.Time) {
	if c.what == probing {
		s.state = idle
		c.startNext(now)
		return
	}
	c.unlock(i)
}

// done ends a pair and begins the next.
func (c *Conn) done(i int, s *slot, now time.Time) {
	s.state = idle
	if c.what == dropping {
		c.startNext(now)
		return
	}
	c.took = append(c.took, now.Sub(s.began))
	if now.Before(c.until) {
		c.lock(i, now)
	}
}
