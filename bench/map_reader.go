package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// clock is one that all processes of a machine share, in nanoseconds.
func clock() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("clock: %w", err)
	}
	return t.Nano(), nil
}

// A sighting is what a reader in another process reports: which write it saw in its
// copy, and when. Both are sent as 8 bytes each.
type sighting struct {
	write int
	at    int64
}

// watchedKey is the key that is written, one write after the other.
func watchedKey() string { return mapKeys(1)[0] }

// serveMapReader is the other process: it joins the map at a Redis, takes one
// connection, and reports over it every write that its copy shows. It reads the copy
// when it is told of a change, by the means that its map has for that.
func serveMapReader(kind, redisAddr, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	client, err := mapClient(redisAddr)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		<-told()
		cancel()
		_ = l.Close()
	}()
	accept := func(get func(string) (string, bool)) (*reporter, error) {
		conn, err := l.Accept()
		return &reporter{conn, get, watchedKey()}, err
	}
	if kind != ours {
		return reportPlain(ctx, client, accept)
	}
	store, err := rmapredis.New(client, rmapredis.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	m, err := rmap.Join(ctx, store, mapName, rmap.Options[string, string]{})
	if err != nil {
		return err
	}
	defer m.Close()
	events := m.Watch(ctx, rmap.WatchOptions{})
	r, err := accept(m.Get)
	if err != nil {
		return err
	}
	defer r.conn.Close()
	for range events {
		if err := r.look(); err != nil {
			return err
		}
	}
	return nil
}

// reportPlain is the same for the plain map, whose reader waits for a channel.
func reportPlain(ctx context.Context, client rueidis.Client, accept func(func(string) (string, bool)) (*reporter, error)) error {
	changes := make(chan struct{}, 1)
	m, err := floor.Join(ctx, client, mapName, func(string) {
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := accept(m.Get)
	if err != nil {
		return err
	}
	defer r.conn.Close()
	for {
		select {
		case <-changes:
		case <-ctx.Done():
			return nil
		}
		if err := r.look(); err != nil {
			return err
		}
	}
}

// reporter reads the watched key and tells what it saw.
type reporter struct {
	conn net.Conn
	get  func(string) (string, bool)
	key  string
}

func (r *reporter) look() error {
	v, ok := r.get(r.key)
	if isText(r.key, v, ok) != nil {
		return nil // not written yet
	}
	at, err := clock()
	if err != nil {
		return err
	}
	write, err := strconv.Atoi(v[mapKeyLen+1 : mapKeyLen+10])
	if err != nil {
		return err
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(write))
	binary.BigEndian.PutUint64(b[8:], uint64(at))
	_, err = r.conn.Write(b[:])
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return nil // nobody wants to know any more
	}
	return err
}

// mapReader is the other end of such a process.
type mapReader struct {
	process *process.Process
	conn    net.Conn
}

// startMapReader starts the process and connects to it.
func (e *env) startMapReader(ctx context.Context, kind, redisAddr string) (*mapReader, error) {
	addr, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	p, err := e.start(ctx, process.Command{
		Name: "reader of the " + kind, Program: e.self, Args: []string{childMode, "map-reader", kind, redisAddr, addr},
		Ready: func() error { // its one connection
			c, err := net.Dial("tcp", addr)
			conn = c
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	e.later(conn.Close)
	return &mapReader{p, conn}, nil
}

// next waits for a report.
func (r *mapReader) next() (sighting, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return sighting{}, err
	}
	var b [16]byte
	if _, err := io.ReadFull(r.conn, b[:]); err != nil {
		return sighting{}, fmt.Errorf("report of a reader: %w", err)
	}
	return sighting{int(binary.BigEndian.Uint64(b[:8])), int64(binary.BigEndian.Uint64(b[8:]))}, nil
}

// see waits until the reader has seen a write. What it saw before is no mistake: it may
// be told of one change more than once.
func (r *mapReader) see(write int) (sighting, error) {
	for {
		s, err := r.next()
		if err != nil {
			return s, err
		}
		if s.write > write {
			return s, rounds.Wrong("write %d was seen, and %d is the last", s.write, write)
		}
		if s.write == write {
			return s, nil
		}
	}
}
