//go:build linux

package main

import (
	"os"
	"strings"
	"testing"
)

// full returns a file that takes no byte, as a disk that is full.
func full(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full: ", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// What cannot be printed is an error of every verb, as text and as JSON.
func TestOutputThatFails(t *testing.T) {
	b := startBroker(t)
	b.run("lock", "held", "--ttl", "1h").want(t, 0, "token", "")
	sink := full(t)
	for _, args := range [][]string{
		{"ls"}, {"show", "held"}, {"show", "free"}, {"status"}, {"lock", "other"}, {"force", "held", "--yes"},
	} {
		for _, form := range [][]string{nil, {"--json"}} {
			cmd := b.command(append(args, form...)...)
			var errOut strings.Builder
			cmd.Stdout, cmd.Stderr = sink, &errOut
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if code := waitFor(t, cmd); code != 1 {
				t.Errorf("%s %s with a full standard output: got code %d and %q, want 1", args, form, code, &errOut)
			}
			if form == nil && !strings.Contains(errOut.String(), "no space left") {
				t.Errorf("%s with a full standard output: got errors %q", args, &errOut)
			}
			b.run("lock", "held", "--try", "--ttl", "1h")
		}
	}
	// Nobody knows the id of a lock that could not be printed.
	b.run("show", "other").want(t, 0, "other is free", "")
}

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 日本":                 "plain é 日本",
		"two\nlines\tand":            "two lines and",
		"\x1b[31mred":                "�[31mred",
		"csi \u009b31m":              "csi �31m",
		"exe\u202egnp":               "exe�gnp",
		"zero\u200bwidth\ufeff mark": "zero�width� mark",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("oneLine(%+q) = %+q, want %+q", text, got, want)
		}
	}
}
