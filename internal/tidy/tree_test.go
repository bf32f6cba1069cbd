package tidy

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A source is one text file of the repository. Its path is relative to the root, with forward slashes.
type source struct {
	path string
	text []byte
	file *ast.File // nil when it is not Go
	test bool      // a _test.go file
}

// dir is the folder of the file, "" at the root.
func (s *source) dir() string {
	if d := path.Dir(s.path); d != "." {
		return d
	}
	return ""
}

// A tree is every text file that the rules look at.
type tree struct {
	fset    *token.FileSet
	module  string // module path of the root, from go.mod
	sources []*source
	nested  []string // folders that hold a go.mod of their own
}

// A finding is one broken rule. Every message says why the rule is there, or what to do.
type finding struct {
	path string
	line int
	rule string
	what string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.rule, f.what)
}

// textNames are the names and endings of files that people write. Everything else is data.
var textNames = []string{
	".go", ".md", ".sh", ".py", ".ts", ".js", ".mjs", ".rs", ".java", ".html", ".css", ".yaml", ".yml", ".json", ".sql", ".lua",
	"Makefile", "/run", "scripts/tools", "scripts/fuzz", "go.mod",
}

// skippedDirs are not walked: version control, dependencies of other languages, and what builds leave behind.
var skippedDirs = []string{".git", "node_modules", "__pycache__", "target", "bin",
	"build", "dist", ".venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"}

// loadTree reads and parses every text file below root. Anything under a folder named testdata is data, golden files
// and planted defects among it.
func loadTree(root fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet()}
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains(skippedDirs, d.Name()) || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.ContainsFunc(textNames, func(n string) bool { return strings.HasSuffix(p, n) }) {
			return nil
		}
		return t.add(root, p)
	})
	if err != nil {
		return nil, err
	}
	for _, s := range t.sources {
		if s.path == "go.mod" {
			t.module = moduleName(s.text)
		} else if path.Base(s.path) == "go.mod" {
			t.nested = append(t.nested, s.dir())
		}
	}
	if t.module == "" {
		return nil, fmt.Errorf("tidy: no go.mod with a module line at the root")
	}
	return t, nil
}

func (t *tree) add(root fs.FS, p string) error {
	text, err := fs.ReadFile(root, p)
	if err != nil {
		return err
	}
	s := &source{path: p, text: text, test: strings.HasSuffix(p, "_test.go")}
	if strings.HasSuffix(p, ".go") {
		s.file, err = parser.ParseFile(t.fset, p, text, parser.ParseComments)
		if err != nil {
			return fmt.Errorf("tidy: %w", err)
		}
	}
	t.sources = append(t.sources, s)
	return nil
}

// rootGo yields the Go files of the root module: the code that the rules of the design are about.
func (t *tree) rootGo() []*source {
	var out []*source
	for _, s := range t.sources {
		if s.file != nil && !slices.ContainsFunc(t.nested, func(n string) bool { return within(s.dir(), n) }) {
			out = append(out, s)
		}
	}
	return out
}

// product yields the Go files of the root module that are not tests.
func (t *tree) product() []*source {
	return slices.DeleteFunc(t.rootGo(), func(s *source) bool { return s.test })
}

// line is the line of a position.
func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// at makes a finding at a position.
func (t *tree) at(p token.Pos, rule, format string, args ...any) finding {
	pos := t.fset.Position(p)
	return finding{path: pos.Filename, line: pos.Line, rule: rule, what: fmt.Sprintf(format, args...)}
}

// within says whether a folder is, or lies below, another.
func within(dir, parent string) bool {
	return dir == parent || parent == "" || strings.HasPrefix(dir, parent+"/")
}

// isPublic says whether users can import the package of a folder.
func isPublic(dir string) bool {
	for _, part := range strings.Split(dir, "/") {
		if slices.Contains([]string{"internal", "cmd", "examples", "scripts", "bench"}, part) {
			return false
		}
	}
	return true
}

func moduleName(gomod []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(gomod))
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// importPath is the unquoted path of an import.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // cannot be: it was parsed
	}
	return p
}

// importName is the name under which a file uses an import: its alias, or the last element that is not a version.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	p := importPath(spec)
	base := path.Base(p)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(p))
	}
	return base
}

// callee splits a call pkg.Name(...) of an imported package into import path and name; both are empty otherwise.
func callee(s *source, e ast.Expr) (pkg, name string) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", ""
	}
	for _, spec := range s.file.Imports {
		if importName(spec) == x.Name {
			return importPath(spec), sel.Sel.Name
		}
	}
	return "", ""
}

// funcName names a function for people: Func, or Type.Method.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	return receiver(d) + "." + d.Name.Name
}

// receiver is the name of a method's type, without star and type parameters.
func receiver(d *ast.FuncDecl) string {
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// repoRoot is the folder of the root module, two levels above this package.
func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// loadRepo parses this repository.
func loadRepo(t *testing.T) *tree {
	t.Helper()
	repo, err := loadTree(os.DirFS(repoRoot(t)))
	if err != nil {
		t.Fatal(err)
	}
	return repo
}
