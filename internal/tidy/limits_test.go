package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// Limits of size. They are where reading starts to hurt, not what to aim at: that is half of each.
const (
	maxFileLines = 500
	maxFuncLines = 80
	maxMethods   = 8 // of an interface
)

// shapeNames say what a folder looks like inside, not what it is for.
var shapeNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "types", "models", "shared", "lib"}

func checkFileLength(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines {
			out = append(out, finding{s.path, maxFileLines + 1, "file-length",
				fmt.Sprintf("%d lines, at most %d: split it where a reader would pause", n, maxFileLines)})
		}
	}
	return out
}

func checkFuncLength(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := t.line(f.End()) - t.line(f.Pos()) + 1; n > maxFuncLines {
				out = append(out, t.at(f.Pos(), "func-length", "%s has %d lines, at most %d: name its parts",
					funcName(f), n, maxFuncLines))
			}
		}
	}
	return out
}

func checkFolders(t *tree) []finding {
	var out []finding
	seen := make(map[string]bool)
	for _, s := range t.sources {
		for _, part := range strings.Split(s.dir(), "/") {
			if slices.Contains(shapeNames, part) && !seen[s.dir()] {
				seen[s.dir()] = true
				out = append(out, finding{s.path, 1, "folder-name",
					fmt.Sprintf("a folder named %q says nothing of what it is for, and so collects everything", part)})
			}
		}
	}
	return out
}

func checkInterfaces(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				if n := countMethods(t, s, i, 0); n > maxMethods {
					out = append(out, t.at(spec.Pos(), "interface-size", "%s has %d methods, at most %d: whoever "+
						"needs it needs less of it", spec.Name.Name, n, maxMethods))
				}
			}
			return true
		})
	}
	return out
}

// countMethods counts methods, those of embedded interfaces of the same package included. An embedded interface of
// another package counts as one.
func countMethods(t *tree, s *source, i *ast.InterfaceType, depth int) int {
	n := 0
	for _, m := range i.Methods.List {
		if len(m.Names) > 0 {
			n += len(m.Names)
			continue
		}
		embedded := localInterface(t, s, m.Type)
		if embedded == nil || depth > maxMethods {
			n++
			continue
		}
		n += countMethods(t, s, embedded, depth+1)
	}
	return n
}

func localInterface(t *tree, from *source, e ast.Expr) *ast.InterfaceType {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	for _, s := range t.product() {
		if s.dir() != from.dir() {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				ts := spec.(*ast.TypeSpec)
				if i, ok := ts.Type.(*ast.InterfaceType); ok && ts.Name.Name == id.Name {
					return i
				}
			}
		}
	}
	return nil
}

// checkDocs demands a comment on every exported name of a package, and one comment on the package.
func checkDocs(t *tree) []finding {
	var out []finding
	packages := make(map[string]*source)
	documented := make(map[string]bool)
	for _, s := range t.product() {
		if packages[s.dir()] == nil {
			packages[s.dir()] = s
		}
		if s.file.Doc != nil {
			documented[s.dir()] = true
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && (d.Recv == nil || ast.IsExported(receiver(d))) {
					out = append(out, t.at(d.Pos(), "doc", "exported %s has no comment: say what it does, its errors, "+
						"and what a caller must know", funcName(d)))
				}
			case *ast.GenDecl:
				out = append(out, t.undocumented(d)...)
			}
		}
	}
	for dir, s := range packages {
		if !documented[dir] {
			out = append(out, t.at(s.file.Package, "doc", "package %s has no package comment", s.file.Name.Name))
		}
	}
	return out
}

// undocumented finds exported types, constants and variables without a comment of their own, beside them or above
// their group.
func (t *tree) undocumented(d *ast.GenDecl) []finding {
	var out []finding
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if !spec.Name.IsExported() {
				continue
			}
			if d.Doc == nil && spec.Doc == nil {
				out = append(out, t.at(spec.Pos(), "doc", "exported type %s has no comment", spec.Name.Name))
			}
			if i, ok := spec.Type.(*ast.InterfaceType); ok {
				out = append(out, t.silentMethods(spec.Name.Name, d.Doc.Text()+spec.Doc.Text(), i)...)
			}
		case *ast.ValueSpec:
			if d.Doc != nil || spec.Doc != nil || spec.Comment != nil {
				continue
			}
			for _, n := range spec.Names {
				if n.IsExported() {
					out = append(out, t.at(n.Pos(), "doc", "exported %s has no comment", n.Name))
				}
			}
		}
	}
	return out
}

// silentMethods finds methods of an exported interface that no comment tells about: neither one of their own, nor that
// of the interface, by name, nor that of the method right above.
func (t *tree) silentMethods(of, doc string, i *ast.InterfaceType) []finding {
	var out []finding
	covered, last := false, 0
	for _, m := range i.Methods.List {
		covered = m.Doc != nil || m.Comment != nil || covered && t.line(m.Pos()) == last+1
		last = t.line(m.End())
		if len(m.Names) > 0 && !covered && !strings.Contains(doc, m.Names[0].Name) {
			out = append(out, t.at(m.Pos(), "doc", "method %s of the exported interface %s has no comment", m.Names[0].Name, of))
		}
	}
	return out
}
