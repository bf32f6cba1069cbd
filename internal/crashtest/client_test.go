//go:build linux

package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// clientConfig is what a client process is told.
type clientConfig struct {
	Addr  string
	Name  string
	Diary string
	Seed  uint64
	Grace time.Duration // of its sessions
	TTL   time.Duration // of most of its leases
	// Keeper is one worker more, which keeps a key of its own for long, so that it holds while the broker is killed.
	Keeper bool
}

// clientWorkers is how many callers a client process has, each with a session.
const clientWorkers = 4

// clientMain is a client process. It works until its standard input ends.
func clientMain(config string) error {
	var o clientConfig
	if err := json.Unmarshal([]byte(config), &o); err != nil {
		return err
	}
	d, err := openDiary(o.Diary)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	svc, err := leaseremote.Dial(ctx, o.Addr, leaseremote.Options{})
	if err != nil {
		return err
	}
	defer svc.Close()
	n := clientWorkers
	if o.Keeper {
		n++
	}
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		w := &worker{o: o, d: d, name: fmt.Sprint(o.Name, "/", i), rng: rand.New(rand.NewPCG(o.Seed, uint64(i))), keeper: i == clientWorkers}
		group.Go(func() { errs[i] = w.run(ctx, svc) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// worker is one caller: a session, and one lease after the other.
type worker struct {
	o      clientConfig
	d      *diary
	name   string
	rng    *rand.Rand
	keeper bool
	c      *lease.Client
	turns  int
}

func (w *worker) run(ctx context.Context, svc lease.Service) error {
	var err error
	w.c, err = lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{
		Name: w.name, PID: os.Getpid(), Grace: w.o.Grace,
		Notify: func(n lease.Notice) {
			e := entry{What: lost, Who: w.name, ID: n.ID, Code: n.Code}
			if n.ID != "" {
				e.Held = []lease.Hold{{Key: n.Key, Token: n.Token}}
			}
			w.d.write(e)
		},
	}})
	if err != nil {
		return err
	}
	w.d.write(entry{What: connected, Who: w.name})
	for ctx.Err() == nil {
		w.turn(ctx)
		pause(ctx, w.upTo(4*time.Millisecond))
	}
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.c.Close(limit)
}

func (w *worker) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)) + 1)
}

func (w *worker) one(in int) bool { return w.rng.IntN(in) == 0 }

// request makes a request: mostly for keys that all clients want.
func (w *worker) request() lease.Request {
	w.turns++
	r := lease.Request{ID: fmt.Sprint(w.name, "-", w.turns), TTL: w.o.TTL/2 + w.upTo(w.o.TTL/2)}
	if w.keeper {
		r.Keys = []string{"own/" + w.name}
		r.TTL = 2 * time.Minute
		return r
	}
	group := w.rng.IntN(4)
	for _, i := range w.rng.Perm(3)[:1+w.rng.IntN(3)*w.rng.IntN(2)] {
		r.Keys = append(r.Keys, fmt.Sprintf("g%d/%d", group, i))
	}
	switch w.rng.IntN(4) {
	case 0:
		r.Mode = lease.Shared
	case 1:
		r.Mode, r.Limit = lease.Counted, 1+w.rng.IntN(3)
	}
	switch w.rng.IntN(5) {
	case 0:
		r.Try = true
	case 1, 2:
		r.Wait = w.upTo(500 * time.Millisecond)
	}
	r.Detach = w.one(12)
	return r
}

// turn is one lease, from the request to its end.
func (w *worker) turn(ctx context.Context) {
	r := w.request()
	wait := ctx
	if !w.keeper && w.one(10) {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, w.upTo(100*time.Millisecond))
		defer cancel()
	}
	if !w.keeper && w.one(6) {
		w.letExpire(ctx, wait, r)
		return
	}
	from := w.d.write(entry{What: asked, Who: w.name, ID: r.ID, Ask: r})
	h, err := w.c.Hold(wait, r)
	if err != nil {
		w.failed(r, from, err)
		return
	}
	w.d.write(entry{What: got, Who: w.name, ID: r.ID, From: from, Held: h.Lease().Holds, Until: until(h)})
	w.keep(ctx, h, r)
	from = w.d.write(entry{What: drop, Who: w.name, ID: r.ID})
	limit, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = h.Release(limit)
	w.d.write(entry{What: dropped, Who: w.name, ID: r.ID, From: from, Code: lease.CodeOf(err)})
}

// until is up to when a holder may act. The deadline is read before the check that it is of a hold that lives.
func until(h *lease.Held) int64 {
	at := onClock(h.Deadline())
	if h.Err() != nil {
		return 0
	}
	return at
}

// keep holds for a while and looks at the deadline now and then.
func (w *worker) keep(ctx context.Context, h *lease.Held, r lease.Request) {
	span := w.upTo(30 * time.Millisecond)
	switch {
	case w.keeper:
		span = 200*time.Millisecond + w.upTo(3*time.Second)
	case w.one(4):
		span = w.upTo(w.o.TTL)
	case w.one(20):
		span = 3 * w.o.TTL
	}
	done := time.NewTimer(span)
	defer done.Stop()
	look := time.NewTicker(min(w.o.TTL, 400*time.Millisecond) / 4)
	defer look.Stop()
	for {
		select {
		case <-done.C:
			return
		case <-ctx.Done():
			return
		case <-h.Context().Done():
			return
		case <-look.C:
		}
		if w.one(8) && !w.keeper {
			w.renew(ctx, h, r)
		}
		if at := until(h); at != 0 {
			w.d.write(entry{What: still, Who: w.name, ID: r.ID, Until: at})
		}
	}
}

// renew asks for more time than before, so that what was promised earlier still holds.
func (w *worker) renew(ctx context.Context, h *lease.Held, r lease.Request) {
	from := clock()
	ttl := h.Lease().TTL
	ttl += ttl / 4
	if ttl > 2*w.o.TTL {
		ttl = 0
	}
	l, err := w.c.Renew(ctx, r.ID, ttl)
	e := entry{What: renewed, Who: w.name, ID: r.ID, From: from, TTL: ttl, Code: lease.CodeOf(err)}
	if err == nil {
		e.Held, e.Until = l.Holds, until(h)
	}
	w.d.write(e)
}

// letExpire takes a lease that nobody renews, and goes on when its time is up.
func (w *worker) letExpire(ctx, wait context.Context, r lease.Request) {
	from := w.d.write(entry{What: asked, Who: w.name, ID: r.ID, Ask: r})
	s := w.c.Session()
	before := ""
	if s != nil {
		before = s.ID()
	}
	l, err := w.c.Acquire(wait, r)
	if err != nil {
		w.failed(r, from, err)
		return
	}
	e := entry{What: got, Who: w.name, ID: r.ID, From: from, Held: l.Holds}
	if s != nil {
		at := onClock(lease.SafeUntil(l, s))
		if s.ID() == before { // else the deadline is that of another session
			e.Until = at
		}
	}
	w.d.write(e)
	if !pause(ctx, w.o.TTL) {
		w.d.write(entry{What: drop, Who: w.name, ID: r.ID}) // the goodbye that follows releases it
	}
}

// failed writes down how a request failed. Anything but these is trouble.
func (w *worker) failed(r lease.Request, from int64, err error) {
	code := lease.CodeOf(err)
	w.d.write(entry{What: failed, Who: w.name, ID: r.ID, From: from, Code: code})
	fine := []lease.Code{lease.ErrBusy, lease.ErrTimeout, lease.ErrCancelled, lease.ErrUnavailable, lease.ErrSessionLost,
		lease.ErrExpired, lease.ErrOver, lease.ErrUnknown}
	if !slices.Contains(fine, code) {
		w.d.write(entry{What: trouble, Who: w.name, ID: r.ID, Text: err.Error()})
	}
}

// client is a client process.
type client struct {
	t     *testing.T
	o     clientConfig
	cmd   *exec.Cmd
	stdin io.Closer
}

// startClient starts one that writes its diary into dir.
func startClient(t *testing.T, dir string, o clientConfig) *client {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Diary = filepath.Join(dir, o.Name+".jsonl")
	config, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, o: o, cmd: exec.Command(self)}
	c.cmd.Env = append(os.Environ(), envClient+"="+string(config))
	c.cmd.Stderr = os.Stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// kill ends the process in the middle of what it does, also a frozen one.
func (c *client) kill() {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
}

// finish lets it come to an end.
func (c *client) finish() {
	c.t.Helper()
	c.stdin.Close()
	limit := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer limit.Stop()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("client %s: %v", c.o.Name, err)
	}
}
