package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// childMode as the first argument makes this program one of the servers that a
// measurement needs, so that each runs in a process of its own.
const childMode = "run-server"

// child runs a server until it is told to end.
func child(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "echo":
		return serveEcho(args[1])
	case len(args) == 4 && args[0] == "etcd":
		return serveEtcd(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "broker":
		return serveProfiled(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "map-reader":
		return serveMapReader(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "cache-reader":
		return serveCacheReader(args[1], args[2], args[3])
	}
	return fmt.Errorf("%s: no server is called %q", childMode, args)
}

// told is closed, by a value, when this process is asked to end.
func told() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, os.Interrupt)
	return c
}
