package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// progress tells people on standard error that a request waits: one line, and on
// a terminal the same line again each second with what has changed.
type progress struct {
	svc     lease.Service
	con     *console
	request lease.Request
	me      lease.Party
	queued  chan lease.Queued // capacity one
	stop    chan struct{}
	stopped chan struct{}
}

// watchWaiting starts it. What it returns is for ClientOptions.OnQueued, and to
// be called when the waiting is over.
func (a *app) watchWaiting(svc lease.Service, r lease.Request, me lease.SessionOptions) (func(lease.Queued), func()) {
	p := &progress{
		svc: svc, con: a.con, request: r,
		me:      lease.Party{Session: me.Name, Host: me.Host, PID: me.PID, Label: r.Label},
		queued:  make(chan lease.Queued, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	go p.run()
	return p.put, p.end
}

// put never blocks: it is called from the service's loop.
func (p *progress) put(q lease.Queued) {
	select {
	case p.queued <- q:
	default: // said already; the request was sent again after a lost connection
	}
}

func (p *progress) end() {
	close(p.stop)
	<-p.stopped
}

func (p *progress) run() {
	defer close(p.stopped)
	var q lease.Queued
	select {
	case q = <-p.queued:
	case <-p.stop:
		return
	}
	begin := time.Now()
	cause, place := waitingLine(q.Key, q.Ahead, q.Position)
	if p.con.width == 0 {
		p.con.line("%s%s", cause, place)
		return
	}
	defer p.con.replace("", "")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		since := ""
		if d := time.Since(begin).Truncate(time.Second); d > 0 {
			since = ", waiting for " + span(d)
		}
		p.con.replace(cause, place+since)
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
		if c, n, ok := p.look(); ok {
			cause, place = c, n
		}
	}
}

// look asks for the first key that is in the way.
func (p *progress) look() (cause, place string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, key := range p.request.Keys {
		l, err := p.svc.List(ctx, lease.Query{Key: key})
		if err != nil || len(l.Keys) == 0 {
			continue
		}
		info := l.Keys[0]
		for n, w := range info.Waiters {
			if w.Party == p.me && (len(info.Holders) > 0 || n > 0) {
				cause, place := waitingLine(key, info.Holders, n)
				return cause, place, true
			}
		}
	}
	return "", "", false
}

// waitingLine says what a request waits for, and at which place.
func waitingLine(key string, holders []lease.Holder, ahead int) (cause, place string) {
	return fmt.Sprintf("waiting for %s%s", plain(key), heldBy(holders)), fmt.Sprintf(", %s in line", ordinal(ahead+1))
}
