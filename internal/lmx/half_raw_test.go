package lmx_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// A client that says all at once and then that it has said all, as a script does,
// gets its answers, also from a broker that writes to its disk before it answers.
func TestAnswersAfterTheLastWord(t *testing.T) {
	r := durableRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.tcp.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	say := func(frames ...frame) string {
		nc, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, f := range frames {
			if _, err := io.WriteString(nc, f.String()+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(nc)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for i := range 10 {
		id := fmt.Sprintf("id%d", i)
		got := say(lmxtest.Lock(id, "k", frame{"keepLocksAfterDeath": true}), lmxtest.Lock("waits", "k", nil))
		if !strings.Contains(got, `"acquired":true`) || !strings.Contains(got, `"acquired":false`) {
			t.Errorf("the locks got %q, want a grant and a place in the queue", got)
		}
		if got := say(lmxtest.Unlock("u", id, "k", nil)); !strings.Contains(got, `"unlocked":true`) {
			t.Errorf("the unlock got %q", got)
		}
	}
}
