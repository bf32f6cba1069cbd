package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// serveProfiled is the broker inside this program, so that it can be profiled:
// the same service and the same front end as latchkey serve with its defaults.
// With a folder it is durable. Profiles are written when it ends.
func serveProfiled(addr, data, profile string) (err error) {
	stop, err := startProfile(profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	service, err := leaselocal.Open(leaselocal.Options{Dir: data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, service.Close()) }() // harmless after the one below
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	dialect := lmx.New(service, nil)
	server := tcpserve.New(service, tcpserve.Options{
		Version: "profiled", Dialect: func(p *tcpserve.Peer) tcpserve.Handler { return dialect.Open(p) },
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with the shutdown below
	select {
	case err := <-served:
		return err
	case <-told():
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(service.Close(), server.Shutdown(ctx))
}
