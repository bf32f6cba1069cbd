package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// statefulDirs may have package-level variables that change: detection of a second lock needs state of the process, and
// transactions of all variables share a gate, a clock and a pool, because a variable belongs to no object.
var statefulDirs = []string{"internal/held", "stm"}

// madeOnce lists functions whose result is never changed after it was made, so that a variable holding it is a
// constant in all but name.
var madeOnce = []string{"errors.New", "fmt.Errorf", "regexp.MustCompile", "crc32.MakeTable", "template.Must",
	"strings.NewReplacer", "rmapredis.NewScript"}

func checkInit(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				out = append(out, t.at(f.Pos(), "no-init", "an init function runs whether it is wanted or not; do it in "+
					"a constructor"))
			}
		}
	}
	return out
}

// checkVars refuses package-level variables that can change. What stays allowed: sentinel errors and other values made
// once, embedded files, interface assertions, and tables that no code of their package writes to.
func checkVars(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		if slices.Contains(statefulDirs, s.dir()) {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if embedded(g, v) {
					continue
				}
				for i, id := range v.Names {
					if why := t.changeable(s, v, i); id.Name != "_" && why != "" {
						out = append(out, t.at(id.Pos(), "mutable-var", "%s is state of the whole process (%s): put it in "+
							"a struct that somebody owns", id.Name, why))
					}
				}
			}
		}
	}
	return out
}

func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
			return strings.HasPrefix(c.Text, "//go:embed ")
		}) {
			return true
		}
	}
	return false
}

// changeable says why a variable counts as one that can change, or nothing when it does not.
func (t *tree) changeable(s *source, v *ast.ValueSpec, i int) string {
	if i >= len(v.Values) {
		if a, ok := v.Type.(*ast.ArrayType); ok && a.Len != nil && !v.Names[i].IsExported() {
			return t.written(s, v.Names[i]) // a block of zeros
		}
		return "it starts empty, so something must fill it"
	}
	switch x := v.Values[i].(type) {
	case *ast.CallExpr:
		pkg, fn := callee(s, x.Fun)
		if pkg != "" && slices.Contains(madeOnce, pkg[strings.LastIndex(pkg, "/")+1:]+"."+fn) {
			return t.written(s, v.Names[i])
		}
		return "it is made by a call, and what that returns may change"
	case *ast.UnaryExpr:
		if x.Op == token.AND {
			return "others can change what it points to"
		}
	case *ast.SelectorExpr:
		if v.Names[i].Name == x.Sel.Name && strings.HasPrefix(x.Sel.Name, "Err") {
			return t.written(s, v.Names[i]) // the sentinel of another package under its own name
		}
	case *ast.CompositeLit:
		if pkg, _ := callee(s, x.Type); strings.HasPrefix(pkg, "sync") {
			return "its methods change it"
		}
	}
	if v.Names[i].IsExported() {
		return "it is exported, so anybody can write to it"
	}
	return t.written(s, v.Names[i])
}

// written looks through the package for a statement that could change the variable. Names are not resolved: a local
// variable of the same name that is written to counts too, and wants another name.
func (t *tree) written(s *source, id *ast.Ident) string {
	why := ""
	is := func(e ast.Expr) bool { return rootIdent(e) == id.Name }
	for _, other := range t.rootGo() {
		if other.dir() != s.dir() || why != "" {
			continue
		}
		ast.Inspect(other.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE && slices.ContainsFunc(n.Lhs, is) {
					why = "it is written to"
				}
			case *ast.IncDecStmt:
				if is(n.X) {
					why = "it is written to"
				}
			case *ast.UnaryExpr:
				if n.Op == token.AND && is(n.X) {
					why = "its address is taken"
				}
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && is(n.Args[0]) &&
					slices.Contains([]string{"delete", "clear", "copy"}, f.Name) {
					why = "it is written to"
				}
			}
			return why == ""
		})
	}
	return why
}

// rootIdent is the variable that an expression such as x.f[i] starts from.
func rootIdent(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// clockNames are the ways of package time to read or wait for the clock of this machine.
var clockNames = []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}

// checkEngine keeps the engine a function: what it is told is all it knows. Its tests may do as they like.
func checkEngine(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		if !within(s.dir(), "lease/internal/engine") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				out = append(out, t.at(n.Pos(), "engine-pure", "the engine starts no goroutine: its order is its caller's"))
			case *ast.SelectorExpr:
				if pkg, fn := callee(s, n); pkg == "time" && slices.Contains(clockNames, fn) {
					out = append(out, t.at(n.Pos(), "engine-pure", "the engine uses no time.%s: now is an argument, so that "+
						"the wall clock cannot enter", fn))
				}
			}
			return true
		})
	}
	return out
}

// monotonicOnly are the folders in which deadlines are reckoned. Only what is for display may know the time of day.
var monotonicOnly = []string{"lease", "internal/tcpserve", "internal/wire", "cmd/latchkey/internal/child"}

// wallMethods make a time of day of an instant, or drop its monotonic reading.
var wallMethods = []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "UTC", "Local", "In", "AddDate", "Date", "Format"}

// wallFuncs make an instant that has no monotonic reading.
var wallFuncs = []string{"Date", "Unix", "UnixMilli", "UnixMicro", "Parse", "ParseInLocation"}

// checkWallClock keeps the time of day out of what decides: a clock that is set must move no deadline.
func checkWallClock(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		if !slices.ContainsFunc(monotonicOnly, func(dir string) bool { return within(s.dir(), dir) }) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, fn := callee(s, f)
			wall := pkg == "time" && slices.Contains(wallFuncs, fn)
			if pkg == "" {
				wall = slices.Contains(wallMethods, f.Sel.Name) || f.Sel.Name == "Round" && isZero(call.Args)
			}
			if wall {
				out = append(out, t.at(f.Pos(), "wall-clock", "%s leads to or from a time of day, which somebody may set: "+
					"reckon with instants that have a monotonic reading", f.Sel.Name))
			}
			return true
		})
	}
	return out
}

// isZero reports whether the one argument of a call is 0.
func isZero(args []ast.Expr) bool {
	if len(args) != 1 {
		return false
	}
	lit, ok := args[0].(*ast.BasicLit)
	return ok && lit.Value == "0"
}
