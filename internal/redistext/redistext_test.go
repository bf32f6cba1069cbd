package redistext

import (
	"math"
	"strings"
	"testing"
)

// TestNumbers: what is written is read, and nothing else is.
func TestNumbers(t *testing.T) {
	for _, n := range []uint64{0, 1, 0x0123456789abcdef, math.MaxUint64, Random()} {
		f := Fields{}
		if got := f.Hex(Hex16(n)); got != n || f.Bad {
			t.Errorf("%x is read as %x", n, got)
		}
	}
	for _, word := range []string{"", "1", "0123456789ABCDEF", "0123456789abcdeg", "00123456789abcdef", "+123456789abcdef"} {
		if f := (Fields{}); f.Hex(word) != 0 && !f.Bad || !f.Bad {
			t.Errorf("%q is read", word)
		}
	}
	for word, want := range map[string]int64{"0": 0, "10": 10, "9223372036854775807": math.MaxInt64, "": -1, "01": -1, "+1": -1, "-1": -1,
		"1_0": -1, "9223372036854775808": -1} {
		f := Fields{}
		if got := f.Number(word); f.Bad != (want < 0) || !f.Bad && got != want {
			t.Errorf("%q is read as %d, bad %t", word, got, f.Bad)
		}
	}
}

func TestUntil(t *testing.T) {
	f := Fields{Rest: "a bc rest"}
	if a, b := f.Until(' '), f.Until(' '); a != "a" || b != "bc" || f.Rest != "rest" || f.Bad {
		t.Errorf("%q, %q, %+v", a, b, f)
	}
	if f.Until(' '); !f.Bad || f.Rest != "rest" {
		t.Errorf("a word without an end: %+v", f)
	}
}

func TestQuoted(t *testing.T) {
	if got := Quoted("k\n"); got != `"k\n"` {
		t.Errorf("%s", got)
	}
	if got := Quoted(strings.Repeat("x", 5000)); len(got) > 80 || !strings.HasSuffix(got, "...") {
		t.Errorf("%s", got)
	}
}
