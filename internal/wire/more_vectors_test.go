package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(vectorDir, file))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Streams are cut into the lines that the vectors say, however they arrive.
func TestVectorStreams(t *testing.T) {
	var list []struct {
		Name   string   `json:"name"`
		Chunks [][]byte `json:"chunks"`
		Repeat int      `json:"repeat"`
		Limit  int      `json:"limit"`
		Lines  [][]byte `json:"lines"`
		Error  string   `json:"error"`
	}
	readJSON(t, "streams.json", &list)
	for _, v := range list {
		var chunks []io.Reader
		for _, c := range v.Chunks {
			for range max(v.Repeat, 1) {
				chunks = append(chunks, bytes.NewReader(c))
			}
		}
		r := NewReader(io.MultiReader(chunks...), v.Limit)
		var lines [][]byte
		var err error
		for {
			var line []byte
			if line, err = r.Next(); err != nil {
				break
			}
			lines = append(lines, slices.Clone(line))
		}
		if !slices.EqualFunc(lines, v.Lines, bytes.Equal) {
			t.Errorf("%s: got %q, want %q", v.Name, lines, v.Lines)
		}
		if long := errors.Is(err, ErrTooLong); long != (v.Error == "too long") || !long && err != io.EOF {
			t.Errorf("%s: got %v, want %q", v.Name, err, v.Error)
		}
	}
}

// Deadlines are computed as the vectors say; times are milliseconds on the
// client's clock.
func TestVectorDeadlines(t *testing.T) {
	var list []struct {
		Name      string `json:"name"`
		Sent      int64  `json:"sent"`
		Line      string `json:"line"`
		PingSent  int64  `json:"ping_sent"`
		Grace     int64  `json:"grace"`
		SafeUntil *int64 `json:"safe_until"`
	}
	readJSON(t, "deadlines.json", &list)
	origin := time.Now()
	at := func(ms int64) time.Time { return origin.Add(time.Duration(ms) * time.Millisecond) }
	for _, v := range list {
		var r Reply
		if err := DecodeReply([]byte(v.Line), &r); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		var s graced
		if v.Grace > 0 {
			grace := time.Duration(v.Grace) * time.Millisecond
			s.until = at(v.PingSent).Add(grace - lease.Margin(grace))
		}
		got := lease.SafeUntil(r.Lease(at(v.Sent)), s)
		switch {
		case v.SafeUntil == nil:
			if !got.IsZero() {
				t.Errorf("%s: got %v, want no end", v.Name, got.Sub(origin))
			}
		case !got.Equal(at(*v.SafeUntil)):
			t.Errorf("%s: got %v, want %d ms", v.Name, got.Sub(origin), *v.SafeUntil)
		}
	}
}

// graced is a session of which only the deadline is asked.
type graced struct {
	lease.Session
	until time.Time
}

func (s graced) Deadline() time.Time { return s.until }

// Every code of the vectors becomes its error at the far end, and every code that
// we know is in them.
func TestVectorCodes(t *testing.T) {
	var list []struct {
		Code lease.Code `json:"code"`
		Kind string     `json:"kind"`
	}
	readJSON(t, "codes.json", &list)
	for _, v := range list {
		far := Reply{}
		near := Failure(1, "acquire", &lease.Error{Code: v.Code, Key: "k", Reason: "because"})
		if err := DecodeReply(AppendReply(nil, &near), &far); err != nil {
			t.Fatal(err)
		}
		if err := far.Err(); !errors.Is(err, v.Code) {
			t.Errorf("%s became %v", v.Code, err)
		}
	}
	if len(list) != 16 {
		t.Errorf("%d codes in the vectors, the contract has 16", len(list))
	}
}

// A stream is cut alike when every read brings one byte, and ends with the error
// of its source.
func TestReaderByteByByte(t *testing.T) {
	src := io.MultiReader(bytes.NewReader([]byte("ü\n\n{}\nhalf")), iotest.ErrReader(io.ErrUnexpectedEOF))
	r := NewReader(iotest.OneByteReader(src), 100)
	for _, want := range []string{"ü", "", "{}"} {
		if line, err := r.Next(); err != nil || string(line) != want {
			t.Fatalf("got %q, %v, want %q", line, err, want)
		}
	}
	for range 2 {
		if line, err := r.Next(); err != io.ErrUnexpectedEOF {
			t.Fatalf("got %q, %v, want the error of the source", line, err)
		}
	}
}
