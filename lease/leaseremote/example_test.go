package leaseremote_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// startBroker stands for `latchkey serve` somewhere else.
func startBroker() (addr string, stop func()) {
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	srv := tcpserve.New(svc, tcpserve.Options{})
	go srv.Serve(ln)
	return ln.Addr().String(), func() {
		svc.Close()
		srv.Shutdown(context.Background())
	}
}

func ExampleDial() {
	addr, stop := startBroker()
	defer stop()
	ctx := context.Background()

	svc, err := leaseremote.Dial(ctx, addr, leaseremote.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{})
	if err != nil {
		log.Fatal(err)
	}
	err = client.Do(ctx, lease.Request{Keys: []string{"report/2024"}}, func(ctx context.Context, h *lease.Held) error {
		// ctx ends, with the cause, before anybody else can hold the key.
		fmt.Println("writing the report, fenced:", h.Token() > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// writing the report, fenced: true
	// done: <nil>
}
