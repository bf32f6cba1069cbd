package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// serveEtcd runs etcd's own server, one member with its default settings, until
// the process is ended.
func serveEtcd(client, peer, dir string) error {
	c, err := url.Parse("http://" + client)
	if err != nil {
		return err
	}
	p, err := url.Parse("http://" + peer)
	if err != nil {
		return err
	}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*c}, []url.URL{*c}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*p}, []url.URL{*p}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	select {
	case err := <-server.Err():
		return err
	case <-told():
		return nil
	}
}

// etcdServer is a server in a process of its own, and one client of it.
type etcdServer struct {
	process  *process.Process
	client   *clientv3.Client
	revision int64 // after the last round that was checked
}

func (e *env) startEtcd(ctx context.Context) (*etcdServer, error) {
	client, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	peer, err := process.FreeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(e.dir, "etcd-")
	if err != nil {
		return nil, err
	}
	p, err := e.start(ctx, process.Command{
		Name: "etcd", Program: e.self, Args: []string{childMode, "etcd", client, peer, dir}, Ready: process.Listening(client)})
	if err != nil {
		return nil, err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{client}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	e.later(c.Close)
	s := &etcdServer{process: p, client: c}
	s.revision, _, err = s.look(ctx)
	return s, err
}

const etcdKey = "/bench/contended"

// look returns the store's revision and how many keys of the lock are left.
func (s *etcdServer) look(ctx context.Context) (revision, keys int64, err error) {
	got, err := s.client.Get(ctx, etcdKey, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, 0, fmt.Errorf("etcd: %w", err)
	}
	return got.Header.Revision, got.Count, nil
}

// etcdMutex is one contender: a session of its own, as its package asks for,
// because two waiters of one session are one to it.
type etcdMutex struct{ m *concurrency.Mutex }

func (s *etcdServer) contenders(ctx context.Context, e *env, n int) ([]contender, error) {
	var out []contender
	for range n {
		session, err := concurrency.NewSession(s.client, concurrency.WithTTL(60))
		if err != nil {
			return nil, fmt.Errorf("etcd: session: %w", err)
		}
		e.later(session.Close)
		out = append(out, &etcdMutex{concurrency.NewMutex(session, etcdKey)})
	}
	return out, ctx.Err()
}

// Lock returns, as the token, the revision of the store at the grant. It rises
// with every hold, because each release and each request is a change.
func (x *etcdMutex) Lock(ctx context.Context) (uint64, error) {
	if err := x.m.Lock(ctx); err != nil {
		return 0, fmt.Errorf("etcd: lock: %w", err)
	}
	return uint64(x.m.Header().Revision), nil
}

func (x *etcdMutex) Unlock(ctx context.Context) error {
	if err := x.m.Unlock(ctx); err != nil {
		return fmt.Errorf("etcd: unlock: %w", err)
	}
	return nil
}

// agrees judges the store after a round: each hold put one key and deleted it.
func (s *etcdServer) agrees(ctx context.Context, _ *rounds.Sample, grants int) error {
	revision, keys, err := s.look(ctx)
	if err != nil {
		return err
	}
	before := s.revision
	s.revision = revision
	if keys != 0 || revision-before != 2*int64(grants) {
		return rounds.Wrong("after %d holds etcd made %d changes, not two each, and %d keys are left", grants, revision-before, keys)
	}
	return nil
}
