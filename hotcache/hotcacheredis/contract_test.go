package hotcacheredis

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcachetest"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// open opens a node that ends with the test.
func open(t testing.TB, url string, o Options) *Node {
	t.Helper()
	n, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	n.scripts = planted(n.scripts)
	t.Cleanup(n.Close)
	return n
}

func TestContract(t *testing.T) { contract(t, Options{}) }

// Reads that look together with others are no different.
func TestContractTogether(t *testing.T) { contract(t, Options{together: true}) }

func contract(t *testing.T, o Options) {
	server := redistest.Start(t, redistest.Options{})
	var count atomic.Int64
	hotcachetest.Run(t, hotcachetest.Subject{
		Open: func(t *testing.T, rules hotcache.Rules) (first, second hotcache.Node) {
			o := o
			o.Namespace, o.Rules = fmt.Sprint(count.Add(1)), rules
			return open(t, server.URL(), o), open(t, server.URL(), o)
		},
	})
}
