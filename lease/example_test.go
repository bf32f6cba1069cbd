package lease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// Run something while a lease is held and renewed. The same code works with
// leaseremote.Dial in place of leaselocal.Open.
func ExampleClient_Do() {
	ctx := context.Background()
	svc, err := leaselocal.Open(leaselocal.Options{TokenFloor: 1 << 52})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: "billing"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	err = client.Do(ctx, lease.Request{Keys: []string{"invoices/2026-11"}}, func(ctx context.Context, h *lease.Held) error {
		// ctx ends, with the cause, before anybody else can be granted the key.
		// The token goes with every write, so that the store can refuse an older one.
		fmt.Println("closing the month with token", h.Token()-1<<52)

		_, err := client.Acquire(ctx, lease.Request{Keys: []string{"invoices/2026-11"}, Try: true})
		fmt.Println("busy for others:", errors.Is(err, lease.ErrBusy))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// closing the month with token 1
	// busy for others: true
	// error: <nil>
}

// A loss ends the context of a hold with its cause.
func ExampleHeld_Context() {
	ctx := context.Background()
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	held, err := client.Hold(ctx, lease.Request{Keys: []string{"deploy"}, TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer held.Release(ctx)

	_, err = svc.Force(ctx, lease.ForceRequest{Key: "deploy", By: "alice", Reason: "stuck"})
	if err != nil {
		log.Fatal(err)
	}
	<-held.Context().Done()
	fmt.Println(context.Cause(held.Context()))
	// Output:
	// hold "deploy": forced: an administrator took it away: alice: stuck
}

// Stand for election: one of many runs the function, the others wait in line.
func ExampleClient_Lead() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)

	term := 0
	err = client.Lead(ctx, lease.Request{Keys: []string{"scheduler"}}, func(ctx context.Context, h *lease.Held) error {
		term++
		fmt.Println("leading, term", term)
		if term == 1 {
			svc.Force(ctx, lease.ForceRequest{Key: "scheduler"})
			<-ctx.Done() // deposed: return, and stand again
			return nil
		}
		return nil // resign
	})
	fmt.Println("resigned:", err == nil)
	// Output:
	// leading, term 1
	// leading, term 2
	// resigned: true
}
