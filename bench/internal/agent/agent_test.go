package agent

import (
	"context"
	"strings"
	"testing"
	"time"
)

// script runs a shell that answers as a client would, or does not.
func script(t *testing.T, body string) (*Agent, error) {
	t.Helper()
	a, err := Start(context.Background(), "test", "127.0.0.1:1", nil, "sh", "-c", body)
	if err == nil {
		t.Cleanup(func() { _ = a.Close() })
	}
	return a, err
}

const connected = `read line; echo '{"event":"connected"}'; `

func TestRun(t *testing.T) {
	a, err := script(t, connected+`read line; echo '{"event":"bench","pairs":12,"ms":250.5,"errors":0}'; cat >/dev/null`)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Run(context.Background(), 4, time.Millisecond)
	if err != nil || s.Ops != 12 || s.Elapsed != 250500*time.Microsecond {
		t.Errorf("%+v, %v", s, err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestRefuses: what a client says wrong must not become a figure.
func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"errors":     {`read line; echo '{"event":"bench","pairs":12,"ms":250,"errors":1}'; cat >/dev/null`, "1 errors"},
		"no pairs":   {`read line; echo '{"event":"bench","pairs":0,"ms":250,"errors":0}'; cat >/dev/null`, "0 pairs"},
		"no time":    {`read line; echo '{"event":"bench","pairs":9,"ms":0,"errors":0}'; cat >/dev/null`, "in 0 ms"},
		"an error":   {`read line; echo '{"event":"error","text":"no"}'; cat >/dev/null`, `"bench"`},
		"not JSON":   {`read line; echo hello; cat >/dev/null`, "hello"},
		"it ended":   {`read line`, "it ended"},
		"its status": {`read line; echo '{"event":"bench","pairs":9,"ms":5,"errors":0}'; cat >/dev/null; exit 3`, "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := script(t, connected+c.body)
			if err != nil {
				t.Fatal(err)
			}
			_, err = a.Run(context.Background(), 1, time.Millisecond)
			if err == nil {
				err = a.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something with %q", err, c.want)
			}
		})
	}
	if _, err := script(t, `read line; echo '{"event":"error","text":"no broker"}'; cat >/dev/null`); err == nil || !strings.Contains(err.Error(), "no broker") {
		t.Errorf("a client that cannot connect: %v", err)
	}
}
