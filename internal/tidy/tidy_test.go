// Package tidy holds the shape of this repository in place: which package may import which, how long a file or a
// function may be, what is documented, which words and habits stay out. It has tests only.
//
// A rule that cannot be kept somewhere gets an exemption with its reason in the table below; an exemption that no
// longer exempts anything fails. Each rule is shown to reject planted defects, in testdata/planted.
package tidy

import (
	"cmp"
	"flag"
	"slices"
	"strings"
	"testing"
)

// rules are all checks of one tree. Golden lists and code in documents have tests of their own.
var rules = []struct {
	name  string
	check func(*tree) []finding
}{
	{"Imports", checkImports},
	{"Engine", checkEngine},
	{"WallClock", checkWallClock},
	{"FileLength", checkFileLength},
	{"FuncLength", checkFuncLength},
	{"Folders", checkFolders},
	{"Interfaces", checkInterfaces},
	{"Docs", checkDocs},
	{"Init", checkInit},
	{"Vars", checkVars},
	{"Sleep", checkSleep},
	{"Skip", checkSkip},
	{"Words", checkWords},
	{"Errorf", checkErrorf},
	{"Goroutines", checkGoroutines},
	{"Dependencies", checkDependencies},
	{"Links", checkLinks},
	{"Scripts", checkScripts},
}

// An exemption lets one rule be broken in one place. what is a part of the finding's text, to point at one of many.
type exemption struct{ rule, path, what, why string }

var exemptions = []exemption{
	{"wall-clock", "lease/leaselocal/options.go", "UnixMicro", "where tokens start when nothing else is known; no deadline"},
}

// only narrows the findings to a folder while one works on it: go test ./internal/tidy -path internal/wire
var only = flag.String("path", "", "report findings below this folder only")

func TestRepository(t *testing.T) {
	repo := loadRepo(t)
	used := make([]bool, len(exemptions))
	found := make(map[string][]finding)
	for _, r := range rules {
		for _, f := range sorted(r.check(repo)) {
			i := slices.IndexFunc(exemptions, func(e exemption) bool {
				return e.rule == f.rule && e.path == f.path && strings.Contains(f.what, e.what)
			})
			if i >= 0 {
				used[i] = true
			} else if strings.HasPrefix(f.path, *only) {
				found[r.name] = append(found[r.name], f)
			}
		}
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, f := range found[r.name] {
				t.Error(f)
			}
		})
	}
	t.Run("Exemptions", func(t *testing.T) {
		for i, e := range exemptions {
			if !used[i] {
				t.Errorf("the exemption of %s from %s exempts nothing: drop it", e.path, e.rule)
			}
			if e.why == "" {
				t.Errorf("the exemption of %s from %s has no reason", e.path, e.rule)
			}
		}
	})
}

// sorted orders findings as a reader goes through them.
func sorted(fs []finding) []finding {
	slices.SortFunc(fs, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.line, b.line), strings.Compare(a.rule, b.rule),
			strings.Compare(a.what, b.what))
	})
	return fs
}
