package tidy

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var link = regexp.MustCompile(`\]\(([^)\s#]+)(?:#[^)]*)?\)`)

// checkLinks finds links between documents that lead nowhere. Where a link leads to is looked up among the text files
// and their folders. Code is passed over: a call of a generic function looks like a link.
func checkLinks(t *tree) []finding {
	known := make(map[string]bool)
	for _, s := range t.sources {
		for p := s.path; p != "."; p = path.Dir(p) {
			known[p] = true
		}
	}
	known["LICENSE"] = true // has no ending that tells it is text
	var out []finding
	for _, s := range t.sources {
		if !strings.HasSuffix(s.path, ".md") {
			continue
		}
		code := make(map[int]bool) // by line
		for _, f := range fencesOf(s.path, string(s.text)) {
			for n := range strings.Count(f.text, "\n") {
				code[f.line+n] = true
			}
		}
		for i, line := range strings.Split(string(s.text), "\n") {
			if code[i+1] {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], ":") {
					continue // elsewhere on the net
				}
				if to := path.Join(s.dir(), m[1]); !known[to] && to != "." {
					out = append(out, finding{s.path, i + 1, "link", fmt.Sprintf("%s leads to %s, which is not there", m[1], to)})
				}
			}
		}
	}
	return out
}
