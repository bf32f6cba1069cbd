// Package check holds the clients of all languages to one behaviour: each one's own tests and samples run, and programs in
// all of them contend for the same keys of one broker, are killed, frozen and cut off, while a judge looks at what they
// say. It has tests only.
//
// Agents are such programs: they are told in lines of JSON what to do and answer in such lines. clients/README.md says how
// to run all this, and what the lines are.
package check

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds everything that has no bound of its own, on a busy machine.
const patience = time.Minute

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := tempDir(); err == nil {
			os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// A language is a folder with a client and a script that runs its parts.
type language struct {
	name  string
	ready func() (missing string, err error) // sees to its toolchain and its set-up, once
}

// languages are those with a folder beside this one. Go stands first: its agent is in this folder.
var languages = []*language{
	{"go", func() (string, error) { _, err := binaries(); return "", err }},
	foreign("typescript"),
	foreign("python"),
	foreign("rust"),
	foreign("java"),
}

// foreign makes a language of a folder.
func foreign(name string) *language {
	l := &language{name: name}
	l.ready = sync.OnceValues(func() (string, error) {
		if out, err := l.run(time.Minute, nil, "toolchain"); err != nil {
			return strings.TrimSpace(out), nil
		}
		if out, err := l.run(10*time.Minute, nil, "setup"); err != nil {
			return "", fmt.Errorf("run setup: %w\n%s", err, out)
		}
		return "", nil
	})
	return l
}

// here says whether the language can be used. One whose toolchain is missing is skipped by name on a laptop.
func (l *language) here(t *testing.T) bool {
	t.Helper()
	missing, err := l.ready()
	switch {
	case err != nil:
		t.Fatalf("%s: %v", l.name, err)
	case missing != "" && os.Getenv("CI") == "true":
		t.Fatalf("the toolchain of %s is missing: %s", l.name, missing)
	}
	return missing == ""
}

// present lists the languages that can be used, and names the others.
func present(t *testing.T) []*language {
	t.Helper()
	var out []*language
	for _, l := range languages {
		if l.here(t) {
			out = append(out, l)
			continue
		}
		missing, _ := l.ready()
		t.Logf("without %s: %s", l.name, missing)
	}
	return out
}

// folder is where the client of the language is.
func (l *language) folder() string { return filepath.Join("..", l.name) }

// run runs one part of a client's script and returns what it printed, both outputs together.
func (l *language) run(limit time.Duration, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	script, err := filepath.Abs(filepath.Join(l.folder(), "run"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Dir = filepath.Dir(script)
	cmd.Env = append(append(os.Environ(), "NO_COLOR=1", "TERM=dumb"), env...)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done within %v: %w", limit, ctx.Err())
	}
	return out.String(), err
}

// tempDir is a folder for the time of the test run.
var tempDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "latchkey-check-") })

type built struct{ broker, agent string }

// binaries builds the broker and the agent in Go, once for a test run.
var binaries = sync.OnceValues(func() (built, error) {
	dir, err := tempDir()
	if err != nil {
		return built{}, err
	}
	b := built{filepath.Join(dir, "latchkey"), filepath.Join(dir, "agent")}
	for path, pkg := range map[string]string{b.broker: "../../cmd/latchkey", b.agent: "./agent"} {
		if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, pkg).CombinedOutput(); err != nil {
			return built{}, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	return b, nil
})
