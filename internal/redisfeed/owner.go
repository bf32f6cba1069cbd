package redisfeed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/rueidis"
)

var errSilent = errors.New("no answer to a PING")

// Stats of a hub since it was made.
type Stats struct {
	Up       bool   // whether there is a connection
	Connects uint64 // connections that answered
	Refused  uint64 // attempts that led to none
	Ended    uint64 // connections that were closed by the server, the network or an error in what was sent
	Silent   uint64 // connections that were closed because an answer did not come in time
}

// Stats returns the hub's counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.Up = h.link != nil
	return s
}

// reason says why there is no connection.
func (h *Hub) reason() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.why == nil {
		return errors.New("not subscribed yet")
	}
	return h.why
}

// own keeps a connection until the hub is closed.
func (h *Hub) own() {
	defer h.idle.Done()
	for attempt := 0; h.ctx.Err() == nil; attempt++ {
		began := time.Now()
		if h.once() && time.Since(began) > h.o.MaxBackoff {
			// A server that takes connections only to drop them is not asked at full speed.
			attempt = 0
		}
		h.pause(attempt)
	}
}

// pause waits for a random part of a time that doubles with each attempt: many processes that lost the same server do
// not come back together.
func (h *Hub) pause(attempt int) {
	limit := min(h.o.MinBackoff<<min(attempt, 16), h.o.MaxBackoff)
	timer := time.NewTimer(rand.N(limit))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-h.ctx.Done():
	}
}

// once lives through one connection and tells whether there was one.
func (h *Hub) once() bool {
	conn := h.dial()
	if conn == nil {
		return false
	}
	l := newLink(h, conn)
	if _, err := l.ask(h.ctx); err != nil {
		h.lost(l, err, false)
		return false
	}
	h.mu.Lock()
	h.link, h.why = l, nil
	h.stats.Connects++
	for channel := range h.channels {
		h.dirty[channel] = struct{}{}
	}
	h.mu.Unlock()
	h.o.Logger.Info("redis subscription connected")
	h.lost(l, h.tend(l), true)
	return true
}

// dial asks the client for a connection of its own. The client cannot be told to stop doing so; when the hub is closed
// meanwhile, the connection is closed as soon as it is there.
func (h *Hub) dial() rueidis.DedicatedClient {
	made := make(chan rueidis.DedicatedClient)
	h.idle.Add(1)
	go func() {
		defer h.idle.Done()
		conn, _ := h.client.Dedicate()
		select {
		case made <- conn:
		case <-h.ctx.Done():
			conn.Close()
		}
	}()
	select {
	case conn := <-made:
		return conn
	case <-h.ctx.Done():
		return nil
	}
}

// tend keeps the subscriptions as they should be and asks for signs of life, until the link is of no use any more.
func (h *Hub) tend(l *link) error {
	beat := time.NewTimer(h.o.Heartbeat)
	defer beat.Stop()
	for {
		if err := h.settle(l); err != nil {
			return err
		}
		select {
		case <-h.ctx.Done():
			return ErrClosed
		case err := <-l.ended:
			return err
		case <-h.poke:
		case <-beat.C:
			if _, err := l.ask(h.ctx); err != nil {
				return err
			}
			h.retry(l)
			beat.Reset(h.o.Heartbeat)
		}
	}
}

// settle subscribes and unsubscribes what is marked dirty. A subscription that comes to a subscribed channel is
// confirmed by subscribing again, which has its place in the order of messages.
func (h *Hub) settle(l *link) error {
	var wanted, unwanted []string
	h.mu.Lock()
	for channel := range h.dirty {
		switch {
		case len(h.channels[channel]) > 0:
			wanted = append(wanted, channel)
		case l.subscribed[channel]:
			unwanted = append(unwanted, channel)
		}
	}
	clear(h.dirty)
	h.mu.Unlock()
	for _, channel := range unwanted {
		if err := l.unsubscribe(h.ctx, channel); err != nil {
			return err
		}
	}
	return l.subscribe(h.ctx, wanted)
}

// retry marks the channels that the server refused: permissions can change.
func (h *Hub) retry(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for channel := range h.channels {
		if !l.subscribed[channel] {
			h.touch(channel)
		}
	}
}

// lost tells everybody that the link has ended, and then ends it: closing waits for a silent server, and news does not.
func (h *Hub) lost(l *link, why error, stood bool) {
	why = fmt.Errorf("connection lost: %w", why)
	h.mu.Lock()
	l.over.Store(true)
	h.link = nil
	if !h.closed {
		h.why = why
		switch {
		case errors.Is(why, errSilent):
			h.stats.Silent++
		case stood:
			h.stats.Ended++
		default:
			h.stats.Refused++
		}
	}
	closed := h.closed
	h.mu.Unlock()
	h.idle.Add(1)
	go func() {
		defer h.idle.Done()
		// Without its hooks the client throws away what it has not read yet, instead of making Close wait for it.
		l.conn.SetPubSubHooks(rueidis.PubSubHooks{})
		l.conn.Close()
	}()
	if closed {
		return
	}
	h.o.Logger.Warn("redis subscription lost", "error", why)
	for _, s := range h.all() {
		s.down(l, why)
	}
}
