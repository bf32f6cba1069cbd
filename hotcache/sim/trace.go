package sim

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Limits of a trace.
const (
	maxTraceLine = 64 << 10
	maxTraceKey  = 4 << 10 // that of the cache
	maxTraceKeys = 4_000_000
)

// A TraceError says where a trace cannot be read.
type TraceError struct {
	Name string
	Line int
	Why  string
}

// Error names the file and the line.
func (e *TraceError) Error() string { return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Why) }

// traced is work from a file: a key a line, each of which is read at the rate of the settings, or rows of time, key and
// what is done with it. Which of them it is, the first line tells: rows begin with a number of seconds and a comma, with
// a date as RFC 3339 has it, or with a heading. It is read as it is needed, so its length does not matter; only its keys are kept.
type traced struct {
	cfg   *Config
	r     *rand.Rand
	keys  *keys
	lines *bufio.Scanner
	line  int
	rows  bool // with times
	at    time.Duration
	first float64 // the time of the first row
	timed bool    // first is known
	begun bool
	doubt bool // lines are keys, and the first one has the commas of a row
}

func newTraced(cfg *Config, from io.Reader, k *keys) *traced {
	t := &traced{cfg: cfg, r: rand.New(rand.NewPCG(cfg.Seed, 1)), keys: k, lines: bufio.NewScanner(from)}
	t.lines.Buffer(make([]byte, 0, 4<<10), maxTraceLine)
	return t
}

func (t *traced) wrong(format string, args ...any) error {
	return &TraceError{t.cfg.TraceName, t.line, fmt.Sprintf(format, args...)}
}

func (t *traced) next() (op, bool, error) {
	for t.lines.Scan() {
		t.line++
		text := strings.TrimSuffix(t.lines.Text(), "\r")
		if strings.TrimSpace(text) == "" {
			continue
		}
		if !t.begun {
			t.begun = true
			if t.begins(text) {
				continue
			}
		}
		o, err := t.parse(text)
		return o, err == nil, err
	}
	err := t.lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		t.line++
		return op{}, false, t.wrong("the line has more than %d bytes", maxTraceLine)
	case err != nil:
		return op{}, false, fmt.Errorf("sim: %s: %w", t.cfg.TraceName, err)
	case !t.begun:
		t.line = max(t.line, 1)
		return op{}, false, t.wrong("the trace is empty: write a key a line, or time,key,op")
	}
	return op{}, false, nil
}

// begins looks at the first line and tells whether it is a heading.
func (t *traced) begins(text string) bool {
	word, _, comma := strings.Cut(text, ",")
	word = strings.Trim(word, ` "`)
	_, timed := seconds(word)
	heading := strings.EqualFold(word, "time")
	t.rows = comma && (timed || heading)
	t.doubt = !t.rows && strings.Count(text, ",") == 2
	return t.rows && heading
}

// remark is what a person should know of the trace that may have been read as something else, or nothing.
func (t *traced) remark() string {
	if !t.doubt {
		return ""
	}
	return fmt.Sprintf("every line of %s is one key, with its commas, for the first one begins neither with a time in seconds, "+
		"nor with a date as %s, nor with the heading time,", t.cfg.TraceName, exampleDate)
}

const exampleDate = "2026-11-30T23:59:59Z"

// seconds reads a number of seconds, of any epoch, or a date.
func seconds(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if date, err := time.Parse(time.RFC3339, text); err == nil {
		return float64(date.Unix()) + float64(date.Nanosecond())/1e9, true
	}
	at, err := strconv.ParseFloat(text, 64)
	return at, err == nil
}

func (t *traced) parse(text string) (op, error) {
	o := op{server: t.r.IntN(t.cfg.Servers)}
	key := text
	if t.rows {
		var err error
		if key, err = t.row(text, &o); err != nil {
			return o, err
		}
	} else {
		t.at += time.Duration(t.r.ExpFloat64() / t.cfg.Rate * float64(time.Second))
	}
	o.at = t.at
	switch {
	case key == "":
		return o, t.wrong("the key is empty")
	case len(key) > maxTraceKey:
		return o, t.wrong("the key has %d bytes, the limit is %d", len(key), maxTraceKey)
	}
	id, known := t.keys.byKey[key]
	if !known {
		if len(t.keys.names) >= maxTraceKeys {
			return o, t.wrong("there are more than %d different keys", maxTraceKeys)
		}
		key = strings.Clone(key)
		id = len(t.keys.names)
		t.keys.names = append(t.keys.names, key)
		t.keys.byKey[key] = id
	}
	o.key = id
	return o, nil
}

// row reads time, key and op.
func (t *traced) row(text string, o *op) (key string, err error) {
	fields := strings.Split(text, ",")
	if strings.Contains(text, `"`) {
		if fields, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
			return "", t.wrong("the quotes do not fit together")
		}
	}
	if len(fields) < 2 || len(fields) > 3 {
		return "", t.wrong("there are %d fields, not time,key or time,key,op; a key with a comma is written in quotes", len(fields))
	}
	at, ok := seconds(fields[0])
	if !ok || math.IsNaN(at) || math.IsInf(at, 0) {
		return "", t.wrong("%q is neither a time in seconds nor a date as %s", shorten(fields[0]), exampleDate)
	}
	if !t.timed {
		t.timed, t.first = true, at
	}
	since := at - t.first
	if since < t.at.Seconds()-1e-9 {
		return "", t.wrong("the time %s is before that of the row above", fields[0])
	}
	if since > (365 * 24 * time.Hour).Seconds() {
		return "", t.wrong("the time %s is more than a year after the first", fields[0])
	}
	t.at = max(t.at, time.Duration(since*float64(time.Second)))
	if len(fields) == 3 {
		switch op := strings.ToLower(strings.TrimSpace(fields[2])); op {
		case "", "r", "read", "get":
		case "w", "write", "set", "put", "update", "delete":
			o.write = true
		default:
			return "", t.wrong("%q is neither read nor write", shorten(op))
		}
	}
	return fields[1], nil
}

func shorten(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}
