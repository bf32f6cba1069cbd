package redistest

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports are taken from below the range from which systems give ports to outgoing
// connections. A client that dials a port of that range again and again while its
// server is away is one day given that very port, and is then connected to itself.
const (
	lowestPort  = 10_000
	highestPort = 32_000
)

// listen takes a free port on loopback.
func listen() (net.Listener, error) {
	var last error
	for range 100 {
		ln, err := listenOn(lowestPort + rand.IntN(highestPort-lowestPort))
		if err == nil {
			return ln, nil
		}
		last = err
	}
	return nil, fmt.Errorf("find a free port on loopback: %w", last)
}

func listenOn(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}

func portOf(ln net.Listener) int { return ln.Addr().(*net.TCPAddr).Port }

// freePort finds a port that is free now. It may be taken a moment later.
func freePort() (int, error) {
	ln, err := listen()
	if err != nil {
		return 0, err
	}
	return portOf(ln), ln.Close()
}
