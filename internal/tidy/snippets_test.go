package tidy

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// snippetLimit bounds one run of the go command on code of a document, a cold build included.
const snippetLimit = 5 * time.Minute

// A snippet is the Go code of one block, made into a package of its own.
type snippet struct {
	fence
	dir    string // folder that the package is given, relative to the root; it exists in an overlay only
	source string
	output string // what a program must print; nothing is asked when hasOutput is false

	program, hasOutput bool
}

// standardNames are packages of the standard library that a block may use without importing them.
var standardNames = []string{
	"context", "database/sql", "encoding/json", "errors", "fmt", "io", "log", "log/slog", "net", "net/http", "os",
	"os/exec", "os/signal", "path/filepath", "slices", "strconv", "strings", "sync", "sync/atomic", "syscall", "testing",
	"time",
}

// TestSnippets compiles every Go block of every document, and runs the programs that say what they print.
func TestSnippets(t *testing.T) {
	repo := loadRepo(t)
	snippets, errs := repo.snippets()
	for _, err := range errs {
		t.Error(err)
	}
	if err := compile(t, repoRoot(t), snippets); err != nil {
		t.Error(err)
	}
	for _, s := range snippets {
		if s.hasOutput {
			if err := runSnippet(t, repoRoot(t), s); err != nil {
				t.Error(err)
			}
		}
	}
	t.Logf("%d blocks of Go code in documents", len(snippets))
}

// snippets turns the Go blocks into packages.
func (t *tree) snippets() (out []snippet, errs []error) {
	imports := t.importable()
	fences := t.fences()
	for i, f := range fences {
		if f.lang != "go" {
			continue
		}
		s := snippet{fence: f, dir: fmt.Sprintf("zz_documents/block%d", i)}
		if err := s.wrap(imports); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", f.path, f.line, err))
			continue
		}
		if s.program && i+1 < len(fences) && fences[i+1].path == f.path && fences[i+1].lang == "output" {
			s.output, s.hasOutput = fences[i+1].text, true
		}
		out = append(out, s)
	}
	return out, errs
}

// importable maps package names to import paths: the public packages of this module, and common standard ones.
func (t *tree) importable() map[string]string {
	out := make(map[string]string)
	for _, p := range standardNames {
		out[p[strings.LastIndex(p, "/")+1:]] = p
	}
	for _, s := range t.product() {
		if isPublic(s.dir()) && s.dir() != "" && s.file.Name.Name != "main" {
			out[s.file.Name.Name] = t.module + "/" + s.dir()
		}
	}
	return out
}

// wrap makes a compilable file of a block: a program as it is, declarations under a package line, and anything else as
// the body of a function that has a context, what the document gives, and an error to return.
func (s *snippet) wrap(imports map[string]string) error {
	at := fmt.Sprintf("//line %s:%d\n", s.path, s.line)
	if file, err := parser.ParseFile(token.NewFileSet(), "", s.text, parser.ImportsOnly); err == nil {
		s.program = file.Name.Name == "main"
		s.source = at + s.text
		for _, spec := range file.Imports {
			if strings.Contains("/"+importPath(spec)+"/", "/internal/") {
				return fmt.Errorf("imports %s, which users cannot", importPath(spec))
			}
		}
		return nil
	}
	given := ""
	if s.given != "" {
		given = ", " + s.given
	}
	for _, form := range []struct{ before, after string }{
		{"", ""},
		{"func _(ctx context.Context" + given + ") error {\n", "\nreturn nil\n}\n"},
	} {
		code := form.before + at + s.text + form.after
		file, err := parser.ParseFile(token.NewFileSet(), "", "package snippet\n"+code, 0)
		if err != nil {
			continue
		}
		s.source = "package snippet\n" + importLines(file, imports) + code
		return nil
	}
	_, err := parser.ParseFile(token.NewFileSet(), s.path, "package snippet; func _() {\n"+at+s.text+"\n}", 0)
	return fmt.Errorf("is neither a program, declarations nor a body: %w", err)
}

// importLines imports the packages that a file uses by name and does not declare itself.
func importLines(file *ast.File, imports map[string]string) string {
	used, declared := make(map[string]bool), make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok {
				used[id.Name] = true
			}
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				if id, ok := l.(*ast.Ident); ok && n.Tok == token.DEFINE {
					declared[id.Name] = true
				}
			}
		case *ast.Field:
			for _, id := range n.Names {
				declared[id.Name] = true
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				declared[id.Name] = true
			}
		}
		return true
	})
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if p, ok := imports[name]; ok && !declared[name] {
			fmt.Fprintf(&b, "import %s %q\n", name, p)
		}
	}
	return b.String()
}

// overlay writes the sources where the go command finds them instead of files in the module, and returns its flag.
func overlay(t *testing.T, root string, snippets []snippet) string {
	t.Helper()
	temp := t.TempDir()
	replace := make(map[string]string)
	for i, s := range snippets {
		real := filepath.Join(temp, fmt.Sprintf("block%d.go", i))
		if err := os.WriteFile(real, []byte(s.source), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, filepath.FromSlash(s.dir), "main.go")] = real
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(temp, "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "-overlay=" + list
}

// compile builds all snippets together and keeps nothing.
func compile(t *testing.T, root string, snippets []snippet) error {
	t.Helper()
	if len(snippets) == 0 {
		return nil
	}
	args := []string{"build", "-o", os.DevNull, overlay(t, root, snippets)}
	for _, s := range snippets {
		args = append(args, "./"+s.dir)
	}
	if out, err := goCommand(t, root, args...); err != nil {
		return fmt.Errorf("code of documents does not compile: %w\n%s", err, out)
	}
	return nil
}

func runSnippet(t *testing.T, root string, s snippet) error {
	t.Helper()
	out, err := goCommand(t, root, "run", overlay(t, root, []snippet{s}), "./"+s.dir)
	if err != nil {
		return fmt.Errorf("%s:%d: the program failed: %w\n%s", s.path, s.line, err, out)
	}
	if got, want := strings.TrimSpace(out), strings.TrimSpace(s.output); got != want {
		return fmt.Errorf("%s:%d: the program printed\n%s\nwant\n%s", s.path, s.line, got, want)
	}
	return nil
}

func goCommand(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), snippetLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSnippetsAreRejected shows that broken code in a document does not pass, and that sound code of every form does.
func TestSnippetsAreRejected(t *testing.T) {
	const ticks = "```"
	doc := func(blocks ...string) fstest.MapFS {
		return fstest.MapFS{
			"go.mod":     {Data: []byte("module example.test/m\n\ngo 1.26\n")},
			"lease/a.go": {Data: []byte("// Package lease is small.\npackage lease\n\n// Key is one.\ntype Key string\n")},
			"README.md":  {Data: []byte("text\n\n" + strings.Join(blocks, "\n"))},
		}
	}
	block := func(lang, text string) string { return ticks + lang + "\n" + text + ticks + "\n" }
	program := "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"held\") }\n"
	for _, c := range []struct {
		name string
		fs   fstest.MapFS
		want string // pattern of the complaint; empty when there must be none
	}{
		{"a program", doc(block("go", program)), ""},
		{"a program and its output", doc(block("go", program), block("output", "held\n")), ""},
		{"declarations", doc(block("go", "// F uses.\nfunc F(ctx context.Context) lease.Key { return \"a\" }\n")), ""},
		{"a body", doc("<!-- given: key lease.Key -->\n" + block("go", "if key == \"\" {\n\treturn errors.New(\"empty\")\n}\n<-ctx.Done()\n")), ""},
		{"a body with a return", doc(block("go", "return ctx.Err()\n")), ""},
		{"another language", doc(block("text", "x y z\n")), ""},
		{"wrong output", doc(block("go", program), block("output", "free\n")), `README.md:4: the program printed\s+held\s+want\s+free`},
		{"a name that is not there", doc(block("go", "x := lease.Gone\n_ = x\n")), `README.md:4: undefined: lease.Gone`},
		{"an unused variable", doc("\n" + block("go", "x := 1\n")), `README.md:5: declared and not used: x`},
		{"a syntax error", doc(block("go", "x := := 1\n")), `README.md:4: is neither`},
		{"an internal package", doc(block("go", "package main\n\nimport _ \"example.test/m/internal/x\"\n")), `which users cannot`},
		{"a program that fails", doc(block("go", "package main\n\nfunc main() { panic(\"lost\") }\n"), block("output", "")), `the program failed`},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.CopyFS(root, c.fs); err != nil {
				t.Fatal(err)
			}
			got := complaint(t, root, c.fs)
			if c.want == "" && got != "" || !regexp.MustCompile(c.want).MatchString(got) {
				t.Errorf("got %q, want a match of %q", got, c.want)
			}
		})
	}
}

// complaint is the first thing that the checks of one repository's documents say.
func complaint(t *testing.T, root string, files fstest.MapFS) string {
	t.Helper()
	repo, err := loadTree(files)
	if err != nil {
		t.Fatal(err)
	}
	snippets, errs := repo.snippets()
	if len(errs) > 0 {
		return errs[0].Error()
	}
	if err := compile(t, root, snippets); err != nil {
		return err.Error()
	}
	for _, s := range snippets {
		if s.hasOutput {
			if err := runSnippet(t, root, s); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}
