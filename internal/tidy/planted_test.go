package tidy

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A case holds a small repository in one file, with what must be found in it. Lines before the first file:
//
//	want rule | path | text of the line
//
// Exactly the wanted findings must come up, so everything else in the files shows what a rule leaves alone.
func TestPlantedDefects(t *testing.T) {
	cases, err := filepath.Glob("testdata/planted/*.txt")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases found: %v", err)
	}
	planted := make(map[string]int)
	for _, c := range cases {
		t.Run(filepath.Base(c), func(t *testing.T) {
			text, err := os.ReadFile(c)
			if err != nil {
				t.Fatal(err)
			}
			wants, files := unpack(t, string(text))
			compareFindings(t, wants, files, planted)
		})
	}
	t.Run("generated", func(t *testing.T) {
		wants, files := generated()
		compareFindings(t, wants, files, planted)
	})
	for _, rule := range slices.Sorted(maps.Keys(planted)) {
		if planted[rule] < 3 {
			t.Errorf("only %d defects are planted for rule %s, at least 3 must be", planted[rule], rule)
		}
	}
	if got, want := len(planted), 23; got != want {
		t.Errorf("defects are planted for %d rules, want %d: %v", got, want, slices.Sorted(maps.Keys(planted)))
	}
}

// compareFindings runs all rules over a small repository.
func compareFindings(t *testing.T, wants []string, files fstest.MapFS, planted map[string]int) {
	t.Helper()
	repo, err := loadTree(files)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rules {
		for _, f := range r.check(repo) {
			planted[f.rule]++
			got = append(got, fmt.Sprintf("%s:%d %s", f.path, f.line, f.rule))
		}
	}
	slices.Sort(got)
	slices.Sort(wants)
	for _, w := range wants {
		if !slices.Contains(got, w) {
			t.Errorf("not found: %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(wants, g) {
			t.Errorf("found but not planted: %s", g)
		}
	}
	if len(got) != len(wants) && !t.Failed() {
		t.Errorf("found %d, want %d:\n%s", len(got), len(wants), strings.Join(got, "\n"))
	}
}

// unpack splits a case into what it wants and its files.
func unpack(t *testing.T, text string) (wants []string, files fstest.MapFS) {
	t.Helper()
	files = make(fstest.MapFS)
	var file string
	var declared [][]string
	for _, line := range strings.SplitAfter(text, "\n") {
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			file = strings.TrimSuffix(strings.TrimSpace(name), " --")
			files[file] = &fstest.MapFile{}
		} else if file != "" {
			files[file].Data = append(files[file].Data, line...)
		} else if w, ok := strings.CutPrefix(line, "want "); ok {
			parts := strings.SplitN(strings.TrimSpace(w), " | ", 3)
			if len(parts) != 3 {
				t.Fatalf("not `want rule | path | text`: %s", line)
			}
			declared = append(declared, parts)
		}
	}
	for _, d := range declared {
		f := files[d[1]]
		if f == nil {
			t.Fatalf("want names %s, which is not in the case", d[1])
		}
		at := bytes.Index(f.Data, []byte(d[2]))
		if at < 0 {
			t.Fatalf("%s has no line with %q", d[1], d[2])
		}
		wants = append(wants, fmt.Sprintf("%s:%d %s", d[1], 1+bytes.Count(f.Data[:at], []byte("\n")), d[0]))
	}
	return wants, files
}

// generated plants what would be tedious, or against the rules, to keep in a file: long files and functions, and the
// words that no file may contain.
func generated() (wants []string, files fstest.MapFS) {
	files = fstest.MapFS{"go.mod": {Data: []byte("module example.test/m\n")}}
	put := func(path, text string) { files[path] = &fstest.MapFile{Data: []byte(text)} }

	for i, lines := range []int{maxFileLines, maxFileLines + 1, maxFileLines + 50, 10 * maxFileLines} {
		path := fmt.Sprintf("lease/file%d.go", i)
		put(path, "// Package lease is long.\npackage lease\n"+strings.Repeat("\n", lines-2))
		if lines > maxFileLines {
			wants = append(wants, fmt.Sprintf("%s:%d file-length", path, maxFileLines+1))
		}
	}
	put("lease/long_test.go", "package lease\n"+strings.Repeat("\n", 2*maxFileLines))

	long := func(head string, lines int) string {
		return head + " {\n" + strings.Repeat("\tprintln()\n", lines-2) + "}\n"
	}
	put("stm/funcs.go", "// Package stm has long functions.\npackage stm\n\n"+long("func fits()", maxFuncLines))
	put("stm/one.go", "package stm\n\n"+long("func one()", maxFuncLines+1))
	put("stm/two.go", "package stm\n\ntype v[T any] struct{}\n\n"+long("func (x *v[T]) two()", 2*maxFuncLines))
	put("stm/three.go", "package stm\n\n"+long("func three(a int,\n\tb int)", maxFuncLines))
	wants = append(wants, "stm/one.go:3 func-length", "stm/two.go:5 func-length", "stm/three.go:3 func-length")

	for i, word := range []string{"TO" + "DO: later", "call FIX" + "ME()", "# X" + "XX", "good enough for " + "now.", "For " + "now it is"} {
		path := fmt.Sprintf("docs/word%d.md", i)
		put(path, "first line\n\n"+word+"\n")
		wants = append(wants, path+":3 unfinished")
	}
	put("docs/fine.md", "mktemp /tmp/aXX"+"XXXX, for nowhere, a to"+"do list, see /wo"+"rkers/ and network/wo"+"rk/\n")
	for i, text := range []string{"see /wo" + "rk/main", "from `../sha" + "red/x`", "(/wo" + "rk/brief)"} {
		path := fmt.Sprintf("docs/voice%d.md", i)
		put(path, text+"\n")
		wants = append(wants, path+":1 own-voice")
	}
	return wants, files
}

func TestTreeNeedsAModule(t *testing.T) {
	if _, err := loadTree(fstest.MapFS{"a.go": {Data: []byte("package a\n")}}); err == nil {
		t.Error("a tree without go.mod was loaded")
	}
	if _, err := loadTree(fstest.MapFS{"go.mod": {Data: []byte("module m\n")}, "a.go": {Data: []byte("package\n")}}); err == nil {
		t.Error("a file that does not parse was loaded")
	}
}
