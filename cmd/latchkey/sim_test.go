package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func simulate(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, exec.Command(program(), append([]string{"sim"}, args...)...))
}

// TestSimSameBytes runs the binary twice, with other numbers of processors.
func TestSimSameBytes(t *testing.T) {
	args := []string{"sim", "--compare", "--reads", "20000", "--keys", "1000", "--fault", "node@100ms+50ms:3", "--json"}
	first := finish(t, exec.Command(program(), args...))
	again := exec.Command(program(), args...)
	again.Env = append(os.Environ(), "GOMAXPROCS=1")
	if second := finish(t, again); first.code != 0 || first.out != second.out {
		t.Fatalf("two runs differ, status %d %s:\n%s\n%s", first.code, first.err, first.out, second.out)
	}
	var report struct {
		Settings map[string]string
		Faults   []string
		Results  []struct {
			Policy string
			Reads  int
		}
	}
	if err := json.Unmarshal([]byte(first.out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Settings["reads"] != "20000" || len(report.Faults) != 1 || len(report.Results) != 2 ||
		report.Results[1].Policy != "source" || report.Results[1].Reads != 20000 {
		t.Errorf("got %+v", report)
	}
}

func TestSimTableAndPage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(page, []byte(strings.Repeat("old", 1<<20)), 0o644); err != nil {
		t.Fatal(err)
	}
	r := simulate(t, "--reads", "5000", "--html", page)
	if r.code != 0 || !strings.Contains(r.out, "database reads") || !strings.Contains(r.err, page) {
		t.Errorf("got %+v", r)
	}
	if text := read(t, page); !strings.HasPrefix(text, "<!doctype html>") || strings.Contains(text, "oldold") {
		t.Errorf("the page begins %.60q", text)
	}
}

func TestSimRefuses(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "reads.csv")
	if err := os.WriteFile(trace, []byte("1,a\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--reads 0 is too small":                       {"--reads", "0"},
		"--policy \"x\" is neither ours nor source":    {"--policy", "x"},
		"--compare runs both":                          {"--compare", "--policy", "ours"},
		"--fault \"node\" has no moment":               {"--fault", "node"},
		"--fault node@1s+1s:99: nodes are 0 to 15":     {"--fault", "node@1s+1s:99"},
		"so --skew says nothing":                       {"--trace", trace, "--skew", "1"},
		"reads.csv:2: there are 1 fields":              {"--trace", trace},
		"no such file":                                 {"--trace", filepath.Join(dir, "none")},
		"--html: open":                                 {"--html", filepath.Join(dir, "none", "page.html")},
		"is one argument too many":                     {"stray"},
		"invalid argument \"soon\" for \"--lag\" flag": {"--lag", "soon"},
	} {
		r := simulate(t, args...)
		if r.code != 1 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 || r.out != "" {
			t.Errorf("%v: got %+v, want %s", args, r, want)
		}
	}
}

// TestSimInterrupted sends the signal to a run that has read a part of its trace. It shows what there is, and goes.
func TestSimInterrupted(t *testing.T) {
	cmd := exec.Command(program(), "sim", "--trace", "/dev/stdin", "--compare")
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reading, fed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(fed)
		for i := 0; ; i++ {
			if _, err := io.WriteString(in, fmt.Sprintf("key%d\n", i%1000)); err != nil {
				return // it is gone
			}
			if i == 50_000 { // more than a pipe holds, so it was reading
				close(reading)
			}
		}
	}()
	<-reading
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code := waitFor(t, cmd)
	in.Close()
	<-fed
	if code != exitSignal+int(syscall.SIGINT) || !strings.Contains(out.String(), "ours was interrupted") ||
		!strings.Contains(out.String(), "database reads") || errOut.String() != "" {
		t.Errorf("status %d\n%s%s", code, out.String(), errOut.String())
	}
}
