package tidy

import (
	"bytes"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// formatOwners are the scripts that write the format of replicated maps. Every other one asks the first of them to.
var formatOwners = []string{"rmap/rmapredis/lua/prelude.lua", "rmap/rmapredis/lua/set.lua"}

// composers put a body behind the prelude: the first for everybody, the second inside of its package.
var composers = []struct{ dir, name string }{{"", "NewScript"}, {"rmap/rmapredis", "source"}}

// broadcasters may write a hash and publish in one script, because what they keep is no replicated map.
var broadcasters = []struct{ path, why string }{
	{"hotcache/hotcacheredis/lua/prelude.lua", "it wakes those who wait for a load, which carries no data"},
	{"hotcache/hotcacheredis/lua/invalidate.lua", "floors of a cache are forgotten on purpose, and its broadcasts carry no data"},
}

var (
	callsRedis  = regexp.MustCompile(`redis\s*\.\s*p?call\s*\(|\bcall\s*\(\s*['"][A-Z]+['"]`)
	usesPrelude = regexp.MustCompile(`\bmap\s*\.\s*((get|touch|set|delete|clear|destroy|add|fail)\s*\(|now\b)`)
	writesHash  = regexp.MustCompile(`(?i)['"](HSET|HSETNX|HMSET|HDEL|HINCRBY|HINCRBYFLOAT)['"]`)
	writesHead  = regexp.MustCompile(`(?i)['"](HSET|HSETNX|HMSET|HDEL|HINCRBY|HINCRBYFLOAT)['"]\s*,[^,()]+,\s*(''|"")`)
	publishes   = regexp.MustCompile(`(?i)['"](S?PUBLISH|XADD)['"]`)
	namesOfMaps = regexp.MustCompile(`latchkey:map:|['"}](:due|:log|:changes)['"]`)
)

// A script is Lua in a file of its own or in a Go string.
type script struct {
	at     finding // its place, without a rule
	text   string
	behind bool // it goes through one of the composers, or is in a test, which would see that it does not
}

// checkScripts refuses scripts that write the format of replicated maps by hand, which no replica would understand or
// hear of, and such that use the functions of the prelude without it, which would fail when they run.
func checkScripts(t *tree) []finding {
	var out []finding
	for _, s := range t.scripts() {
		say := func(rule, what string) {
			f := s.at
			f.rule, f.what = rule, what
			out = append(out, f)
		}
		if usesPrelude.MatchString(s.text) && !s.behind {
			say("script-prelude", "uses map, which is there behind the prelude only: give the script to rmapredis.NewScript")
		}
		if slices.Contains(formatOwners, s.at.path) || !callsRedis.MatchString(s.text) {
			continue
		}
		allowed := slices.ContainsFunc(broadcasters, func(b struct{ path, why string }) bool { return b.path == s.at.path })
		switch {
		case writesHead.MatchString(s.text), namesOfMaps.MatchString(s.text):
			say("script-format", "touches what belongs to a replicated map: use map.set and the like behind rmapredis.NewScript")
		case writesHash.MatchString(s.text) && publishes.MatchString(s.text) && !allowed:
			say("script-format", "keeps data and broadcasts it by hand: that is a replicated map; use map.set and the like "+
				"behind rmapredis.NewScript, or name it among the broadcasters in internal/tidy/scripts_test.go")
		}
	}
	return out
}

// scripts returns all Lua of the tree.
func (t *tree) scripts() []script {
	behind := t.behindComposers()
	var out []script
	for _, s := range t.sources {
		if strings.HasSuffix(s.path, ".lua") {
			own := slices.Contains(formatOwners, s.path)
			out = append(out, script{finding{path: s.path, line: 1}, string(s.text), own || behind[s.path]})
		}
	}
	for _, s := range t.rootGo() {
		given := make(map[ast.Expr]bool)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if composes(s, n) {
					for _, arg := range n.Args {
						given[arg] = true
					}
				}
			case *ast.ValueSpec:
				for i, v := range n.Values {
					given[v] = given[v] || (i < len(n.Names) && behind[s.dir()+"."+n.Names[i].Name])
				}
			case ast.Expr:
				text, ok := constant(n)
				if !ok {
					return true
				}
				if callsRedis.MatchString(text) || usesPrelude.MatchString(text) {
					out = append(out, script{t.at(n.Pos(), "", ""), text, given[n] || s.test})
				}
				return false
			}
			return true
		})
	}
	return out
}

// behindComposers returns the variables that are given to a composer, as "dir.name", and the files embedded in them.
func (t *tree) behindComposers() map[string]bool {
	out := make(map[string]bool)
	for _, s := range t.rootGo() {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && composes(s, call) {
				for _, arg := range call.Args {
					if id, ok := arg.(*ast.Ident); ok {
						out[s.dir()+"."+id.Name] = true
					}
				}
			}
			return true
		})
	}
	for _, s := range t.rootGo() {
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				if len(v.Names) == 1 && out[s.dir()+"."+v.Names[0].Name] {
					for _, file := range embeds(g, v) {
						out[path.Join(s.dir(), file)] = true
					}
				}
			}
		}
	}
	return out
}

// embeds returns the files that a variable embeds.
func embeds(g *ast.GenDecl, v *ast.ValueSpec) []string {
	var out []string
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if files, ok := strings.CutPrefix(c.Text, "//go:embed "); ok {
				out = append(out, strings.Fields(files)...)
			}
		}
	}
	return out
}

func composes(s *source, call *ast.CallExpr) bool {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
	}
	return slices.ContainsFunc(composers, func(c struct{ dir, name string }) bool {
		return c.name == name && within(s.dir(), c.dir)
	})
}

// constant returns the text of a string, or of several that are put together, as far as it is in the source.
func constant(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		var text bytes.Buffer
		found := false
		for _, side := range []ast.Expr{e.X, e.Y} {
			part, ok := constant(side)
			text.WriteString(part)
			found = found || ok
		}
		return text.String(), found
	}
	return "", false
}
