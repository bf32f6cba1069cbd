package tidy

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A fence is one fenced block of a document.
type fence struct {
	path  string
	line  int    // of the first line inside
	lang  string // first word after the opening backquotes
	text  string
	given string // from a comment `<!-- given: ... -->` on the line above
}

var (
	fenceOpen = regexp.MustCompile("^(\\s*)(```+)\\s*([a-zA-Z0-9]*)")
	givenMark = regexp.MustCompile(`^<!--\s*given:\s*(.*?)\s*-->$`)
)

// fences lists the blocks of all documents of the root module in order.
func (t *tree) fences() []fence {
	var out []fence
	for _, s := range t.sources {
		if strings.HasSuffix(s.path, ".md") &&
			!slices.ContainsFunc(t.nested, func(n string) bool { return within(s.dir(), n) }) {
			out = append(out, fencesOf(s.path, string(s.text))...)
		}
	}
	return out
}

func fencesOf(path, text string) []fence {
	var out []fence
	var open *fence
	var indent, ticks, above string
	for i, line := range strings.Split(text, "\n") {
		switch m := fenceOpen.FindStringSubmatch(line); {
		case open != nil && strings.HasPrefix(strings.TrimSpace(line), ticks) && strings.Trim(line, " `") == "":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += strings.TrimPrefix(line, indent) + "\n"
		case m != nil:
			indent, ticks = m[1], m[2]
			open = &fence{path: path, line: i + 2, lang: m[3]}
			if g := givenMark.FindStringSubmatch(above); g != nil {
				open.given = g[1]
			}
		}
		above = strings.TrimSpace(line)
	}
	if open != nil { // never closed: the document ends in code, as a reader sees it too
		out = append(out, *open)
	}
	return out
}

func TestFences(t *testing.T) {
	const text = "# T\n\n<!-- given: a int, b string -->\n```go\nx := 1\n```\n\n  ```sh\n  latchkey ls\n    more\n  ```\n" +
		"````text\n```go\nnot code\n```\n````\n```\nplain\n"
	got := fencesOf("d.md", text)
	want := []fence{
		{"d.md", 5, "go", "x := 1\n", "a int, b string"},
		{"d.md", 9, "sh", "latchkey ls\n  more\n", ""},
		{"d.md", 13, "text", "```go\nnot code\n```\n", ""},
		{"d.md", 18, "", "plain\n\n", ""},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
