package core

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func aCopy(number uint64, bytes int) Copy {
	return Copy{
		Item:  Item{Version: Version(number), Data: make([]byte, bytes)},
		Times: Times{Soft: time.Minute, Hard: time.Minute, Keep: time.Minute},
		Stamp: Stamp{Generation: 1, Number: number},
	}
}

// TestCopiesAreBounded fills a node with copies, then with items, then with both: together they never have more bytes
// than the node may have, copies never more than their share, and what was used last stays.
func TestCopiesAreBounded(t *testing.T) {
	rules := DefaultRules()
	rules.MaxBytes = 80_000
	h := NewHome(0, rules, rand.New(rand.NewPCG(1, 1)))
	within := func(what string) {
		t.Helper()
		if _, bytes := h.Len(); bytes > rules.MaxBytes || h.copies.bytes > rules.MaxBytes/copyShare {
			t.Fatalf("with %s there are %d bytes, %d of them of copies", what, bytes, h.copies.bytes)
		}
	}
	put := func(i int) {
		key := fmt.Sprint("item ", i)
		h.Ask(0, Ask{Key: key, Token: 1})
		h.Fill(0, Fill{Key: key, Token: 1, Item: Item{Version: 1, Data: make([]byte, 500)}, Times: aCopy(1, 0).Times})
	}
	for i := range 1000 {
		put(i)
		within("items")
	}
	for i := range 1000 {
		h.GetCopy(0, "used")
		if i%100 == 0 {
			h.PutCopy(0, "used", aCopy(uint64(i+1), 900))
		}
		h.PutCopy(0, fmt.Sprint("copy ", i), aCopy(1, 900))
		within("copies")
	}
	if _, ok := h.GetCopy(0, "used"); !ok {
		t.Error("the copy that was used all the time is gone")
	}
	if items, bytes := h.Len(); items <= h.copies.len() || bytes < rules.MaxBytes*9/10 || h.copies.len() < 10 {
		t.Errorf("there are %d entries, %d of them copies, of %d bytes in all", items, h.copies.len(), bytes)
	}
	h.PutCopy(0, "used", aCopy(2000, rules.MaxBytes/copyShare)) // it does not fit, with its key
	if c, ok := h.GetCopy(0, "used"); ok {
		t.Errorf("a copy that is too large left the one of version %d", c.Item.Version)
	}
	for i := range 1000 {
		put(i)
		within("items again")
	}
	for i := range 1000 {
		if _, ok := h.GetCopy(time.Hour, fmt.Sprint("copy ", i)); ok {
			t.Fatal("a copy outlives its time")
		}
	}
	if h.copies.bytes != 0 || h.items.mostBytes != rules.MaxBytes {
		t.Errorf("without copies, %d bytes are theirs and %d those of items", h.copies.bytes, h.items.mostBytes)
	}
}

// TestLateCopy puts what was before over a copy.
func TestLateCopy(t *testing.T) {
	h := NewHome(0, DefaultRules(), rand.New(rand.NewPCG(1, 1)))
	h.PutCopy(0, "k", aCopy(2, 1))
	h.PutCopy(0, "k", aCopy(1, 1))
	if c, ok := h.GetCopy(time.Second, "k"); !ok || c.Item.Version != 2 || c.Times.Hard != time.Minute-time.Second {
		t.Errorf("there is %+v, %v", c, ok)
	}
}
