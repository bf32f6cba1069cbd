// Command lru shows a cache that forgets what was not used for longest. Its state is a map and a linked list that
// point at each other and change in place at every look-up, so it has one owner.
//
//	go run ./examples/lru
package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/latchkey-go/latchkey/actor"
)

// lru is not safe for concurrent use.
type lru struct {
	size   int
	recent *list.List // of entries, the last used in front
	places map[string]*list.Element
}

type entry struct{ key, value string }

func newLRU(size int) (*lru, error) {
	if size < 1 {
		return nil, fmt.Errorf("a cache of %d entries keeps nothing", size)
	}
	return &lru{size, list.New(), make(map[string]*list.Element)}, nil
}

func (c *lru) get(key string) string {
	e := c.places[key]
	if e == nil {
		return ""
	}
	c.recent.MoveToFront(e)
	return e.Value.(entry).value
}

func (c *lru) put(key, value string) {
	if e := c.places[key]; e != nil {
		c.recent.Remove(e)
	}
	c.places[key] = c.recent.PushFront(entry{key, value})
	if c.recent.Len() > c.size {
		delete(c.places, c.recent.Remove(c.recent.Back()).(entry).key)
	}
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "lru:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// The constructor runs on the owner; its error comes back here.
	if _, err := actor.New(ctx, func() (*lru, error) { return newLRU(0) }, actor.Options{}); err == nil {
		return errors.New("a cache without room was made")
	}
	cache, err := actor.New(ctx, func() (*lru, error) { return newLRU(3) }, actor.Options{Name: "pages"})
	if err != nil {
		return err
	}
	defer cache.Close(ctx)
	get := func(key string) (string, error) {
		return actor.Ask(ctx, cache, func(c *lru) (string, error) { return c.get(key), nil })
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := cache.Tell(ctx, func(c *lru) error { c.put(key, "page "+key); return nil }); err != nil {
			return err
		}
	}
	if a, err := get("a"); err != nil || a != "page a" { // so a is used later than b
		return errors.Join(err, fmt.Errorf("a is %q", a))
	}
	if err := cache.Tell(ctx, func(c *lru) error { c.put("d", "page d"); return nil }); err != nil {
		return err
	}
	for key, want := range map[string]string{"a": "page a", "b": "", "c": "page c", "d": "page d"} {
		if got, err := get(key); err != nil || got != want {
			return errors.Join(err, fmt.Errorf("%s is %q, want %q", key, got, want))
		}
	}
	fmt.Println("4 pages for 3 places: the one that was not used for longest is gone")
	return nil
}
