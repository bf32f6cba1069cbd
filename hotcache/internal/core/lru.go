package core

import "container/list"

// lru keeps the most recently used values within a number and a weight. The simulator and the embedded store use it;
// both call it from one goroutine at a time.
type lru[V any] struct {
	most, mostBytes int
	weigh           func(V) int
	order           *list.List // the most recently used in front
	byKey           map[string]*list.Element
	bytes           int
	evicted         uint64
}

type lruEntry[V any] struct {
	key   string
	value V
}

func newLRU[V any](most, mostBytes int, weigh func(V) int) lru[V] {
	return lru[V]{most: most, mostBytes: mostBytes, weigh: weigh, order: list.New(), byKey: map[string]*list.Element{}}
}

func (l *lru[V]) len() int { return len(l.byKey) }

func (l *lru[V]) get(key string) (v V, ok bool) {
	e, ok := l.byKey[key]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[V]).value, true
}

func (l *lru[V]) put(key string, v V) {
	l.remove(key)
	l.byKey[key] = l.order.PushFront(&lruEntry[V]{key, v})
	l.bytes += len(key) + l.weigh(v)
	l.trim()
}

// limit sets how much it may weigh.
func (l *lru[V]) limit(mostBytes int) {
	l.mostBytes = mostBytes
	l.trim()
}

func (l *lru[V]) trim() {
	for len(l.byKey) > 1 && (l.most > 0 && len(l.byKey) > l.most || l.mostBytes > 0 && l.bytes > l.mostBytes) {
		l.remove(l.order.Back().Value.(*lruEntry[V]).key)
		l.evicted++
	}
}

func (l *lru[V]) remove(key string) {
	e, ok := l.byKey[key]
	if !ok {
		return
	}
	delete(l.byKey, key)
	l.order.Remove(e)
	l.bytes -= len(key) + l.weigh(e.Value.(*lruEntry[V]).value)
}
