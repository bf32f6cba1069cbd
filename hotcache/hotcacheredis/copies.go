package hotcacheredis

import (
	"context"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// GetCopy implements [hotcache.Node]. Whether the copy may still be used is not this node's to say, so two plain
// commands will do.
func (n *Node) GetCopy(ctx context.Context, key string) (*hotcache.Copy, error) {
	c, err := n.getCopy(ctx, key)
	return c, describe(err, "get the copy of", key)
}

func (n *Node) getCopy(ctx context.Context, key string) (*hotcache.Copy, error) {
	if err := n.ready(ctx, key); err != nil {
		return nil, err
	}
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	b := n.client.B()
	answers := n.client.DoMulti(ctx, b.Get().Key(n.keys.copied(key)).Build(), b.Time().Build())
	text, err := answers[0].ToString()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := redistext.Micros(answers[1])
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(text, n.o.version)
	if err != nil {
		return nil, err
	}
	c := &hotcache.Copy{Item: r.item, Times: r.times(now), Stamp: r.stamp}
	if c.Times.Hard <= 0 {
		return nil, nil
	}
	return c, nil
}

// PutCopy implements [hotcache.Node].
func (n *Node) PutCopy(ctx context.Context, key string, c hotcache.Copy) error {
	err := n.ready(ctx, key)
	if err == nil {
		err = n.putCopy(ctx, key, c)
	}
	return describe(err, "put a copy of", key)
}

func (n *Node) putCopy(ctx context.Context, key string, c hotcache.Copy) error {
	data, err := words(c.Item, c.Times)
	if err != nil {
		return err
	}
	args := append([]string{redistext.Hex16(c.Stamp.Generation), redistext.Hex16(c.Stamp.Number)}, data...)
	_, err = n.run(ctx, n.call(n.scripts.copied, n.trusted(), n.keys.copied(key), n.keys.load(key), args...))
	return err
}
