package lmx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
)

// rwPlant makes a broker wrong. What is nil leaves it as it is.
type rwPlant struct {
	handler func(*tcpserve.Peer, tcpserve.Handler) tcpserve.Handler // between the wire and the dialect
	service func(lease.Service) lease.Service                       // between the dialect and the service
}

// rwTwisted is a connection of a broker that is wrong.
type rwTwisted struct {
	tcpserve.Handler
	line    func(line []byte) error // handles a line
	endless bool                    // the dialect is not told of the end
}

func (h *rwTwisted) Line(line []byte) error { return h.line(line) }

func (h *rwTwisted) End() {
	if !h.endless {
		h.Handler.End()
	}
}

// rwRewrite replaces a text in all that clients say.
func rwRewrite(from, to string) rwPlant {
	return rwPlant{handler: func(_ *tcpserve.Peer, h tcpserve.Handler) tcpserve.Handler {
		return &rwTwisted{Handler: h, line: func(line []byte) error {
			return h.Line(bytes.ReplaceAll(line, []byte(from), []byte(to)))
		}}
	}}
}

// rwAnswer answers frames of a type by itself, and keeps them from the dialect or
// not.
func rwAnswer(kind, with string, keep bool) rwPlant {
	return rwPlant{handler: func(p *tcpserve.Peer, h tcpserve.Handler) tcpserve.Handler {
		return &rwTwisted{Handler: h, line: func(line []byte) error {
			if f := rwParse(line); f["type"] == kind {
				p.Send([]byte(f.With(lmxtest.Frame{"type": with}).String() + "\n"))
				if keep {
					return nil
				}
			}
			return h.Line(line)
		}}
	}}
}

func rwParse(line []byte) (f lmxtest.Frame) {
	if json.Unmarshal(line, &f) != nil {
		return nil
	}
	return f
}

// rwKeep does not give up the base lock when a question waits.
func rwKeep() rwPlant {
	k := &rwKeeper{}
	return rwPlant{
		service: func(svc lease.Service) lease.Service { return rwKeepingService{svc, k} },
		handler: func(_ *tcpserve.Peer, h tcpserve.Handler) tcpserve.Handler {
			return &rwTwisted{Handler: h, line: func(line []byte) error {
				k.mu.Lock()
				defer k.mu.Unlock()
				k.unlocks = rwParse(line)["type"] == "unlock"
				return h.Line(line)
			}}
		},
	}
}

// rwKeeper has the broker handle one frame at a time, so that it is known which
// one a release is for.
type rwKeeper struct {
	mu      sync.Mutex // guards unlocks
	unlocks bool
}

type rwKeepingService struct {
	lease.Service
	keeper *rwKeeper
}

func (s rwKeepingService) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	sess, err := s.Service.Open(ctx, o)
	return rwKeepingSession{sess, s.keeper}, err
}

type rwKeepingSession struct {
	lease.Session
	keeper *rwKeeper
}

func (s rwKeepingSession) Do(c lease.Command, done func(lease.Lease, error)) {
	if c.Verb != lease.Release || s.keeper.unlocks {
		s.Session.Do(c, done)
	}
}

// rwDefects are brokers that the model has to reject, and what it says of them.
var rwDefects = map[string]struct {
	plan rwPlan
	says string
}{
	"readers of 0.2.25 are not counted when told that they may read": {
		rwPlan{kinds: []*rwKind{rwOld}, plant: rwRewrite(`"0.2.25"`, `"0.2.27"`)}, "beside"},
	"readers of 0.2.27 are counted twice": {
		rwPlan{kinds: []*rwKind{rwNew}, plant: rwRewrite(`"0.2.27"`, `"0.2.25"`)}, "hangs"},
	"flags and counts outlive their connection": {
		rwPlan{kinds: []*rwKind{rwOld, rwNew}, cuts: true, plant: rwPlant{
			handler: func(_ *tcpserve.Peer, h tcpserve.Handler) tcpserve.Handler {
				return &rwTwisted{Handler: h, line: h.Line, endless: true}
			}}}, "hangs"},
	"writers are let in whoever reads": {
		rwPlan{kinds: []*rwKind{rwOld, rwNew}, plant: rwAnswer("register-write-flag-and-readers-check",
			"register-write-flag-and-readers-check-success", true)}, "beside"},
	"a question is answered twice": {
		rwPlan{kinds: []*rwKind{rwOld, rwNew}, plant: rwAnswer("register-write-flag-check", "broadcast-result", false)},
		"did not wait for"},
	"readers who are preferred pass their key together": {
		rwPlan{kinds: []*rwKind{rwPref}, plant: rwRewrite(`"max":10`, `"max":10,"maxRead":10`)}, "beside"},
	"a write key is nobody's but its connection's": {
		rwPlan{kinds: []*rwKind{rwPref}, cuts: true, plant: rwRewrite(`"locking_write_key"`, `"other"`)}, "hangs"},
	"the base lock is kept by a question that waits": {
		rwPlan{kinds: []*rwKind{rwOld}, plant: rwKeep()}, "hangs"},
}

// The model is able to fail: it rejects brokers that are wrong.
func TestReadersWritersModelFails(t *testing.T) {
	for name, d := range rwDefects {
		t.Run(name, func(t *testing.T) {
			d.plan.shared = 2
			found := ""
			for seed := uint64(0); seed < 40 && found == ""; seed++ {
				synctest.Test(t, func(t *testing.T) {
					w := d.plan.run(t, seed)
					w.mu.Lock()
					defer w.mu.Unlock()
					if all := strings.Join(w.faults, "\n"); strings.Contains(all, d.says) {
						found = all
					}
				})
			}
			if found == "" {
				t.Error("it is accepted")
			}
			t.Log(found)
		})
	}
}
