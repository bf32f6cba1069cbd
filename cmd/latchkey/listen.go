package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// probeTime is how long a broker that may be there gets to answer on a socket
// that is in the way.
const probeTime = time.Second

// listener is one of the addresses that a broker listens on.
type listener struct {
	kind    string // tcp, unix or http
	address string // as clients are to give it
	net.Listener
}

// serve blocks until the broker is shut down, and then returns nil.
func (l *listener) serve(b *broker) error {
	if l.kind == "http" {
		return b.http.Serve(l.Listener)
	}
	return b.tcp.Serve(l.Listener)
}

// listen opens the listeners that are asked for.
func (b *broker) listen(o serveOptions) error {
	if o.listen != "" {
		l, err := listenTCP("--listen", o.listen)
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, listener{"tcp", l.Addr().String(), l})
	}
	if o.unix != "" {
		l, err := listenUnix(o.unix)
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, listener{"unix", "unix:" + o.unix, l})
	}
	if o.http != "" {
		l, err := listenTCP("--http", o.http)
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, listener{"http", "http://" + l.Addr().String() + "/", l})
	}
	return nil
}

// maxSocketPath is the longest path that a unix socket of this system may have.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// checkSocketPath refuses what the system would call an invalid argument.
func checkSocketPath(what, path string) error {
	if len(path) > maxSocketPath {
		return fmt.Errorf("%s%s: the path of a unix socket may have %d bytes, this one has %d",
			what, path, maxSocketPath, len(path))
	}
	return nil
}

func (b *broker) closeListeners() {
	for _, l := range b.listeners {
		l.Close()
	}
}

func listenTCP(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		return l, nil
	case isInUse(err):
		return nil, fmt.Errorf("%s %s is in use: another broker may run there; stop it, or choose another port",
			flag, address)
	}
	return nil, fmt.Errorf("%s %s: %s", flag, address, dialReason(err))
}

// listenUnix makes a socket that this user alone can reach. One that is in the
// way is replaced only when nobody answers on it.
func listenUnix(path string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	var l net.Listener
	err := private(func() (err error) {
		l, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("--unix %s: %s", path, dialReason(err))
	}
	return l, nil
}

func clearSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--unix: %w", err)
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("--unix %s: there is something else than a socket; remove it, or choose another path", path)
	}
	conn, err := net.DialTimeout("unix", path, probeTime)
	if err == nil {
		conn.Close()
		return fmt.Errorf("--unix %s: another broker answers there; stop it, or choose another path", path)
	}
	if !isRefused(err) {
		return fmt.Errorf("--unix %s: cannot tell whether a broker is there: %s", path, dialReason(err))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("--unix: replace a socket that nobody listens on: %w", err)
	}
	return nil
}

// announceJSON prints an object with what announce prints as text.
func (a *app) announceJSON(b *broker, st lease.Stats) {
	o := struct {
		Listening  map[string]string `json:"listening"`
		Durability string            `json:"durability"`
		Fencing    string            `json:"fencing"`
		Recovering int64             `json:"recovering,omitempty"` // ms
	}{map[string]string{}, st.Durability, st.Fencing, int64(st.Recovering / time.Millisecond)}
	for _, l := range b.listeners {
		o.Listening[l.kind] = strings.TrimPrefix(l.address, "unix:")
	}
	text, err := json.Marshal(o)
	if err != nil {
		return // strings and integers always encode
	}
	_ = a.writeAll(string(text) + "\n")
}
