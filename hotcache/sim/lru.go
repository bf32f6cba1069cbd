package sim

import (
	"container/list"
	"time"
)

// An lru is the storage of a memory or a node: the values used last, up to a number of them, until their times end. What
// may be put there and what may be served is for the policy to say.
type lru[V any] struct {
	most  int
	order *list.List // the most recently used in front
	byKey map[string]*list.Element
}

type stored[V any] struct {
	key   string
	value V
	ends  time.Duration
}

func newLRU[V any](most int) *lru[V] {
	return &lru[V]{most: most, order: list.New(), byKey: map[string]*list.Element{}}
}

func (l *lru[V]) get(now time.Duration, key string) (v V, ok bool) {
	e, ok := l.byKey[key]
	if !ok {
		return v, false
	}
	s := e.Value.(*stored[V])
	if s.ends <= now {
		l.drop(key)
		return v, false
	}
	l.order.MoveToFront(e)
	return s.value, true
}

func (l *lru[V]) put(key string, v V, ends time.Duration) {
	if e, ok := l.byKey[key]; ok {
		*e.Value.(*stored[V]) = stored[V]{key, v, ends}
		l.order.MoveToFront(e)
		return
	}
	l.byKey[key] = l.order.PushFront(&stored[V]{key, v, ends})
	if l.most > 0 && len(l.byKey) > l.most {
		l.drop(l.order.Back().Value.(*stored[V]).key)
	}
}

func (l *lru[V]) drop(key string) {
	if e, ok := l.byKey[key]; ok {
		delete(l.byKey, key)
		l.order.Remove(e)
	}
}
