package leaselocal

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// An administrator's release is logged: of what, by whom and why, and also when
// it found nothing, but then as less than a warning.
func TestForceIsLogged(t *testing.T) {
	var text bytes.Buffer // written by the service's loop before the answer
	s := mustOpen(t, Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
	defer s.Close()
	c := mustSession(t, s, lease.SessionOptions{})
	if a := ask(c, "a", "deploy").now(); a.err != nil || a.times != 1 {
		t.Fatalf("%+v, want a grant", a)
	}
	if _, err := s.Force(t.Context(), lease.ForceRequest{Key: "deploy", By: "alice", Reason: "stuck"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Force(t.Context(), lease.ForceRequest{Key: "other", By: "bob"}); !errors.Is(err, lease.ErrNotHeld) {
		t.Fatalf("got %v, want not held", err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for i, parts := range [][]string{{"key=deploy", "by=alice", "reason=stuck", "holds=1", "level=WARN"}, {"key=other", "by=bob", "not held", "level=INFO"}} {
		for _, part := range parts {
			if len(lines) != 2 || !strings.Contains(lines[i], part) {
				t.Fatalf("line %d of the log lacks %s:\n%s", i+1, part, text.String())
			}
		}
	}
}
