package rmaptest

import (
	"strings"

	"github.com/latchkey-go/latchkey/rmap"
)

// keys checks that any bytes are a key, and a value: what looks like the bookkeeping of a store most of all.
func keys() []test {
	return []test{
		{"AnyKey", anyKey},
		{"AnyValue", anyValue},
		{"AllAtOnce", allKeys},
	}
}

func awkward() []string {
	return []string{"=gen", "=rev", "=kind", "p:a=b", "=pool:x", "=", "\x00", "a\x00b", "a\x00", "\n", "a\nb", "\r\n", "\xff\xfe\xfd",
		"\xc3", " ", "a b", " a", "a ", "{}", "{a}b", "}", "é", "日本", "0", "1", "-1", "nil", "null", "false", "rev", "gen",
		"header", ":", "::", "1:2", "3:abc", "s1:a", "d1:a", "*", "?", "[a]", "%s", "\"", "'", "\\", "\t", "due", "log",
		"9223372036854775808", "1e3", strings.Repeat("k", rmap.MaxKey), strings.Repeat("\x00", 300)}
}

func anyKey(e *env) {
	for _, k := range awkward() {
		e.change(given(absent(k), set(k, "v")))
		e.has(map[string]rmap.Value{k: plain("v")})
		c := e.change(given(value(k, plain("v")), lasting(long, set(k, "w"))))
		e.steps(c, did(k, plain("w")))
		e.conflict(1, given(absent(k), del(k)))
		e.steps(e.change(given(written(k, c.Revision.Nonce), del(k))), gone(k))
		e.steps(e.change(write(add(k, 2), del(k), app(k, k[:1]), uniq(k, "x"))),
			did(k, integer("2")), gone(k), did(k, list(k[:1])), did(k, list(k[:1], "x")))
		c = e.change(write(lasting(short, set(k, "v"))))
		e.reach(deadline(c))
		e.steps(e.change(write(expire(k))), ended(k))
	}
}

func anyValue(e *env) {
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	for _, v := range append(awkward(), "", all.String(), strings.Repeat("\x00", 4096), strings.Repeat("x", rmap.MaxValue)) {
		e.change(write(set("k", v)))
		e.has(map[string]rmap.Value{"k": plain(v)})
		e.change(given(value("k", plain(v)), put("k", list(v[:min(len(v), 1000)], ""))))
		e.has(map[string]rmap.Value{"k": list(v[:min(len(v), 1000)], "")})
	}
}

func allKeys(e *env) {
	var w rmap.Write
	all := make(map[string]rmap.Value)
	for _, k := range awkward() {
		all[k] = plain(k)
		w.Ops = append(w.Ops, set(k, k))
	}
	w.MaxEntries = len(all)
	e.change(w)
	e.has(all)
	e.refuse(rmap.Write{Ops: []rmap.Op{set("one more", "")}, MaxEntries: len(all)}, rmap.ErrTooLarge)
	e.change(write(reset()))
	e.has(nil)
}
