package lmx_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// Requests that nobody keeps waiting but the disk are not counted as waiting: a
// client may send any number of them at once, and is answered as fast as that goes.
func TestLocksInABurst(t *testing.T) {
	r := durableRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.tcp.Serve(l) }()
	defer func() {
		l.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const locks = 8 * lease.MaxInFlight
	var all strings.Builder
	for i := range locks {
		fmt.Fprintf(&all, `{"type":"lock","uuid":"u%d","key":"k%d"}`+"\n", i, i)
	}
	sent := make(chan error, 1)
	go func() {
		_, err := io.WriteString(nc, all.String())
		sent <- err
	}()
	answers := bufio.NewScanner(nc)
	refused, n := 0, 0
	for ; n < locks && answers.Scan(); n++ {
		if !strings.Contains(answers.Text(), `"acquired":true`) {
			if refused++; refused == 1 {
				t.Errorf("a lock that is free got %s", answers.Text())
			}
		}
	}
	if refused > 0 || n != locks {
		t.Errorf("of %d locks %d were answered and %d refused", locks, n, refused)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
