package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/groupcache"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
)

const (
	groupCache = "groupcache"
	loadTakes  = 50 * time.Millisecond // in the rows with a slow loader
)

// A rush is what another process is told: so many readers of one key at once, at a moment of the clock that all
// processes share. A rushed is what it answers.
type rush struct {
	Key     string
	Readers int
	At      int64
}

type rushed struct {
	Took  []time.Duration // of each reader, from the moment
	Loads int64
	Error string
}

// slowly is a loader that takes its time, and counts.
type slowly struct{ loads atomic.Int64 }

func (s *slowly) load(ctx context.Context, key string) (string, error) {
	s.loads.Add(1)
	timer := time.NewTimer(loadTakes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return mapText(key, 0), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// serveCacheReader is another process that caches: it takes one connection, and reads as it is told over it. For ours,
// peers is the address of a Redis; for groupcache, the addresses of all processes, of which the first is its own.
func serveCacheReader(kind, peers, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the process
		<-told()
		cancel()
		_ = l.Close()
	}()
	s := new(slowly)
	get, end, err := cacheOf(ctx, kind, peers, s)
	if err != nil {
		return err
	}
	defer end()
	conn, err := l.Accept()
	if err != nil {
		return nil // told to end before anybody came
	}
	defer conn.Close()
	go func() { // ends with the process
		<-ctx.Done()
		_ = conn.Close()
	}()
	in, out := json.NewDecoder(bufio.NewReader(conn)), json.NewEncoder(conn)
	for {
		var c rush
		if err := in.Decode(&c); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				<-ctx.Done() // ending by itself would look like a failure
				return nil
			}
			return err
		}
		before := s.loads.Load()
		answer := c.read(ctx, get)
		answer.Loads = s.loads.Load() - before
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
}

// cacheOf joins a cache of either kind.
func cacheOf(ctx context.Context, kind, peers string, s *slowly) (get func(context.Context, string) (string, error), end func(), err error) {
	if kind != ours {
		return joinGroup(strings.Split(peers, ","), s)
	}
	node, err := hotcacheredis.Open(ctx, "redis://"+peers, hotcacheredis.Options{})
	if err != nil {
		return nil, nil, err
	}
	c, err := hotcache.New(func(ctx context.Context, key string, _ hotcache.Version) (string, hotcache.Version, error) {
		v, err := s.load(ctx, key)
		return v, 1, err
	}, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "redis", Node: node}}})
	if err != nil {
		return nil, nil, err
	}
	return c.Get, func() { c.Close(); node.Close() }, stands(ctx, c.Sync)
}

// joinGroup is groupcache over its own transport, HTTP with connections that are kept.
func joinGroup(addrs []string, s *slowly) (get func(context.Context, string) (string, error), end func(), err error) {
	var urls []string
	for _, a := range addrs {
		urls = append(urls, "http://"+a)
	}
	pool := groupcache.NewHTTPPoolOpts(urls[0], nil)
	slices.Sort(urls)
	pool.Set(urls...)
	g := groupcache.NewGroup("bench", 64<<20, groupcache.GetterFunc(func(ctx context.Context, key string, to groupcache.Sink) error {
		v, err := s.load(ctx, key)
		if err != nil {
			return err
		}
		return to.SetString(v)
	}))
	l, err := net.Listen("tcp", addrs[0])
	if err != nil {
		return nil, nil, err
	}
	server := &http.Server{Handler: pool}
	go func() { _ = server.Serve(l) }() // ends with Close
	return func(ctx context.Context, key string) (string, error) {
		var v string
		err := g.Get(ctx, key, groupcache.StringSink(&v))
		return v, err
	}, func() { _ = server.Close() }, nil
}

// read has all readers read at the moment.
func (c rush) read(ctx context.Context, get func(context.Context, string) (string, error)) rushed {
	out := rushed{Took: make([]time.Duration, c.Readers)}
	errs := make([]error, c.Readers)
	begin := make(chan struct{})
	var start time.Time // written before begin is closed
	var all sync.WaitGroup
	for i := range c.Readers {
		all.Go(func() {
			<-begin
			v, err := get(ctx, c.Key)
			out.Took[i] = time.Since(start)
			if err == nil {
				err = isText(c.Key, v, true)
			}
			errs[i] = err
		})
	}
	if now, err := clock(); err == nil {
		time.Sleep(time.Duration(c.At - now))
	}
	start = time.Now()
	close(begin)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		out.Error = strings.SplitN(err.Error(), "\n", 2)[0]
	}
	return out
}

// cacheReader is the other end of such a process.
type cacheReader struct {
	process *process.Process
	conn    net.Conn
	in      *json.Decoder
}

// startCacheReaders starts n processes that share a cache. redisAddr is of no meaning to groupcache.
func (e *env) startCacheReaders(ctx context.Context, kind string, n int, redisAddr string) ([]*cacheReader, error) {
	peers := make([]string, n)
	for i := range peers {
		addr, err := process.FreeAddr()
		if err != nil {
			return nil, err
		}
		peers[i] = addr
	}
	var out []*cacheReader
	for i := range n {
		with := redisAddr
		if kind != ours {
			with = strings.Join(turned(peers, i), ",")
		}
		addr, err := process.FreeAddr()
		if err != nil {
			return nil, err
		}
		r := new(cacheReader)
		r.process, err = e.start(ctx, process.Command{
			Name: "reader of " + kind, Program: e.self, Args: []string{childMode, "cache-reader", kind, with, addr},
			Ready: func() (err error) { // its one connection
				r.conn, err = net.Dial("tcp", addr)
				return err
			},
		})
		if err != nil {
			return nil, err
		}
		e.later(r.conn.Close)
		r.in = json.NewDecoder(bufio.NewReader(r.conn))
		out = append(out, r)
	}
	return out, nil
}

func (r *cacheReader) tell(c rush) error {
	if err := r.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	return json.NewEncoder(r.conn).Encode(c)
}

func (r *cacheReader) hear() (rushed, error) {
	var out rushed
	if err := r.in.Decode(&out); err != nil {
		return out, fmt.Errorf("report of a reader: %w", err)
	}
	if out.Error != "" {
		return out, rounds.Wrong("a reader got: %s", out.Error)
	}
	return out, nil
}
