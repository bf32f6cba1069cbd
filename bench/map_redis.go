package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// mapClient connects as both maps do: one connection, and whatever is more is asked for.
func mapClient(addr string) (rueidis.Client, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, PipelineMultiplex: -1, DisableCache: true, DisableRetry: true, ForceSingleClient: true,
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return c, nil
}

// mapServer is a Redis with a client for one of the two maps.
type mapServer struct {
	*redisServer
	client rueidis.Client
	store  *rmapredis.Store
}

// startMapServer starts a Redis without persistence.
func (e *env) startMapServer(ctx context.Context) (*mapServer, error) {
	s, err := e.startRedis(ctx, false)
	if err != nil {
		return nil, err
	}
	c, err := mapClient(s.addr)
	if err != nil {
		return nil, err
	}
	e.later(func() error { c.Close(); return nil })
	store, err := rmapredis.New(c, rmapredis.Options{})
	if err != nil {
		return nil, err
	}
	e.later(func() error { store.Close(); return nil })
	return &mapServer{s, c, store}, nil
}

// join joins ours.
func (s *mapServer) join(ctx context.Context, name string) (*rmap.Map[string, string], error) {
	return rmap.Join(ctx, s.store, name, rmap.Options[string, string]{})
}

// ours joins a map and fills it.
func (s *mapServer) ours(ctx context.Context, e *env, name string, keys []string) (*rmap.Map[string, string], error) {
	m, err := s.join(ctx, name)
	if err != nil {
		return nil, err
	}
	e.later(func() error { m.Close(); return nil })
	return m, fillMap(ctx, m, keys, func(i int) string { return mapText(keys[i], 0) })
}

// plain joins the plain map and fills it.
func (s *mapServer) plain(ctx context.Context, e *env, keys []string) (*floor.Map, error) {
	m, err := floor.Join(ctx, s.client, mapName, nil)
	if err != nil {
		return nil, err
	}
	e.later(func() error { m.Close(); return nil })
	return m, m.Fill(ctx, keys, mapTexts(keys))
}
