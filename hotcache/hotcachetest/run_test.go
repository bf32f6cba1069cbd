package hotcachetest_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcachetest"
)

func TestEmbedded(t *testing.T) {
	hotcachetest.Run(t, hotcachetest.Subject{
		Open: func(t *testing.T, rules hotcache.Rules) (first, second hotcache.Node) {
			n := hotcache.NewEmbedded(rules)
			return n, n
		},
		Bubble: true,
	})
}
