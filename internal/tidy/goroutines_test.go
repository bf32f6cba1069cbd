package tidy

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
)

// architecture holds the table of goroutines under the heading named here. The first column of a row is the function
// that starts the goroutine, as package.Func or package.Type.Method, in backquotes.
const (
	architecture     = "docs/ARCHITECTURE.md"
	goroutineHeading = "## Goroutines"
)

// unlisted folders start goroutines that are not part of the system.
var unlisted = []struct{ dir, why string }{
	{"examples", "a user's program, read on its own"},
	{"lease/leasetest", "the suite is a test, though it is not in a test file"},
	{"internal/proctest", "processes for tests, though it is not in a test file"},
	{"internal/redistest", "a server and a network for tests, though it is not in a test file"},
	{"rmap/rmaptest", "the suite is a test, though it is not in a test file"},
	{"hotcache/hotcachetest", "the suite is a test, though it is not in a test file"},
	{"clients/check/agent", "a client that the check of all clients drives, though it is not in a test file"},
	{"internal/trial", "what tests have in common, though it is not in a test file"},
	{"internal/lmx/lmxtest", "what tests speak and judge with, though it is not in a test file"},
}

var tableRow = regexp.MustCompile("^\\|\\s*`([^`]+)`\\s*\\|")

// checkGoroutines holds code and table against each other, both ways.
func checkGoroutines(t *tree) []finding {
	rows := t.goroutineRows()
	var out []finding
	started := make(map[string]bool)
	for _, s := range t.product() {
		if slices.ContainsFunc(unlisted, func(u struct{ dir, why string }) bool { return within(s.dir(), u.dir) }) {
			continue
		}
		for _, d := range s.file.Decls {
			f, isFunc := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				if !startsGoroutine(n) {
					return true
				}
				key := path.Base(s.dir()) + "."
				if isFunc {
					key += funcName(f)
				}
				started[key] = true
				if rows[key] == 0 {
					out = append(out, t.at(n.Pos(), "goroutine", "no row `%s` in the goroutine table of %s: say there who "+
						"owns it, what wakes it, what it alone touches and how it ends", key, architecture))
				}
				return true
			})
		}
	}
	for key, line := range rows {
		if !started[key] {
			out = append(out, finding{architecture, line, "goroutine",
				fmt.Sprintf("`%s` starts no goroutine: drop the row, or name the function that does", key)})
		}
	}
	return out
}

// startsGoroutine sees go statements and the Go method of groups, which is one in other clothes.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Go" && len(n.Args) == 1
	}
	return false
}

// goroutineRows reads the table: names and their lines.
func (t *tree) goroutineRows() map[string]int {
	rows := make(map[string]int)
	for _, s := range t.sources {
		if s.path != architecture {
			continue
		}
		inside := false
		for i, line := range strings.Split(string(s.text), "\n") {
			if strings.HasPrefix(line, "## ") {
				inside = line == goroutineHeading
			}
			if m := tableRow.FindStringSubmatch(line); inside && m != nil {
				rows[m[1]] = i + 1
			}
		}
	}
	return rows
}
