package tidy

import (
	"bytes"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// checkSkip demands that a skipped test says why. The receiver may have any name.
func checkSkip(t *tree) []finding {
	var out []finding
	for _, s := range t.rootGo() {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			silent := sel.Sel.Name == "SkipNow" && len(call.Args) == 0
			if sel.Sel.Name == "Skip" || sel.Sel.Name == "Skipf" {
				silent = s.test && (len(call.Args) == 0 || emptyString(call.Args[0]))
			}
			if silent {
				out = append(out, t.at(call.Pos(), "skip-reason", "a skipped test says why, so that the report can"))
			}
			return true
		})
	}
	return out
}

func emptyString(e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING && strings.TrimSpace(strings.Trim(lit.Value, "\"`")) == ""
}

// words are what no file may contain. They are put together here so that this file does not contain them.
var words = []struct {
	rule, why string
	pattern   *regexp.Regexp
}{
	{"unfinished", "what is written down as unfinished stays so: finish it, or leave it out",
		regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)},
	{"unfinished", "what is written down as unfinished stays so: finish it, or leave it out",
		regexp.MustCompile(`(?i)\bfor ` + `now\b`)},
	{"own-voice", "a path of the machine that it was written on means nothing to a reader",
		regexp.MustCompile(`(^|[\s"'(` + "`" + `])/wo` + `rk/|\.\./sha` + `red\b`)},
}

func checkWords(t *tree) []finding {
	var out []finding
	for _, s := range t.sources {
		for i, line := range bytes.Split(s.text, []byte("\n")) {
			for _, w := range words {
				if found := w.pattern.Find(line); found != nil {
					out = append(out, finding{s.path, i + 1, w.rule, strconv.Quote(strings.TrimSpace(string(found))) + ": " + w.why})
				}
			}
		}
	}
	return out
}

// verb matches one formatting verb; its last letter is what matters. Explicit argument indexes are not used here.
var verb = regexp.MustCompile(`%[-+# 0]*[0-9*]*(?:\.[0-9*]*)?([a-zA-Z%])`)

// checkErrorf finds errors that lose their identity on the way up: formatted with %v or %s instead of wrapped.
func checkErrorf(t *tree) []finding {
	var out []finding
	for _, s := range t.product() {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			if pkg, fn := callee(s, call.Fun); pkg != "fmt" || fn != "Errorf" {
				return true
			}
			for i, v := range verbs(call.Args[0]) {
				if i+1 < len(call.Args) && isError(call.Args[i+1]) && v != "w" {
					out = append(out, t.at(call.Args[i+1].Pos(), "errorf-wrap", "wrap the error with %%w, not %%%s, so that "+
						"callers can still tell what it is", v))
				}
			}
			return true
		})
	}
	return out
}

// verbs lists the verbs of a format, concatenated literals included; a computed format has none.
func verbs(e ast.Expr) []string {
	var out []string
	for _, m := range verb.FindAllStringSubmatch(literal(e), -1) {
		if m[1] != "%" {
			out = append(out, m[1])
		}
	}
	return out
}

// literal is the text of a string literal or of several added up.
func literal(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return literal(x.X) + literal(x.Y)
	case *ast.ParenExpr:
		return literal(x.X)
	}
	return ""
}

// isError guesses from the name whether an argument is an error; err.Error() is one too, flattened by hand.
func isError(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name == "err" || strings.HasSuffix(x.Name, "Err")
	case *ast.SelectorExpr:
		return x.Sel.Name == "err" || strings.HasPrefix(x.Sel.Name, "Err")
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && len(x.Args) == 0 && slices.Contains([]string{"Error", "Err"}, sel.Sel.Name) && isErrorSource(sel)
	}
	return false
}

// isErrorSource tells err.Error() and ctx.Err() from methods that merely share the name.
func isErrorSource(sel *ast.SelectorExpr) bool {
	return sel.Sel.Name == "Err" || isError(sel.X)
}
