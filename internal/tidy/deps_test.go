package tidy

import (
	"fmt"
	"slices"
	"strings"
)

const dependencies = "docs/decisions/dependencies.md"

// requirement is one line of a require block.
type requirement struct {
	module   string
	line     int
	indirect bool
}

// checkDependencies demands a line in the list of dependencies for each module that our code imports, and no line for
// one that it does not.
func checkDependencies(t *tree) []finding {
	required := t.requirements()
	imported := make(map[string]bool)
	for _, s := range t.rootGo() {
		for _, spec := range s.file.Imports {
			p := importPath(spec)
			for _, r := range required {
				if within(p, r.module) {
					imported[r.module] = true
				}
			}
		}
	}
	listed := t.listedDependencies()
	var out []finding
	for _, r := range required {
		if (imported[r.module] || !r.indirect) && listed[r.module] == 0 {
			out = append(out, finding{"go.mod", r.line, "dependency",
				fmt.Sprintf("%s has no line in %s: say there what it is for, why this one, and what it costs", r.module, dependencies)})
		}
	}
	for module, line := range listed {
		if !slices.ContainsFunc(required, func(r requirement) bool { return r.module == module }) {
			out = append(out, finding{dependencies, line, "dependency",
				fmt.Sprintf("%s is not required by go.mod: drop the line", module)})
		}
	}
	return out
}

// requirements reads the require lines of the root's go.mod, alone or in a block.
func (t *tree) requirements() []requirement {
	var out []requirement
	for _, s := range t.sources {
		if s.path != "go.mod" {
			continue
		}
		block := false
		for i, line := range strings.Split(string(s.text), "\n") {
			code, comment, _ := strings.Cut(line, "//")
			fields := strings.Fields(code)
			switch {
			case len(fields) == 2 && fields[0] == "require" && fields[1] == "(":
				block = true
				continue
			case len(fields) == 1 && fields[0] == ")":
				block = false
			case len(fields) == 3 && fields[0] == "require":
				fields = fields[1:]
			case !block:
				fields = nil
			}
			if len(fields) == 2 {
				out = append(out, requirement{fields[0], i + 1, strings.TrimSpace(comment) == "indirect"})
			}
		}
	}
	return out
}

// listedDependencies reads the first column of the table: module paths in backquotes.
func (t *tree) listedDependencies() map[string]int {
	listed := make(map[string]int)
	for _, s := range t.sources {
		if s.path != dependencies {
			continue
		}
		for i, line := range strings.Split(string(s.text), "\n") {
			if m := tableRow.FindStringSubmatch(line); m != nil {
				listed[m[1]] = i + 1
			}
		}
	}
	return listed
}
