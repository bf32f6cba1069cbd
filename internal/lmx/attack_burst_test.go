package lmx_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/lease"
)

// A client that reads may ask in one burst for more than may be queued for it: what
// it is owed is written between its frames. Else it would lose its connection, and
// with it all its locks, for asking too fast.
func TestListingsInABurst(t *testing.T) {
	bubble(t, func(r *rig) {
		c := r.Client()
		const keys = 400
		long := strings.Repeat("k", lease.MaxKeyLength-8)
		var locks []frame
		for i := range keys {
			locks = append(locks, lmxtest.Lock(fmt.Sprint("u", i), fmt.Sprintf("%s%08d", long, i), frame{"ttl": nil}))
		}
		c.Send(locks...)
		for i := range keys {
			r.Granted(c, fmt.Sprint("u", i))
		}
		const asked = 2*lease.MaxUnsent/(keys*lease.MaxKeyLength) + 1
		c.Raw(strings.Repeat(`{"type":"ls","uuid":"l"}`+"\n", asked))
		for i := range asked {
			if f := c.Expect("l"); len(f.Texts("ls_result")) != keys {
				t.Fatalf("listing %d of %d has %d keys, want %d", i, asked, len(f.Texts("ls_result")), keys)
			}
		}
		r.Quiet(c)
	})
}
