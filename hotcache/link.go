package hotcache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A nodeLink is what a cache has of one node.
type nodeLink struct {
	index  int
	name   string
	node   Node
	feed   Feed
	shard  *shard
	errors atomic.Uint64
	acks   chan ack      // to be sent
	heard  chan struct{} // the feed came up: beat at once
	await  awaited
}

type ack struct {
	to Member
	at Stamp
}

// maxAcks is how many acknowledgements may wait to be sent. Those beyond it are not: the writer then waits for as long
// as anybody may trust his memory, which is right all the same.
const maxAcks = 1024

func newNodeLink(index int, n NamedNode) *nodeLink {
	return &nodeLink{
		index: index, name: n.Name, node: n.Node, shard: &shard{}, acks: make(chan ack, maxAcks), heard: make(chan struct{}, 1),
		await: awaited{byStamp: map[Stamp]*awaitedAcks{}},
	}
}

// tend is the goroutine of one node that proves at short intervals that every invalidation was heard.
func (c *Cache[K, V]) tend(n *nodeLink) {
	defer c.busy.Done()
	interval := c.o.Trust / 4
	timer := time.NewTimer(soonest)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-n.heard:
			c.beat(c.life, n)
			timer.Reset(interval)
		case <-timer.C:
			c.beat(c.life, n)
			timer.Reset(interval)
		}
	}
}

// beat proves that every invalidation of a node was heard up to now.
func (c *Cache[K, V]) beat(ctx context.Context, n *nodeLink) error {
	c.mu.Lock()
	asked := c.front.Sight(n.index).At()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.o.NodeTimeout)
	defer cancel()
	sent := c.now()
	head, err := n.feed.Beat(ctx, c.o.longestTrust())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.settle(c.front.Met(c.now(), n.index, asked, head, sent))
	return nil
}

// acknowledge is the goroutine of one node that tells others when their invalidations were heard. It is not the one that
// proves that they were: memory is not to wait for it. While one round is under way more come, which are the next.
func (c *Cache[K, V]) acknowledge(n *nodeLink) {
	defer c.busy.Done()
	for {
		select {
		case <-c.life.Done():
			return
		case first := <-n.acks:
			c.sendAcks(n, waitingAcks(n.acks, first))
		}
	}
}

// An ackGroup is what is said in one message.
type ackGroup struct {
	to         Member
	generation uint64
}

// waitingAcks takes all that wait to be sent, by the messages that they need.
func waitingAcks(acks <-chan ack, first ack) map[ackGroup][]uint64 {
	groups := map[ackGroup][]uint64{}
	a := first
	for taken := 1; ; taken++ {
		g := ackGroup{a.to, a.at.Generation}
		groups[g] = append(groups[g], a.at.Number)
		if taken == maxAcks {
			return groups
		}
		select {
		case a = <-acks:
		default:
			return groups
		}
	}
}

// maxTells is how many messages of one round are under way at the same time.
const maxTells = 64

// sendAcks sends the messages of one round, side by side.
func (c *Cache[K, V]) sendAcks(n *nodeLink, groups map[ackGroup][]uint64) {
	ctx, cancel := context.WithTimeout(c.life, c.o.NodeTimeout)
	defer cancel()
	room := make(chan struct{}, maxTells)
	var all sync.WaitGroup
	for g, numbers := range groups {
		text := fmt.Appendf(nil, "ack %s %d", c.me, g.generation)
		for _, number := range numbers {
			text = strconv.AppendUint(append(text, ' '), number, 10)
		}
		room <- struct{}{}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := n.feed.Tell(ctx, g.to, string(text)); err != nil && c.life.Err() == nil {
				c.log.Debug("acknowledgements were not sent", "node", n.name, "error", err)
			}
			<-room
		}()
	}
	all.Wait()
}

// listener is told what happens at a node.
type listener[K comparable, V any] struct {
	c *Cache[K, V]
	n *nodeLink
}

// Up implements [Listener].
func (l *listener[K, V]) Up() {
	select {
	case l.n.heard <- struct{}{}:
	default:
	}
}

// Invalidated implements [Listener].
func (l *listener[K, V]) Invalidated(inv Invalidation, by Member) {
	c := l.c
	c.mu.Lock()
	c.stats.invalidations++
	c.settle(c.front.Invalidated(c.now(), l.n.index, inv))
	if by == "" || by == c.me {
		return
	}
	select {
	case l.n.acks <- ack{to: by, at: core.StampOf(inv.Position)}:
	default:
	}
}

// Woken implements [Listener].
func (l *listener[K, V]) Woken(key string) {
	l.c.mu.Lock()
	l.c.settle(l.c.front.Woken(l.c.now(), key))
}

// Told implements [Listener].
func (l *listener[K, V]) Told(text string) {
	if core.IsReport(text) {
		l.c.toldHot(l.n, text)
		return
	}
	words := strings.Split(text, " ")
	if len(words) < 4 || len(words) > 3+maxAcks || words[0] != "ack" {
		return
	}
	generation, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return
	}
	for _, word := range words[3:] {
		number, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return
		}
		l.n.await.came(Stamp{Generation: generation, Number: number}, Member(words[1]))
	}
}

// Down implements [Listener].
func (l *listener[K, V]) Down(why error) {
	c := l.c
	c.mu.Lock()
	c.stats.losses++
	c.settle(c.front.Lost(c.now(), l.n.index))
	c.log.Warn("the feed of a cache node is lost; memory is not served until it is back", "node", l.n.name, "error", why)
}

// Sync makes sure that this process has heard every invalidation that was finished before it was called, by asking every
// node how far its feed is. Reads do not need it: memory is never served without such a proof that is recent. It is for
// those who want to see the latest of all keys at once, or test that nodes are there.
func (c *Cache[K, V]) Sync(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i, n := range c.nodes {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := c.beat(ctx, n); err != nil {
				errs[i] = fmt.Errorf("node %q: %w", n.name, err)
			}
		}()
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("hotcache: sync: %w", err)
	}
	return nil
}
