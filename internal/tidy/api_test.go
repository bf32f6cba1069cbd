package tidy

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write the golden list of the exported API anew")

const apiFile = "testdata/api.txt"

// TestAPI compares the exported API of the public packages with a golden list, so that no name is added, changed or
// dropped without a line in a diff that somebody reads.
func TestAPI(t *testing.T) {
	got := exported(loadRepo(t))
	if *update {
		if err := os.WriteFile(apiFile, []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range diff(strings.Split(strings.TrimSpace(string(text)), "\n"), got) {
		t.Error(change)
	}
	if t.Failed() {
		t.Logf("when this is meant: go test ./internal/tidy -run API -update")
	}
}

// diff lists what is in only one of two lists.
func diff(want, got []string) []string {
	var out []string
	for _, w := range want {
		if !slices.Contains(got, w) {
			out = append(out, "gone: "+w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			out = append(out, "new: "+g)
		}
	}
	return out
}

// exported lists the API, one line for each name, field and method of an interface, in order.
func exported(t *tree) []string {
	var out []string
	for _, s := range t.product() {
		if !isPublic(s.dir()) || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			for _, line := range t.exportedDecl(d) {
				out = append(out, s.file.Name.Name+": "+line)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (t *tree) exportedDecl(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d)) {
			return nil
		}
		return []string{t.source(&ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type})}
	case *ast.GenDecl:
		var out []string
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				out = append(out, t.exportedValues(d.Tok, spec)...)
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					out = append(out, t.exportedType(spec)...)
				}
			}
		}
		return out
	}
	return nil
}

func (t *tree) exportedValues(tok token.Token, spec *ast.ValueSpec) []string {
	var out []string
	for i, n := range spec.Names {
		if !n.IsExported() {
			continue
		}
		line := tok.String() + " " + n.Name
		if spec.Type != nil {
			line += " " + t.source(spec.Type)
		}
		if i < len(spec.Values) && tok == token.CONST {
			line += " = " + t.source(spec.Values[i])
		}
		out = append(out, line)
	}
	return out
}

func (t *tree) exportedType(spec *ast.TypeSpec) []string {
	head := "type " + spec.Name.Name
	var params *ast.FieldList
	if params = spec.TypeParams; params != nil {
		head += t.fields(params, "[", "]")
	}
	if spec.Assign.IsValid() {
		head += " ="
	}
	switch x := spec.Type.(type) {
	case *ast.StructType:
		return append([]string{head + " struct"}, t.members(spec.Name.Name, x.Fields)...)
	case *ast.InterfaceType:
		return append([]string{head + " interface"}, t.members(spec.Name.Name, x.Methods)...)
	default:
		return []string{head + " " + t.source(x)}
	}
}

// members lists exported fields or methods, embedded ones by their type.
func (t *tree) members(of string, list *ast.FieldList) []string {
	var out []string
	for _, f := range list.List {
		if len(f.Names) == 0 {
			out = append(out, fmt.Sprintf("type %s: %s", of, t.source(f.Type)))
		}
		for _, n := range f.Names {
			if !n.IsExported() {
				continue
			}
			kind := t.source(f.Type)
			if _, ok := f.Type.(*ast.FuncType); ok {
				kind = strings.TrimPrefix(kind, "func")
			} else {
				kind = " " + kind
			}
			out = append(out, fmt.Sprintf("type %s: %s%s", of, n.Name, kind))
		}
	}
	return out
}

func (t *tree) fields(list *ast.FieldList, open, shut string) string {
	var parts []string
	for _, f := range list.List {
		var names []string
		for _, n := range f.Names {
			names = append(names, n.Name)
		}
		parts = append(parts, strings.Join(names, ", ")+" "+t.source(f.Type))
	}
	return open + strings.Join(parts, ", ") + shut
}

// source prints a node on one line.
func (t *tree) source(n any) string {
	var b bytes.Buffer
	if err := format.Node(&b, t.fset, n); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestAPINoticesChanges(t *testing.T) {
	load := func(text string) []string {
		t.Helper()
		repo, err := loadTree(fstest.MapFS{
			"go.mod":                {Data: []byte("module example.test/m\n")},
			"lease/a.go":            {Data: []byte("package lease\n" + text)},
			"lease/a_test.go":       {Data: []byte("package lease\n\nfunc InTest() {}\n")},
			"internal/wire/a.go":    {Data: []byte("package wire\n\nfunc Hidden() {}\n")},
			"cmd/latchkey/a.go":     {Data: []byte("package main\n\nfunc Hidden() {}\n")},
			"lease/leaselocal/a.go": {Data: []byte("package leaselocal\n\nfunc Open[T any](dir string) (t T, err error) { return }\n")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return exported(repo)
	}
	const before = `
// Lease is one.
type Lease struct {
	Key    string // the key
	hidden int
}

type Service interface {
	Open(name string) error
}

const (
	Busy Code = "busy"
	quiet     = 1
)

func (l *Lease) Release() error { return nil }
func (l *Lease) private()       {}
func (h hidden) Exported()      {}
`
	base := load(before)
	want := []string{
		"lease: const Busy Code = \"busy\"",
		"lease: func (l *Lease) Release() error",
		"lease: type Lease struct",
		"lease: type Lease: Key string",
		"lease: type Service interface",
		"lease: type Service: Open(name string) error",
		"leaselocal: func Open[T any](dir string) (t T, err error)",
	}
	if !slices.Equal(base, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(base, "\n"), strings.Join(want, "\n"))
	}
	for name, change := range map[string][2]string{
		"a changed signature": {"Release() error", "Release(force bool) error"},
		"a dropped field":     {"\tKey    string // the key\n", ""},
		"a renamed method":    {"Open(name", "Start(name"},
		"a changed code":      {`"busy"`, `"occupied"`},
		"a new function":      {"// Lease is one.\n", "func New() {}\n\n// Lease is one.\n"},
	} {
		if len(diff(base, load(strings.Replace(before, change[0], change[1], 1)))) == 0 {
			t.Errorf("%s went unnoticed", name)
		}
	}
	if d := diff(base, load(strings.Replace(before, "private()", "other()", 1))); len(d) > 0 {
		t.Errorf("a change of what is not exported was reported: %v", d)
	}
}
