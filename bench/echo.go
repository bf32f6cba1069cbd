package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// echoLine is the length of a line sent to the echo server: about that of an
// acquire and of its answer.
const echoLine = 120

// serveEcho sends back whatever it receives: the least that any server does.
func serveEcho(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() { // ends when the peer closes
			defer c.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				if _, err := c.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// echo is one connection to an echo server in a process of its own.
type echo struct {
	server *process.Process
	conn   net.Conn
	r      *bufio.Reader
	line   []byte
	sent   uint64
}

// startEcho starts the server and connects to it.
func (e *env) startEcho(ctx context.Context) (*echo, error) {
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	p, err := e.start(ctx, process.Command{
		Name: "echo server", Program: e.self, Args: []string{childMode, "echo", addr}, Ready: process.Listening(addr)})
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("echo: %w", err)
	}
	e.later(conn.Close)
	line := append(bytes.Repeat([]byte("."), echoLine-1), '\n')
	return &echo{server: p, conn: conn, r: bufio.NewReader(conn), line: line}, nil
}

// trip sends one numbered line and waits for it.
func (x *echo) trip() error {
	x.sent++
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], x.sent)
	hex.Encode(x.line, n[:])
	if _, err := x.conn.Write(x.line); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	got, err := x.r.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	if !bytes.Equal(got, x.line) {
		return rounds.Wrong("line %d came back as %q", x.sent, got)
	}
	return nil
}

// arm makes an arm whose operation is so many round trips.
func (x *echo) arm(name string, trips int) rounds.Arm {
	return rounds.Arm{
		Name:    name,
		Setting: fmt.Sprintf("1 connection, lines of %d B, nothing but the echo", echoLine),
		PIDs:    []int{x.server.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, 1, d, func(context.Context, int) error {
				for range trips {
					if err := x.trip(); err != nil {
						return err
					}
				}
				return nil
			})
		},
		Check: func(context.Context, *rounds.Sample) error {
			if n := x.r.Buffered(); n != 0 {
				return rounds.Wrong("%d bytes came back that were never sent", n)
			}
			return nil
		},
	}
}
