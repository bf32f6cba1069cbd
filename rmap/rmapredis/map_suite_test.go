package rmapredis

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaptest"
)

// A map over a real server keeps what it promises. The suite's maps are those of two clients.
func TestMap(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	rmaptest.RunMap(t, rmaptest.Subject{
		Open: func(t *testing.T) (first, second rmap.Store) {
			server.Do("FLUSHALL")
			return open(t, server.URL(), Options{}), open(t, server.URL(), Options{})
		},
		Remembers: 1000,
	})
}
