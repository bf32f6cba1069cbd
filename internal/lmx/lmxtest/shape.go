package lmxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Values of a shape that stand for what varies.
const (
	anyToken  = "<token>"  // an integer above 0 and below 2^53
	anyText   = "<text>"   // a string that is not empty
	anyNumber = "<number>" // a number that is not negative
	anyTrue   = "<any>"    // whatever it is
)

// Want reads the next frame with the uuid of a shape and compares them: the same
// fields, no more and no fewer, with the same values.
//
// A shape is an object as JSON. The texts <token>, <text>, <number> and <any> stand
// for values that vary.
func (c *Client) Want(shape string) Frame {
	c.t.Helper()
	want := parse(c.t, shape)
	var f Frame
	if uuid := want.Text("uuid"); uuid != "" {
		f = c.Expect(uuid)
	} else {
		f = c.find("a frame without uuid", func(f Frame) bool { return !f.Has("uuid") })
	}
	Match(c.t, f, shape)
	return f
}

// Match compares a frame with a shape.
func Match(t T, f Frame, shape string) {
	t.Helper()
	if diff := differ("", map[string]any(f), map[string]any(parse(t, shape))); len(diff) > 0 {
		t.Errorf("got  %v\nwant %s\n%s", f, shape, strings.Join(diff, "\n"))
	}
}

func parse(t T, shape string) Frame {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader([]byte(shape)))
	d.UseNumber()
	var f Frame
	if err := d.Decode(&f); err != nil {
		t.Fatalf("the shape %s is not JSON: %v", shape, err)
	}
	return f
}

// differ lists in what a value does not have a shape.
func differ(at string, got, want any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: got %v, want an object", at, got)}
		}
		return differFields(at, g, w)
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return []string{fmt.Sprintf("%s: got %v, want a list of %d", at, got, len(w))}
		}
		var out []string
		for i := range w {
			out = append(out, differ(fmt.Sprintf("%s[%d]", at, i), g[i], w[i])...)
		}
		return out
	case string:
		if fits, varies := fitsPattern(got, w); varies {
			if fits {
				return nil
			}
			return []string{fmt.Sprintf("%s: got %v, want a %s", at, got, strings.Trim(w, "<>"))}
		}
	}
	if got != want {
		return []string{fmt.Sprintf("%s: got %#v, want %#v", at, got, want)}
	}
	return nil
}

func differFields(at string, got, want map[string]any) []string {
	var out []string
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			out = append(out, fmt.Sprintf("%s.%s is missing", at, name))
			continue
		}
		out = append(out, differ(at+"."+name, g, w)...)
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			out = append(out, fmt.Sprintf("%s.%s is not in the shape", at, name))
		}
	}
	slices.Sort(out)
	return out
}

// fitsPattern reports whether a text of a shape stands for what varies, and if so
// whether a value fits it.
func fitsPattern(got any, want string) (fits, varies bool) {
	n, isNumber := got.(json.Number)
	switch want {
	case anyToken:
		i, err := n.Int64()
		return isNumber && err == nil && i > 0 && i < 1<<53, true
	case anyNumber:
		x, err := n.Float64()
		return isNumber && err == nil && x >= 0, true
	case anyText:
		s, ok := got.(string)
		return ok && s != "", true
	case anyTrue:
		return true, true
	}
	return false, false
}
