//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
	"github.com/latchkey-go/latchkey/hotcache/outbox"
)

const (
	box          = outbox.Table("latchkey_example_catalog_outbox")
	envNamespace = "LATCHKEY_EXAMPLE_NAMESPACE"
)

// envNodes are the variables with the URLs of the two Redis: the second is there for copies of hot keys.
var envNodes = [...]string{"LATCHKEY_EXAMPLE_REDIS_A", "LATCHKEY_EXAMPLE_REDIS_B"}

// A Product is what is cached, as JSON.
type Product struct {
	Name  string
	Price int64
}

// priceOf is what a product costs at a version.
func priceOf(id int64, v hotcache.Version) int64 { return id*1_000_000 + int64(v) }

// A catalog is what every process has of the shop.
type catalog struct {
	db     *pgxpool.Pool
	nodes  []*hotcacheredis.Node
	cache  *hotcache.Cache[int64, Product]
	prices *outbox.Topic[int64]
}

func openCatalog(ctx context.Context) (*catalog, error) {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	c := &catalog{db: db}
	o := hotcache.Options[int64, Product]{HotShare: 0.02}
	for _, name := range envNodes {
		node, err := hotcacheredis.Open(ctx, os.Getenv(name), hotcacheredis.Options{Namespace: os.Getenv(envNamespace) + name})
		if err != nil {
			c.close()
			return nil, err
		}
		c.nodes = append(c.nodes, node)
		o.Nodes = append(o.Nodes, hotcache.NamedNode{Name: name, Node: node})
	}
	if c.cache, err = hotcache.New(c.load, o); err != nil {
		c.close()
		return nil, err
	}
	if c.prices, err = outbox.NewTopic("catalog", c.cache, outbox.Options[int64]{Table: box}); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *catalog) close() {
	if c.cache != nil {
		c.cache.Close()
	}
	for _, n := range c.nodes {
		n.Close()
	}
	c.db.Close()
}

// load is the loader. There is no replica here, so it need not look at the least version that it is asked for.
func (c *catalog) load(ctx context.Context, id int64, _ hotcache.Version) (p Product, v hotcache.Version, err error) {
	err = c.db.QueryRow(ctx, `select name, price, version from latchkey_example_catalog where id = $1`, id).Scan(&p.Name, &p.Price, &v)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("product %d: %w", id, hotcache.ErrNotFound)
	}
	return p, v, err
}

// UpdatePrice changes a price, and returns the version that it has from then on: also with an error of the type
// NotInvalidatedError, which says that the cache will hear of it from a relay.
func UpdatePrice(ctx context.Context, db outbox.DB, prices *outbox.Topic[int64], id int64) (hotcache.Version, error) {
	return prices.Update(ctx, db, id, func(ctx context.Context, tx pgx.Tx) (v hotcache.Version, err error) {
		err = tx.QueryRow(ctx, `update latchkey_example_catalog set version = version + 1, price = id * 1000000 + version + 1
			where id = $1 returning version`, id).Scan(&v)
		if errors.Is(err, pgx.ErrNoRows) {
			err = fmt.Errorf("product %d: %w", id, hotcache.ErrNotFound)
		}
		return v, err
	})
}

// relay tells the caches of what was committed by processes that did not live to do so.
func (c *catalog) relay(ctx context.Context) error {
	r, err := outbox.NewRelay(outbox.RelayOptions{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, os.Getenv("DATABASE_URL")) },
		Table:   box, Targets: []outbox.Target{c.prices},
	})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// never is the cache of the process that is killed before it can tell it anything.
type never struct{}

// Invalidate says so, and waits for the end.
func (never) Invalidate(ctx context.Context, _ int64, _ hotcache.Version) error {
	fmt.Println("has committed")
	<-ctx.Done()
	return ctx.Err()
}

// theDead is the product whose price the killed process changes, and nobody else.
const theDead = products

func doomed(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	prices, err := outbox.NewTopic("catalog", never{}, outbox.Options[int64]{Table: box, Timeout: patience})
	if err != nil {
		return err
	}
	_, err = UpdatePrice(ctx, db, prices, theDead)
	return errors.Join(err, errors.New("it is still alive"))
}
