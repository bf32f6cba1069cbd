package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRealRuns reports on real runs of the go command, in a module made for it.
func TestRealRuns(t *testing.T) {
	const head = "package a\n\nimport \"testing\"\n\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // in this order
		never []string
		good  bool
	}{
		{
			name: "passes and skips",
			files: map[string]string{
				"a_test.go": head + "func TestOne(t *testing.T) { t.Log(\"chatter\"); t.Run(\"sub\", func(*testing.T) {}) }\n" +
					"func TestNeeds(t *testing.T) { t.Skip(\"tmux is not installed\") }\n",
			},
			want:  []string{"ok", "m/a", "skipped:", "m/a TestNeeds: ", "tmux is not installed", "2 passed, 0 failed, 1 skipped"},
			never: []string{"chatter"},
			good:  true,
		},
		{
			name: "an attribute",
			files: map[string]string{
				"a_test.go": head + "func TestOne(t *testing.T) { t.Attr(\"peer-fails\", \"3 of 9\"); t.Log(\"chatter\") }\n",
			},
			want:  []string{"ok", "m/a", "attributes:", "m/a peer-fails: 3 of 9", "1 passed, 0 failed, 0 skipped"},
			never: []string{"chatter"},
			good:  true,
		},
		{
			name: "a failure",
			files: map[string]string{
				"a_test.go": head + "func TestGood(t *testing.T) { t.Log(\"chatter\") }\nfunc TestBad(t *testing.T) { t.Error(\"got 1, want 2\") }\n",
			},
			want:  []string{"got 1, want 2", "--- FAIL: TestBad", "FAIL\tm/a", "1 package(s) failed", "1 passed, 1 failed, 0 skipped"},
			never: []string{"chatter"},
		},
		{
			name:  "a panic",
			files: map[string]string{"a_test.go": head + "func TestLost(t *testing.T) { panic(\"lost\") }\n"},
			want:  []string{"panic: lost", "FAIL\tm/a", "0 passed, 1 failed, 0 skipped"},
		},
		{
			name:  "an exit in the middle",
			files: map[string]string{"a_test.go": "package a\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestLost(t *testing.T) { os.Exit(3) }\n"},
			want:  []string{"=== RUN   TestLost", "FAIL\tm/a", "1 package(s) failed"},
		},
		{
			name:  "a build failure",
			files: map[string]string{"a_test.go": head + "func TestX(t *testing.T) { undefined() }\n"},
			want:  []string{"undefined: undefined", "FAIL\tm/a", "1 package(s) failed", "0 passed, 0 failed, 0 skipped"},
		},
		{
			name:  "no test",
			files: map[string]string{"a.go": "package a\n"},
			want:  []string{"m/a", "0 passed, 0 failed, 0 skipped", "no test ran"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, good := reportOn(t, c.files)
			if good != c.good {
				t.Errorf("good is %v, want %v", good, c.good)
			}
			rest := got
			for _, w := range c.want {
				_, after, found := strings.Cut(rest, w)
				if !found {
					t.Errorf("no %q in its place in:\n%s", w, got)
					break
				}
				rest = after
			}
			for _, n := range c.never {
				if strings.Contains(got, n) {
					t.Errorf("%q in:\n%s", n, got)
				}
			}
		})
	}
}

// reportOn runs the tests of a module whose package a has the given files.
func reportOn(t *testing.T, files map[string]string) (text string, good bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/a", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/go.mod", []byte("module m\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(dir+"/a/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "./...")
	cmd.Dir = dir
	events, err := cmd.Output()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := &report{out: &out, output: make(map[key][]string)}
	if err := r.read(bytes.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	good = r.close()
	return out.String(), good
}

func TestOtherLinesPass(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out, output: make(map[key][]string)}
	if err := r.read(strings.NewReader("go: downloading something\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "go: downloading something\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
