package main

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/rmap"
)

func TestScreenText(t *testing.T) {
	for text, want := range map[string]string{
		"plain é 日本":       "plain é 日本\n",
		"two\nlines\t x\n": "two\nlines\t x\n",
		"":                 `""` + "\n",
		"\x1b[31mred":      `"\x1b[31mred"` + "\n",
		"a\rb":             `"a\rb"` + "\n",
		"\xff":             `"\xff"` + "\n",
		"csi \u009b31m":    `"csi \u009b31m"` + "\n",
		"exe\u202egnp":     `"exe\u202egnp"` + "\n",
	} {
		if got := screenText(text); got != want {
			t.Errorf("screenText(%+q) = %+q, want %+q", text, got, want)
		}
	}
}

func TestPreview(t *testing.T) {
	long := strings.Repeat("0123456789", 20)
	for _, c := range []struct {
		value rmap.Value
		want  string
	}{
		{rmap.Value{Kind: rmap.Plain, Data: "text"}, "text"},
		{rmap.Value{Kind: rmap.Plain}, `""`},
		{rmap.Value{Kind: rmap.Plain, Data: long}, long[:70] + "…"},
		{rmap.Value{Kind: rmap.Plain, Data: strings.Repeat("a ", 30) + long}, strings.Repeat("a ", 30) + long[:10] + "…"},
		{rmap.Value{Kind: rmap.Integer, Data: "-7"}, "-7"},
		{rmap.Value{Kind: rmap.List}, "[]"},
		{rmap.Value{Kind: rmap.List, Data: rmap.EncodeList([]string{"a", "", "b\n"})}, `[a, "", "b\n"]`},
		{rmap.Value{Kind: rmap.List, Data: rmap.EncodeList([]string{long, "b"})}, "[" + long[:70] + "…"},
		{rmap.Value{Kind: rmap.List, Data: "damaged"}, "[damaged]"},
	} {
		if got := preview(c.value); got != c.want {
			t.Errorf("preview of %q is %q, want %q", c.value.Data, got, c.want)
		}
	}
}

// Whatever a value is, its preview is one line that a terminal shows as it is, no wider than it may be.
func FuzzPreview(f *testing.F) {
	f.Add(byte('p'), "\x1b[31m\xff")
	f.Add(byte('l'), rmap.EncodeList([]string{strings.Repeat("é", 100), "\u202e", ""}))
	f.Add(byte('l'), "3:ab")
	f.Add(byte('i'), "日本"+strings.Repeat("語", 60))
	f.Add(byte('x'), strings.Repeat("a ", 100)+"\x80")
	f.Fuzz(func(t *testing.T, kind byte, data string) {
		v := rmap.Value{Kind: rmap.Kind(kind), Data: data}
		for _, got := range []string{preview(v), clipped(data, previewBytes), kindName(v.Kind), sizeOf(v)} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) ||
				displayWidth(got) > previewWidth {
				t.Errorf("%q of kind %q is shown as %q, %d columns", data, kind, got, displayWidth(got))
			}
		}
		for _, screen := range []bool{false, true} {
			text := valueText(v, screen)
			if screen && strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
				t.Errorf("%q of kind %q is printed on a terminal as %q", data, kind, text)
			}
		}
	})
}
