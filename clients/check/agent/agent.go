package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// answerTime bounds what has no bound of its own: connecting, renewing, releasing, the goodbye.
const answerTime = 10 * time.Second

// agent is one client and what it holds.
type agent struct {
	out    io.Writer
	saying sync.Mutex     // one line at a time
	work   sync.WaitGroup // everything that close waits for
	svc    *leaseremote.Service
	client *lease.Client
	ctx    context.Context // ends with close
	stop   context.CancelFunc

	mu   sync.Mutex // guards what follows
	refs map[string]*claim
	ids  map[string]*claim
}

func newAgent(out io.Writer) *agent {
	a := &agent{out: out, refs: make(map[string]*claim), ids: make(map[string]*claim)}
	a.ctx, a.stop = context.WithCancel(context.Background())
	return a
}

// say writes one line. Nobody is there to be told when that fails; the end of the input will follow.
func (a *agent) say(e event) {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // events have texts, numbers and maps of them
	}
	a.saying.Lock()
	defer a.saying.Unlock()
	_, _ = a.out.Write(append(text, '\n'))
}

func (a *agent) complain(format string, args ...any) {
	a.say(event{"event": "error", "text": fmt.Sprintf(format, args...)})
}

func (a *agent) failed(ref string, code lease.Code) {
	a.say(event{"event": "failed", "ref": ref, "code": string(code)})
}

// obey carries a command out, or has it carried out: it does not wait for the broker, but for connecting and watching.
func (a *agent) obey(c command) {
	if c.Do == "connect" {
		a.connect(c)
		return
	}
	if a.client == nil {
		a.complain("%s: connect first", c.Do)
		return
	}
	switch c.Do {
	case "acquire":
		a.acquire(c)
	case "watch":
		a.watch(c)
	case "bench":
		a.work.Go(func() { a.bench(c) })
	case "release", "renew", "check", "cancel":
		a.mu.Lock()
		k := a.refs[c.Ref]
		a.mu.Unlock()
		switch {
		case k == nil:
			a.failed(c.Ref, lease.ErrNotHeld)
		case c.Do == "release":
			a.work.Go(k.release)
		case c.Do == "renew":
			a.work.Go(func() { k.renew(c.TTL) })
		case c.Do == "check":
			a.say(event{"event": "checked", "ref": c.Ref, "safe": k.safe()})
		case c.Do == "cancel":
			k.cancel()
		}
	default:
		a.complain("there is no %q to do", c.Do)
	}
}

func (a *agent) connect(c command) {
	if a.client != nil {
		a.complain("connected already")
		return
	}
	addr := c.Addr
	if addr == "" {
		addr = os.Getenv("LATCHKEY_SERVER")
	}
	if addr == "" {
		addr = "127.0.0.1:6970"
	}
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is only shown
	}
	ctx, cancel := context.WithTimeout(a.ctx, answerTime)
	defer cancel()
	svc, err := leaseremote.Dial(ctx, addr, leaseremote.Options{})
	if err != nil {
		a.complain("%v", err)
		return
	}
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{
		SessionOptions: lease.SessionOptions{
			Name: c.Name, Host: host, PID: os.Getpid(), Grace: milliseconds(c.Grace), Notify: a.noticed,
		},
		OnQueued: a.queued,
	})
	if err != nil {
		svc.Close()
		a.complain("%v", err)
		return
	}
	a.svc, a.client = svc, client
	a.say(event{"event": "connected"})
}

// queued is told by the client, of a request that the id names.
func (a *agent) queued(q lease.Queued) {
	a.mu.Lock()
	k := a.ids[q.ID]
	a.mu.Unlock()
	if k != nil {
		a.say(event{"event": "queued", "ref": k.ref, "position": q.Position})
	}
}

// noticed passes on what only concerns holds that the client does not watch.
func (a *agent) noticed(n lease.Notice) {
	a.mu.Lock()
	var told []*claim
	for id, k := range a.ids {
		if n.ID == "" || n.ID == id {
			told = append(told, k)
		}
	}
	a.mu.Unlock()
	for _, k := range told {
		k.noticed(n)
	}
}

// watch tells what happens to keys, from a goroutine of its own, since the client must not wait for a reader.
func (a *agent) watch(c command) {
	events := make(chan lease.Event, 1024)
	missed := make(chan struct{}, 1)
	stop, err := a.svc.Watch(a.ctx, lease.Query{Prefix: c.Prefix}, func(e lease.Event) {
		select {
		case events <- e:
		default:
			select {
			case missed <- struct{}{}:
			default: // one gap says it all
			}
		}
	})
	if err != nil {
		a.complain("watch: %v", err)
		return
	}
	a.say(event{"event": "watching"})
	a.work.Go(func() {
		defer stop()
		for {
			select {
			case e := <-events:
				a.say(event{"event": "seen", "kind": string(e.Kind), "key": e.Key, "token": uint64(e.Token)})
			case <-missed:
				a.say(event{"event": "seen", "kind": string(lease.EventGap)})
			case <-a.ctx.Done():
				return
			}
		}
	})
}

// close says goodbye and waits for everything that was begun.
func (a *agent) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var err error
	if a.client != nil {
		err = a.client.Close(ctx)
	}
	a.stop()
	a.work.Wait()
	if a.svc != nil {
		if e := a.svc.Close(); err == nil {
			err = e
		}
	}
	a.say(event{"event": "closed"})
	if lease.CodeOf(err) == lease.ErrUnknown || lease.CodeOf(err) == lease.ErrUnavailable {
		return nil // the broker is away, and the session ends with its grace
	}
	return err
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
