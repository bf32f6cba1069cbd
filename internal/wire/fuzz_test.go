package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/lease"
)

// reference decodes a request by means of encoding/json and the same rules for
// what belongs together: everything that the scanner does by itself, it does in
// another way. It returns false when it cannot judge, for deep nesting.
func reference(line []byte, r *Request) (error, bool) {
	var bad error = lease.ErrProtocol
	if !json.Valid(line) {
		return bad, true
	}
	d := json.NewDecoder(bytes.NewReader(line))
	if open, _ := d.Token(); open != json.Delim('{') {
		return bad, true
	}
	rd := requestDecoder{req: r}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return bad, true
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return bad, true
		}
		if strings.Count(string(raw), "[")+strings.Count(string(raw), "{") >= maxDepth {
			return nil, false
		}
		f := lookup(name.(string))
		switch {
		case f == 0, rd.seen&f != 0:
			rd.complain("unknown or twice")
			continue
		}
		rd.seen |= f
		if !refer(&rd, f, raw) {
			rd.complain("type")
		}
	}
	if r.N == 0 {
		return bad, true
	}
	if rd.verdict() != "" {
		return lease.ErrRefused, true
	}
	return nil, true
}

// refer fills one field, or reports that the value is not for it. What the value
// may be beyond its type is left to fill, which the scanner shares.
func refer(rd *requestDecoder, f fields, raw json.RawMessage) bool {
	field := reflect.ValueOf(rd.req).Elem()
	switch f {
	case fN, fMax, fTTL, fWait, fWaited, fMaxHold, fLockDelay, fToken, fPID, fGrace, fLimit, fWatch:
		var n int64
		if !wholeNumber.Match(raw) || json.Unmarshal(raw, &n) != nil || n >= maxInteger || n <= -maxInteger {
			return false
		}
	case fForever, fTry, fPreferReaders, fDetach, fContended, fBrief:
		var b bool
		if string(raw) == "null" || json.Unmarshal(raw, &b) != nil {
			return false
		}
	case fKeys, fDeclared:
		var list []json.RawMessage
		if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
			return false
		}
		out := []string{}
		for _, raw := range list {
			text, ok := referText(raw)
			if !ok {
				return false
			}
			out = append(out, text)
		}
		field.FieldByName(map[fields]string{fKeys: "Keys", fDeclared: "Declared"}[f]).Set(reflect.ValueOf(out))
		return true
	default:
		text, ok := referText(raw)
		if !ok {
			return false
		}
		if into := map[fields]string{fID: "ID", fKey: "Key", fLabel: "Label", fName: "Name", fHost: "Host", fResume: "Resume",
			fPrefix: "Prefix", fAfter: "After", fBy: "By", fReason: "Reason"}[f]; into != "" {
			field.FieldByName(into).SetString(text)
			return true
		}
	}
	// Numbers, booleans and the two enumerations: of the right type, so that
	// their range is all there is to check.
	inner := requestDecoder{decoder: decoder{scanner: scanner{data: raw}, field: []byte(f.String())}, req: rd.req, seen: rd.seen}
	inner.fill(f)
	rd.do += inner.do
	return inner.err == "" && inner.wrong == ""
}

var (
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
	surrogate   = regexp.MustCompile(`\\u[dD][89a-bA-B][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.`)
)

func referText(raw json.RawMessage) (string, bool) {
	var text string
	if raw[0] != '"' || !utf8.Valid(raw) || json.Unmarshal(raw, &text) != nil {
		return "", false
	}
	for _, e := range surrogate.FindAllString(string(raw), -1) {
		if len(e) == 6 {
			return "", false
		}
	}
	return text, true
}

func seeds(f *testing.F, files ...string) {
	for _, file := range files {
		t := &testing.T{}
		for _, v := range readVectors(t, file) {
			f.Add(v.line(t))
		}
	}
}

// The scanner takes and refuses what encoding/json does, but for our own stricter
// rules, and reads the same values.
func FuzzDecodeRequest(f *testing.F) {
	seeds(f, "requests.json", "refused.json", "replies.json")
	f.Fuzz(func(t *testing.T, line []byte) {
		var got, want Request
		err := DecodeRequest(line, &got)
		expected, judged := reference(line, &want)
		if !judged {
			return
		}
		if lease.CodeOf(err) != lease.CodeOf(expected) {
			t.Fatalf("%q: got %v, encoding/json says %v", line, err, expected)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\n got %+v\nwant %+v", line, got, want)
		}
		var again Request
		if err := DecodeRequest(AppendRequest(nil, &got), &again); err != nil {
			t.Fatalf("%q: encoded again as %s: %v", line, AppendRequest(nil, &got), err)
		}
		if len(got.Declared) == 0 {
			got.Declared = nil // the empty list is not sent
		}
		if !reflect.DeepEqual(again, got) {
			t.Fatalf("%q: came back as\n %+v, was\n %+v", line, again, got)
		}
	})
}

// A reply that is taken is JSON, encodes to one line within the limit, and
// decodes to the same again.
func FuzzDecodeReply(f *testing.F) {
	seeds(f, "replies.json", "hello.json", "refused.json")
	f.Fuzz(func(t *testing.T, line []byte) {
		var r Reply
		if err := DecodeReply(line, &r); err != nil {
			if lease.CodeOf(err) != lease.ErrProtocol {
				t.Fatalf("%q: %v", line, err)
			}
			return
		}
		if !json.Valid(line) {
			t.Fatalf("%q was taken and is not JSON", line)
		}
		one := AppendReply(nil, &r)
		if !json.Valid(one) || bytes.IndexByte(one, '\n') != len(one)-1 {
			t.Fatalf("%q became %q", line, one)
		}
		var again Reply
		if err := DecodeReply(one, &again); err != nil {
			t.Fatalf("%q became %q: %v", line, one, err)
		}
		if two := AppendReply(nil, &again); !bytes.Equal(one, two) {
			t.Fatalf("%q became\n%q and then\n%q", line, one, two)
		}
	})
}

// Hellos end in a hello or an error, from either side.
func FuzzDecodeHello(f *testing.F) {
	seeds(f, "hello.json")
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, decode := range []func([]byte) (Hello, error){DecodeHello, DecodeHelloReply} {
			h, err := decode(line)
			if err != nil {
				continue
			}
			if !json.Valid(line) || h.Version != Version {
				t.Fatalf("%q was taken as %+v", line, h)
			}
		}
	})
}

// A string is quoted as JSON that means the same, replacing what is not UTF-8,
// or leaving it for the peer to refuse.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "a\"\\\b\f\n\r\t\x00\x7f", "ü€🔑\u2028", "\xff\xfe", "a\xc3", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(quote(nil, s), &got); err != nil || got != string([]rune(s)) {
			t.Fatalf("%q became %q: %v", s, got, err)
		}
		d := decoder{scanner: scanner{data: quoteAsIs(nil, s)}}
		got = d.text()
		if utf8.ValidString(s) && (got != s || d.wrong != "") || !utf8.ValidString(s) && d.wrong == "" || d.err != "" {
			t.Fatalf("%q became %q: %s%s", s, got, d.err, d.wrong)
		}
	})
}

// pieces hands out a stream in pieces of given sizes.
type pieces struct {
	data  []byte
	sizes []byte
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := len(p.data)
	if len(p.sizes) > 0 {
		n = int(p.sizes[0]) // 0 is allowed: nothing yet
		p.sizes = p.sizes[1:]
	}
	n = copy(b, p.data[:min(n, len(p.data))])
	p.data = p.data[n:]
	return n, nil
}

// However a stream is cut into reads, the lines are those between newlines.
func FuzzReader(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccc"), []byte{1, 0, 2, 3}, 10)
	f.Add(bytes.Repeat([]byte("x"), 5000), []byte{255}, 4000)
	f.Add(bytes.Repeat([]byte("line\n"), 3000), []byte{7, 77}, 4)
	f.Fuzz(func(t *testing.T, data, sizes []byte, limit int) {
		limit = 1 + int(uint(limit)%10000)
		lines := bytes.Split(data, []byte("\n"))
		want, long := lines[:len(lines)-1], len(lines[len(lines)-1]) > limit
		for i, l := range want {
			if len(l) > limit {
				want, long = want[:i], true
				break
			}
		}
		r := NewReader(&pieces{data, sizes}, limit)
		var got [][]byte
		var err error
		for {
			ready := r.Ready()
			line, e := r.Next()
			if err = e; err != nil {
				if ready && !errors.Is(err, ErrTooLong) {
					t.Fatalf("ready, and then %v", err)
				}
				break
			}
			got = append(got, slices.Clone(line))
			if len(r.buf) > max(limit+1, smallBuffer) {
				t.Fatalf("holds %d bytes for a limit of %d", len(r.buf), limit)
			}
		}
		if !slices.EqualFunc(got, want, bytes.Equal) || errors.Is(err, ErrTooLong) != long {
			t.Fatalf("got %q, %v\nwant %q, too long %v", got, err, want, long)
		}
	})
}
