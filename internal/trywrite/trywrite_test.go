//go:build unix

package trywrite

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// Against a peer that does not read, Write takes what fits into the kernel's
// buffers and then nothing, without waiting; all that was taken arrives, in
// order.
func TestWriteNeverWaits(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		addr := "127.0.0.1:0"
		if network == "unix" {
			addr = t.TempDir() + "/socket"
		}
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		here, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		there, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		w := New(here)
		var sent []byte
		piece := bytes.Repeat([]byte("0123456789abcdef"), 4096)
		for n, full := 1, 0; full < 3; { // a full buffer stays full for a while: ask again
			n = w.Write(piece)
			sent = append(sent, piece[:n]...)
			if n == 0 {
				full++
			}
			if len(sent) > 64<<20 {
				t.Fatalf("%s: %d bytes were taken that nobody reads", network, len(sent))
			}
		}
		here.(interface{ CloseWrite() error }).CloseWrite()
		got, err := io.ReadAll(there)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: %d bytes arrived of %d, %v", network, len(got), len(sent), err)
		}
		here.Close()
		if n := w.Write(piece); n != 0 {
			t.Errorf("%s: a closed socket took %d bytes", network, n)
		}
	}
}

func TestNoWriterForOthers(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if New(a) != nil {
		t.Error("a pipe has a writer")
	}
}
