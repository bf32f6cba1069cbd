package httpserve

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// object is a decoded JSON object.
type object = map[string]any

// description is openapi.json, to hold requests and answers against.
type description struct{ root object }

func describe(t *testing.T) *description {
	t.Helper()
	var d description
	if err := json.Unmarshal(openAPI, &d.root); err != nil {
		t.Fatalf("openapi.json: %v", err)
	}
	return &d
}

// at walks down from an object, resolving references on the way.
func (d *description) at(o any, path ...string) any {
	for _, p := range path {
		m, ok := d.resolve(o).(object)
		if !ok {
			return nil
		}
		o = m[p]
	}
	return d.resolve(o)
}

func (d *description) resolve(o any) any {
	m, ok := o.(object)
	if !ok {
		return o
	}
	ref, ok := m["$ref"].(string)
	if !ok {
		return o
	}
	return d.at(d.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// answerSchema is the schema of an answer, nil when the description has none.
func (d *description) answerSchema(method, path string, status int, kind string) any {
	return d.at(d.root, "paths", path, strings.ToLower(method), "responses", fmt.Sprint(status), "content", kind, "schema")
}

func (d *description) requestSchema(path string) any {
	return d.at(d.root, "paths", path, "post", "requestBody", "content", "application/json", "schema")
}

// described is the path of the description that a request is for.
func described(path string) string {
	if strings.HasPrefix(path, keyPath) {
		return keyPath + "{key}"
	}
	return path
}

// known are the keywords that check understands. Another one fails the test, so
// that no rule in the description is silently not checked.
var known = []string{"$ref", "type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
	"enum", "const", "minimum", "maximum", "exclusiveMaximum", "minLength", "maxLength", "anyOf", "description"}

// check returns what is wrong with a value by JSON Schema 2020-12, as far as the
// description uses it. strict refuses members that are not described, also where
// a client would have to ignore them.
func (d *description) check(schema, v any, strict bool, where string) []string {
	s, ok := d.resolve(schema).(object)
	if !ok {
		return []string{where + ": there is no schema"}
	}
	var bad []string
	say := func(format string, args ...any) { bad = append(bad, where+": "+fmt.Sprintf(format, args...)) }
	for k := range s {
		if !slices.Contains(known, k) {
			say("the checker does not know %q", k)
		}
	}
	if branches, ok := s["anyOf"].([]any); ok {
		var all []string
		for _, b := range branches {
			problems := d.check(b, v, strict, where)
			if len(problems) == 0 {
				all = nil
				break
			}
			all = append(all, problems...)
		}
		bad = append(bad, all...)
	}
	if want, is := s["const"]; is && !reflect.DeepEqual(want, v) {
		say("%v is not %v", v, want)
	}
	if enum, is := s["enum"].([]any); is && !slices.ContainsFunc(enum, func(e any) bool { return reflect.DeepEqual(e, v) }) {
		say("%v is not one of %v", v, enum)
	}
	if t, is := s["type"]; is && !hasType(t, v) {
		say("%v is not of type %v", v, t)
		return bad
	}
	switch v := v.(type) {
	case string:
		bound(s, "minLength", "maxLength", float64(utf8.RuneCountInString(v)), say)
	case float64:
		bound(s, "minimum", "maximum", v, say)
		if most, is := s["exclusiveMaximum"].(float64); is && v >= most {
			say("%v is not below %v", v, most)
		}
	case []any:
		bound(s, "minItems", "maxItems", float64(len(v)), say)
		if items, is := s["items"]; is {
			for i, item := range v {
				bad = append(bad, d.check(items, item, strict, fmt.Sprintf("%s[%d]", where, i))...)
			}
		}
	case object:
		bad = append(bad, d.checkObject(s, v, strict, where)...)
	}
	return bad
}

func (d *description) checkObject(s, v object, strict bool, where string) (bad []string) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, is := v[name.(string)]; !is {
			bad = append(bad, fmt.Sprintf("%s: %v is missing", where, name))
		}
	}
	properties, _ := s["properties"].(object)
	for name, member := range v {
		inner, is := properties[name]
		if !is {
			extra, given := s["additionalProperties"]
			switch {
			case given && extra != false:
				inner = extra
			case given || strict && properties != nil:
				bad = append(bad, fmt.Sprintf("%s: %s is not described", where, name))
				continue
			default:
				continue
			}
		}
		bad = append(bad, d.check(inner, member, strict, where+"."+name)...)
	}
	return bad
}

func bound(s object, least, most string, n float64, say func(string, ...any)) {
	if b, is := s[least].(float64); is && n < b {
		say("%v is below %s %v", n, least, b)
	}
	if b, is := s[most].(float64); is && n > b {
		say("%v is above %s %v", n, most, b)
	}
}

func hasType(t, v any) bool {
	if list, ok := t.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return hasType(one, v) })
	}
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	case []any:
		return t == "array"
	default:
		return t == "object"
	}
}

// TestSchemaChecker plants defects that a broken handler would have.
func TestSchemaChecker(t *testing.T) {
	d := describe(t)
	schema := d.answerSchema("POST", "/v1/lock", 200, "application/json")
	good := `{"acquired":true,"key":"a","lockUuid":"u","fencingToken":7,"ttl":5000,"remaining":4999,"elapsed":0,"waited":0}`
	for _, c := range []struct{ what, from, to string }{
		{"as it should be", "", ""},
		{"member missing", `"lockUuid":"u",`, ``},
		{"member misspelt", `"fencingToken"`, `"fencing_token"`},
		{"token as text", `7`, `"7"`},
		{"token too large", `7`, `9007199254740992`},
		{"token zero", `:7`, `:0`},
		{"negative time", `4999`, `-1`},
		{"fraction of a millisecond", `4999`, `0.5`},
		{"granted is not a flag", `true`, `"true"`},
		{"refused without a code", `true`, `false`},
		{"member that is not described", `"key":"a"`, `"key":"a","extra":1`},
	} {
		var v any
		if err := json.Unmarshal([]byte(strings.Replace(good, c.from, c.to, 1)), &v); err != nil {
			t.Fatal(err)
		}
		problems := d.check(schema, v, true, "answer")
		if defect := c.from != ""; defect != (len(problems) > 0) {
			t.Errorf("%s: %q", c.what, problems)
		}
	}
	if problems := d.check(object{"type": "string", "pattern": "^a"}, "b", true, "answer"); len(problems) == 0 {
		t.Error("a keyword that is not checked was not reported")
	}
}
