package wire

import (
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// Every example of the protocol's description is a frame that the code takes, and
// every operation, code and event has its place there.
func TestProtocolExamples(t *testing.T) {
	text, err := os.ReadFile("../../clients/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	for i, line := range strings.Split(string(text), "\n") {
		side, frame, ok := strings.Cut(line, ": ")
		if !ok || !strings.HasPrefix(frame, "{") {
			continue
		}
		var err error
		switch hello := strings.HasPrefix(frame, `{"latchkey"`); {
		case side == "C" && hello:
			_, err = DecodeHello([]byte(frame))
		case side == "S" && hello:
			_, err = DecodeHelloReply([]byte(frame))
		case side == "C":
			err = DecodeRequest([]byte(frame), &Request{})
		case side == "S":
			err = DecodeReply([]byte(frame), &Reply{})
		default:
			continue
		}
		frames++
		if err != nil {
			t.Errorf("line %d: %v", i+1, err)
		}
	}
	if frames < 25 {
		t.Errorf("only %d frames were found", frames)
	}
	var words []string
	for o := OpOpen; o <= OpStats; o++ {
		words = append(words, o.String())
	}
	for f := fN; f <= fReason; f <<= 1 {
		words = append(words, f.String())
	}
	for _, e := range []lease.EventKind{lease.EventGranted, lease.EventReleased, lease.EventExpired, lease.EventForced,
		lease.EventEnded, lease.EventQueued, lease.EventDequeued, lease.EventDetached, lease.EventGap} {
		words = append(words, string(e))
	}
	for _, w := range words {
		if !strings.Contains(string(text), "`"+w+"`") && !strings.Contains(string(text), `"`+w+`"`) {
			t.Errorf("%s is not described", w)
		}
	}
}
