package core

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReportIsRead(t *testing.T) {
	r := Report{reportWindow, "me", time.Second, 2 * time.Second, Summary{Total: 100, Missing: 3, Keys: []Counted{
		{"k e y", 50, 2}, {"\x00\xff", 7, 7},
	}}}
	if got, err := ParseReport(r.String()); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%q is read as %+v, %v", r.String(), got, err)
	}
	r.Keys, r.Total = nil, 10_000
	for i := range 1000 {
		r.Keys = append(r.Keys, Counted{strings.Repeat("long", 300*(i%2)) + fmt.Sprint(i), uint64(2000 - i), uint64(2000 - i)})
	}
	got, err := ParseReport(r.String())
	if err != nil || len(got.Keys) < 10 || len(got.Keys) > maxReportKeys {
		t.Fatalf("of a long report %d keys are read, %v", len(got.Keys), err)
	}
	held := map[string]bool{}
	for _, c := range got.Keys {
		held[c.Key] = true
	}
	for _, c := range r.Keys {
		if !held[c.Key] && c.Count > got.Missing {
			t.Fatalf("a key that was counted %d times was left out, and is said to have been counted %d times at most", c.Count, got.Missing)
		}
	}
}

// TestReportOver: it goes over as many nodes as it must, in turn, and gives up when two more have failed.
func TestReportOver(t *testing.T) {
	for _, c := range []struct {
		kind        string
		turn, nodes int
		out         []int
		want        string
	}{
		{reportWindow, 0, 3, nil, "[0]"}, {reportWindow, 5, 3, nil, "[2]"}, {reportEarly, 5, 3, nil, "[2 0]"},
		{reportWindow, 0, 9, []int{0, 1}, "[0 1 2]"}, {reportWindow, 0, 9, []int{0, 1, 2}, "[0 1 2]"},
		{reportEarly, 0, 9, []int{0, 2}, "[0 1 2 3]"}, {reportEarly, 0, 1, nil, "[0]"}, {reportWindow, 0, 2, []int{0, 1}, "[0 1]"},
	} {
		var asked []int
		Report{kind: c.kind}.Over(c.turn, c.nodes, func(node int) bool {
			asked = append(asked, node)
			return !slices.Contains(c.out, node)
		})
		if got := fmt.Sprint(asked); got != c.want {
			t.Errorf("%+v: went over %s", c, got)
		}
	}
}

func TestReportIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "ack me 1 2", "hot1", "hot1 ", "hot2 window me 1000 1000 5 0", "hot1 door me 1000 1000 5 0", "hot1 window  1000 1000 5 0",
		"hot1 window me 0 1000 5 0", "hot1 window me 1000 0 5 0", "hot1 window me 1000 1000 5 6", "hot1 window me x 1000 5 0",
		"hot1 window me 1000 1000 5 0 3 1", "hot1 window me 1000 1000 5 0 3 4 aw", "hot1 window me 1000 1000 5 0 9 1 aw",
		"hot1 window me 1000 1000 5 0 3 1 ", "hot1 window me 1000 1000 5 0 3 1 a", "hot1 window me 1000 1000 5 0 3 1 aw 3 1 aw",
		"hot1 window me 99999999999 1000 5 0", "hot1 window me 1000 1000 99999999999999999999 0",
		"hot1 window " + strings.Repeat("m", maxReportFrom+1) + " 1000 1000 5 0",
		"hot1 window me 1000 1000 5 0" + strings.Repeat(" 0 0 aw", maxReportText/7),
	} {
		if r, err := ParseReport(text); err == nil {
			t.Errorf("%.80q is read as %+v", text, r)
		}
	}
	if _, err := ParseReport("hot1 window me 1000 1000 5 0 3 1 aw"); err != nil {
		t.Error("and what is right is refused too")
	}
}

func FuzzReport(f *testing.F) {
	f.Add("hot1 window me 1000 1000 5 0 3 1 aw")
	f.Add("hot1 early a 125 1000 100 7 50 0 aG90 7 7 AP8")
	f.Add("hot1 set a 1 1 18446744073709551615 0 18446744073709551615 0 aw")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseReport(text)
		if err != nil {
			return
		}
		again, err := ParseReport(r.String())
		if err != nil || len(r.String()) <= maxReportBytes && !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v is read again as %+v, %v", r, again, err)
		}
		h := newTestHot("me", 3)
		h.Hear(0, r)
		h.Adopt(r)
		h.Tick(time.Second)
		h.Hear(0, again)
		h.look(time.Second, false)
		for _, c := range h.Keys().Keys {
			if c.Err > c.Count {
				t.Fatalf("bounds of %+v", c)
			}
		}
	})
}
