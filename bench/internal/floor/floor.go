// Package floor is the least that a replicated map over Redis can be, for
// comparison: a hash, a channel, and a Go map behind a lock. A write is HSET and
// PUBLISH in one MULTI, a goroutine applies what is published, and that is all. It
// has no revisions and no recovery: whatever is lost stays lost, unnoticed.
package floor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Map is one process's copy. Its methods may be called from any goroutine.
type Map struct {
	client rueidis.Client
	name   string
	seen   func(key string) // called after a change was applied; may be nil
	cancel context.CancelFunc
	ended  chan struct{} // closed when the subscription is over

	mu      sync.RWMutex // guards entries, and is held while the map is read as a whole
	entries map[string]string
}

// Join subscribes, over a connection of its own, and reads the map. seen, which may be
// nil, is called by the subscription's goroutine after each change.
//
// Over the connection of the writes a message could arrive in the middle of the answer
// to EXEC, which Redis before 7.2 does and the client does not expect.
func Join(ctx context.Context, client rueidis.Client, name string, seen func(key string)) (*Map, error) {
	m := &Map{client: client, name: name, seen: seen, ended: make(chan struct{})}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.cancel = cancel
	stands := make(chan struct{}, 1)
	hooked := rueidis.WithOnSubscriptionHook(life, func(rueidis.PubSubSubscription) {
		select {
		case stands <- struct{}{}:
		default:
		}
	})
	var failed error
	conn, giveBack := client.Dedicate()
	go func() { // ends with Close
		defer close(m.ended)
		defer giveBack()
		failed = conn.Receive(hooked, client.B().Subscribe().Channel(m.channel()).Build(), func(msg rueidis.PubSubMessage) {
			m.Apply(msg.Message)
		})
	}()
	select {
	case <-stands:
	case <-m.ended:
		return nil, fmt.Errorf("floor: subscribe: %w", failed)
	case <-ctx.Done():
		m.Close()
		return nil, fmt.Errorf("floor: subscribe: %w", context.Cause(ctx))
	}
	if err := m.Reload(ctx); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Of returns a copy that follows nothing, with these entries.
func Of(entries map[string]string) *Map { return &Map{entries: entries} }

func (m *Map) channel() string { return m.name + ":changes" }

// Close ends the subscription.
func (m *Map) Close() {
	m.cancel()
	<-m.ended
}

// Reload reads the whole map, as whoever noticed a loss would have to. Readers
// wait meanwhile, since a change that came in between would be lost otherwise.
func (m *Map) Reload(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := m.client.Do(ctx, m.client.B().Hgetall().Key(m.name).Build()).AsStrMap()
	if err != nil {
		return fmt.Errorf("floor: read: %w", err)
	}
	m.entries = entries
	return nil
}

// Get reads the copy.
func (m *Map) Get(key string) (string, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.entries[key]
	return v, ok
}

// Len returns the number of entries.
func (m *Map) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.entries)
}

// Set writes a value and tells all copies.
func (m *Map) Set(ctx context.Context, key, value string) error {
	b := m.client.B()
	answers := m.client.DoMulti(ctx, b.Multi().Build(),
		b.Hset().Key(m.name).FieldValue().FieldValue(key, value).Build(),
		b.Publish().Channel(m.channel()).Message(Message(key, value)).Build(), b.Exec().Build())
	for _, a := range answers {
		if err := a.Error(); err != nil {
			return fmt.Errorf("floor: write: %w", err)
		}
	}
	done, err := answers[3].AsIntSlice()
	if err != nil || len(done) != 2 {
		return fmt.Errorf("floor: write: answered %v, %w", done, err)
	}
	return nil
}

// Fill writes many entries without telling anybody.
func (m *Map) Fill(ctx context.Context, keys, values []string) error {
	const most = 512
	for from := 0; from < len(keys); from += most {
		c := m.client.B().Hset().Key(m.name).FieldValue()
		for i := from; i < min(from+most, len(keys)); i++ {
			c = c.FieldValue(keys[i], values[i])
		}
		if err := m.client.Do(ctx, c.Build()).Error(); err != nil {
			return fmt.Errorf("floor: fill: %w", err)
		}
	}
	return m.Reload(ctx)
}

// Message is what is published of a change: the length of the key, the key and the value.
func Message(key, value string) string { return strconv.Itoa(len(key)) + ":" + key + value }

// errMessage is what Message cannot have made.
var errMessage = errors.New("floor: not a message")

func parse(message string) (key, value string, err error) {
	length, rest, ok := strings.Cut(message, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", errMessage
	}
	return strings.Clone(rest[:n]), strings.Clone(rest[n:]), nil
}

// Apply does to the copy what a message says. What it cannot read is dropped: a
// check of the copy afterwards will tell.
func (m *Map) Apply(message string) {
	key, value, err := parse(message)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.entries[key] = value
	m.mu.Unlock()
	if m.seen != nil {
		m.seen(key)
	}
}
