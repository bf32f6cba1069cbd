package lmx_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The guide has a row for each of the 28 defects, and what it says of those that
// are habits rather than frames is what the tests of their numbers look at.
func TestGuideHasTheDefects(t *testing.T) {
	text, err := os.ReadFile("../../docs/live-mutex.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \| (.*)$`).FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2]
	}
	for n := range 28 {
		if rows[fmt.Sprint(n+1)] == "" {
			t.Errorf("the guide has no row for defect %d", n+1)
		}
	}
	for number, says := range map[string][]string{
		"21": {"idle", "prints nothing"},
		"23": {"loopback", "/admin", "CDN"},
		"28": {"SIGTERM", "status 0"},
	} {
		for _, word := range says {
			if !strings.Contains(rows[number], word) {
				t.Errorf("the row of defect %s does not say %q: %s", number, word, rows[number])
			}
		}
	}
}
