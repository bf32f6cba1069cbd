package rmaplocal_test

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

// Two parts of a program that share a store see each other's writes.
func Example() {
	ctx := context.Background()
	store := rmaplocal.New(rmaplocal.Options{})
	defer store.Close()

	admin, err := rmap.Join(ctx, store, "flags", rmap.Options[string, bool]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer admin.Close()
	worker, err := rmap.Join(ctx, store, "flags", rmap.Options[string, bool]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer worker.Close()

	if _, err := admin.Set(ctx, "dark-mode", true); err != nil {
		fmt.Println(err)
	}
	if err := worker.Sync(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(worker.Get("dark-mode"))
	// Output: true true
}
