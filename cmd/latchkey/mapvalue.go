package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/rmap"
)

// What a table or an event shows of a key or a value at most; on a narrow terminal it is less.
const (
	previewBytes = 120
	previewWidth = 72 // columns, for what becomes longer because it must be quoted
)

// mapKinds are the kinds of values by the names that people use.
var mapKinds = [...]struct {
	kind rmap.Kind
	name string
}{{rmap.Plain, "plain"}, {rmap.Integer, "int"}, {rmap.List, "list"}}

func kindName(k rmap.Kind) string {
	for _, e := range mapKinds {
		if e.kind == k {
			return e.name
		}
	}
	return fmt.Sprintf("%q", byte(k))
}

func parseKind(name string) (rmap.Kind, error) {
	for _, e := range mapKinds {
		if e.name == name {
			return e.kind, nil
		}
	}
	return 0, fmt.Errorf("--kind %q is none of plain, int and list", name)
}

// newValue makes a value of words of the command line, or of lines of the standard input.
func newValue(kind rmap.Kind, words []string) (rmap.Value, error) {
	if kind == rmap.List {
		return rmap.Value{Kind: kind, Data: rmap.EncodeList(words)}, nil
	}
	if len(words) != 1 {
		return rmap.Value{}, fmt.Errorf("%d values where there can be one; a list of them is made with --kind list", len(words))
	}
	if kind != rmap.Integer {
		return rmap.Value{Kind: kind, Data: words[0]}, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(words[0]), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return rmap.Value{}, errors.New("the number does not fit into 64 bits; --kind plain keeps it as text")
	case err != nil:
		return rmap.Value{}, errors.New("the value is not a whole number, which --kind int, or what is there now, demands; " +
			"--kind plain keeps any text")
	}
	return rmap.Value{Kind: kind, Data: strconv.FormatInt(n, 10)}, nil
}

// readValue reads a value from the standard input: all of it, or for a list its lines.
func (a *app) readValue(kind rmap.Kind, data string) []string {
	if kind != rmap.List {
		return []string{data}
	}
	var items []string
	for line := range strings.Lines(data) {
		items = append(items, strings.TrimSuffix(line, "\n"))
	}
	return items
}

// readInput reads the standard input, as much of it as fits into a value.
func (a *app) readInput() (string, error) {
	data, err := io.ReadAll(io.LimitReader(a.in, rmap.MaxValue+1))
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	if len(data) > rmap.MaxValue {
		return "", fmt.Errorf("the value on the standard input is longer than %d bytes, the limit of a map", rmap.MaxValue)
	}
	return string(data), nil
}

// items are those of a list. One that is damaged has itself as its only item, so that it can be looked at.
func items(v rmap.Value) []string {
	list, err := rmap.DecodeList(v.Data)
	if err != nil {
		return []string{v.Data}
	}
	return list
}

// preview shows the beginning of a value in one line.
func preview(v rmap.Value) string {
	if v.Kind != rmap.List {
		return clipped(v.Data, previewBytes)
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, item := range items(v) {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() >= previewBytes {
			b.WriteString("…")
			break
		}
		b.WriteString(clipped(item, previewBytes-b.Len()))
	}
	return cut(b.String()+"]", previewWidth)
}

// clipped shows the beginning of a text in one line, and that it is not all.
func clipped(s string, most int) string {
	if len(s) <= most {
		return cut(plain(s), previewWidth)
	}
	most = max(most, 8)
	n := min(most, len(s))
	for n > most-utf8.UTFMax && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimSuffix(cut(plain(strings.TrimRight(s[:n], " ")), previewWidth-1), "…") + "…"
}

// sizeOf shows how long a value is.
func sizeOf(v rmap.Value) string {
	switch v.Kind {
	case rmap.Integer:
		return "-"
	case rmap.List:
		return count(len(items(v)), "item", "items")
	}
	return size(uint64(len(v.Data)))
}

// screenText is a whole value for a terminal: as it is when every character can be seen or makes a new line, quoted when
// not.
func screenText(s string) string {
	clean := utf8.ValidString(s) && s != ""
	for _, r := range s {
		clean = clean && (unicode.IsPrint(r) || r == '\n' || r == '\t')
	}
	if !clean {
		return strconv.Quote(s) + "\n"
	}
	return strings.TrimSuffix(s, "\n") + "\n"
}

// A jsonText is text, or bytes that JSON cannot have as text.
type jsonText struct{ text string }

// MarshalJSON writes a string, or an object with the bytes.
func (t jsonText) MarshalJSON() ([]byte, error) {
	if !utf8.ValidString(t.text) {
		return json.Marshal(map[string][]byte{"base64": []byte(t.text)})
	}
	var b bytes.Buffer
	err := encoder(&b).Encode(t.text)
	return b.Bytes(), err
}

// A jsonValue is a value as --json shows it.
type jsonValue struct {
	Kind  string     `json:"kind"`
	Value any        `json:"value,omitempty"`
	Items []jsonText `json:"items,omitzero"`
	Size  int        `json:"size"` // bytes in the store, or items
}

func newJSONValue(v rmap.Value) jsonValue {
	out := jsonValue{Kind: kindName(v.Kind), Size: len(v.Data)}
	switch v.Kind {
	case rmap.List:
		list := items(v)
		out.Size, out.Items = len(list), make([]jsonText, len(list))
		for i, item := range list {
			out.Items[i] = jsonText{item}
		}
	case rmap.Integer:
		out.Value = json.Number(v.Data)
	default:
		out.Value = jsonText{v.Data}
	}
	return out
}

// A jsonEntry is an entry as --json shows it.
type jsonEntry struct {
	Key jsonText `json:"key"`
	jsonValue
	Revision rmap.Revision `json:"revision"`
	Deadline *time.Time    `json:"deadline,omitempty"` // by the store's clock
	TTL      *int64        `json:"ttl,omitempty"`      // what is left of it, in milliseconds
}

func newJSONEntry(key string, h rmap.Held[rmap.Value], now int64) jsonEntry {
	e := jsonEntry{Key: jsonText{key}, jsonValue: newJSONValue(h.Value), Revision: h.Revision}
	if !h.Deadline.IsZero() {
		at, ms := h.Deadline.UTC(), left(h.Deadline, now).Milliseconds()
		e.Deadline, e.TTL = &at, &ms
	}
	return e
}

// object prints one object of JSON on a line.
func (a *app) object(v any) error {
	return encoder(a.out).Encode(v)
}

// encoder writes JSON for programs and shells, which no browser will take for a page.
func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}
