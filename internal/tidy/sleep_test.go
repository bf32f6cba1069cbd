package tidy

import (
	"go/ast"
	"go/token"
	"strings"
)

// sleepMark in the comment above a function says that it is only called inside a synctest bubble, where a sleep moves
// the fake clock instead of waiting. It is for what cannot be seen from the calls, as behind an interface.
const sleepMark = "synctest bubble"

// checkSleep refuses sleeping on the real clock in tests: it is either too short on a busy machine or wasted. Inside a
// synctest bubble time is fake. A place is inside when it is in a function passed to synctest.Test or to a helper that
// passes it on, in a function that calls synctest.Wait, or in one that is called from such places alone.
func checkSleep(t *tree) []finding {
	folders := make(map[string][]*source)
	for _, s := range t.rootGo() {
		if s.test {
			folders[s.dir()] = append(folders[s.dir()], s)
		}
	}
	var out []finding
	for _, sources := range folders {
		b := newBubbles(sources)
		for _, sl := range b.sleeps {
			if !sl.inside && !b.in[sl.from] {
				out = append(out, t.at(sl.pos, "test-sleep", "a test waits for what it wants to see, or runs in a synctest "+
					"bubble; a helper of such tests that is called from elsewhere too says %q in its comment", sleepMark))
			}
		}
	}
	return out
}

// A place is where a function is mentioned, or where a sleep is.
type place struct {
	from   string // name of the function around it
	inside bool   // in a literal passed into a bubble
	pos    token.Pos
}

// bubbles knows which functions of the tests in one folder run in bubbles only. Functions and methods of one name
// are taken together.
type bubbles struct {
	makers  map[string]bool    // functions that pass one of their parameters to synctest.Test
	certain map[string]bool    // functions that call synctest.Wait, or say so in their comment
	uses    map[string][]place // where each function is mentioned
	sleeps  []place
	in      map[string]bool
}

func newBubbles(sources []*source) *bubbles {
	b := &bubbles{makers: make(map[string]bool), certain: make(map[string]bool), uses: make(map[string][]place),
		in: make(map[string]bool)}
	for range 3 { // helpers of helpers
		b.each(sources, b.findMaker)
	}
	b.each(sources, func(s *source, f *ast.FuncDecl) {
		if f.Doc != nil && strings.Contains(strings.Join(strings.Fields(f.Doc.Text()), " "), sleepMark) {
			b.certain[f.Name.Name] = true
		}
		b.walk(s, f.Body, f.Name.Name, false)
	})
	for name := range b.uses {
		b.in[name] = true
	}
	for name := range b.certain {
		b.in[name] = true
	}
	for changed := true; changed; {
		changed = false
		for name, places := range b.uses {
			for _, p := range places {
				if b.in[name] && !b.certain[name] && !p.inside && !b.in[p.from] {
					delete(b.in, name)
					changed = true
				}
			}
		}
	}
	return b
}

func (b *bubbles) each(sources []*source, do func(*source, *ast.FuncDecl)) {
	for _, s := range sources {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				do(s, f)
			}
		}
	}
}

// findMaker recognises a function that runs one of its parameters in a bubble.
func (b *bubbles) findMaker(s *source, f *ast.FuncDecl) {
	params := make(map[string]bool)
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			params[n.Name] = true
		}
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !b.makes(s, call) {
			return true
		}
		for _, a := range call.Args[1:] {
			ast.Inspect(a, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && params[id.Name] {
					b.makers[f.Name.Name] = true
				}
				return true
			})
		}
		return true
	})
}

// makes says whether a call runs its arguments, behind the first, in a bubble.
func (b *bubbles) makes(s *source, call *ast.CallExpr) bool {
	if len(call.Args) < 2 {
		return false
	}
	if pkg, fn := callee(s, call.Fun); pkg == "testing/synctest" && fn == "Test" {
		return true
	}
	id, ok := call.Fun.(*ast.Ident)
	return ok && b.makers[id.Name]
}

// walk notes sleeps, waits and mentions of functions in the body of one.
func (b *bubbles) walk(s *source, n ast.Node, from string, inside bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if b.makes(s, n) {
				b.walk(s, n.Fun, from, inside)
				for _, a := range n.Args {
					b.walk(s, a, from, true)
				}
				return false
			}
			switch pkg, fn := callee(s, n.Fun); {
			case pkg == "time" && fn == "Sleep":
				b.sleeps = append(b.sleeps, place{from, inside, n.Pos()})
			case pkg == "testing/synctest" && fn == "Wait" && !inside && !isEntry(from):
				b.certain[from] = true
			}
		case *ast.Ident:
			if !isEntry(n.Name) {
				b.uses[n.Name] = append(b.uses[n.Name], place{from, inside, n.Pos()})
			}
		}
		return true
	})
}

// isEntry says whether the test runner calls a function, outside any bubble.
func isEntry(name string) bool {
	for _, prefix := range []string{"Test", "Benchmark", "Fuzz", "Example"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
