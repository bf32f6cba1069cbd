package sim

import (
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func ofTrace(text string) Config {
	cfg := small(Ours)
	cfg.TraceName = "reads.csv"
	cfg.Trace = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	return cfg
}

func TestTrace(t *testing.T) {
	r := run(t, ofTrace("time,key,op\n10,a,read\n10.5,\"b,c\",\r\n\n11,a,write\n12.5,a,GET\n12.5,d\n"))
	if r.Reads != 4 || r.Writes != 1 || r.Keys != 3 || r.Seconds != 2.5 || r.StaleReads != 0 {
		t.Errorf("got %+v", r)
	}
	if r := run(t, ofTrace("0,a\n5,b\n6,b")); r.Seconds != 6 || r.Top[0] != (KeyReads{"b", 2}) {
		t.Errorf("times from 0: %+v", r)
	}
	if r := run(t, ofTrace("2026-11-30T23:59:59.5Z,a\n\"2026-12-01T01:00:01+01:00\",b,write\n2026-12-01T00:00:02Z,a")); r.Seconds != 2.5 ||
		r.Reads != 2 || r.Writes != 1 || r.Remark != "" {
		t.Errorf("dates: %+v", r)
	}
	r = run(t, ofTrace("key,with,commas\nother\nother\nkey5\n"))
	if r.Reads != 4 || r.Keys != 3 || r.Top[0] != (KeyReads{"other", 2}) {
		t.Errorf("got %+v", r)
	}
}

// TestTraceThatLooksLikeRows says so where every line is taken for a key, and has what rows have.
func TestTraceThatLooksLikeRows(t *testing.T) {
	for _, text := range []string{"30.11.2026 12:00,a,read\n", "ts,key,op\n1,a,read\n", "noon,a,w", "2026-11-30 12:00,a,x"} {
		cfg := ofTrace(text)
		r := run(t, cfg)
		if !strings.Contains(r.Remark, "every line of reads.csv is one key") {
			t.Errorf("%q: %q", text, r.Remark)
		}
		if !strings.Contains(string(Report{cfg, []*Result{r}}.HTML()), r.Remark) {
			t.Errorf("%q: the page does not say so", text)
		}
	}
}

// TestTextFits: a terminal of 80 columns breaks no line.
func TestTextFits(t *testing.T) {
	cfg := ofTrace(strings.Repeat(strings.Repeat("k", 1000)+"\n", 1000) + "b\n")
	cfg.Nodes = 20
	r := run(t, cfg)
	for range 20 {
		r.Top = append(r.Top, KeyReads{"a key of some length, as there are many", 1_234_567})
	}
	for i := range r.NodeLoad {
		r.NodeLoad[i] = 123_456_789
	}
	text := Report{cfg, []*Result{r, r}}.Text()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if strings.Count(text, "123456789") != 40 || strings.Count(text, "1 234 567") != 3 {
		t.Errorf("a number is broken, or missing:\n%s", text)
	}
}

// TestBrokenTrace gives traces that cannot be read: the error says where.
func TestBrokenTrace(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "reads.csv:1: the trace is empty",
		"\n\n":                                  "reads.csv:2: the trace is empty",
		"1,a\nx,b":                              `reads.csv:2: "x" is neither a time in seconds nor a date as 2026-11-30T23:59:59Z`,
		"1,a\n2":                                "reads.csv:2: there are 1 fields",
		"1,a\n2,b,read,more":                    "reads.csv:2: there are 4 fields",
		"1,a\n\n0.5,b":                          "reads.csv:3: the time 0.5 is before that of the row above",
		"1,a\n1e300,b":                          "reads.csv:2: the time 1e300 is more than a year after the first",
		"1,a\nNaN,b":                            `reads.csv:2: "NaN" is neither a time in seconds`,
		"1,a,frobnicate":                        `reads.csv:1: "frobnicate" is neither read nor write`,
		"1,\"a":                                 "reads.csv:1: the quotes do not fit together",
		"1,":                                    "reads.csv:1: the key is empty",
		"a\n" + strings.Repeat("k", 5000):       "reads.csv:2: the key has 5000 bytes, the limit is 4096",
		"a\nb\n" + strings.Repeat("k", 100_000): "reads.csv:3: the line has more than 65536 bytes",
	} {
		_, err := Run(t.Context(), ofTrace(text))
		where, is := errors.AsType[*TraceError](err)
		if !is || !strings.HasPrefix(where.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, set := range map[string]func(*Config){
		"policy":       func(c *Config) { c.Policy = "theirs" },
		"reads":        func(c *Config) { c.Reads = 0 },
		"servers":      func(c *Config) { c.Servers, c.Nodes = MaxServers, MaxNodes },
		"nodes":        func(c *Config) { c.Nodes = -1 },
		"keys":         func(c *Config) { c.Keys = MaxKeys + 1 },
		"skew":         func(c *Config) { c.Skew = math.NaN() },
		"rate":         func(c *Config) { c.Rate = math.Inf(1) },
		"hot-share":    func(c *Config) { c.HotShare = 0 },
		"window":       func(c *Config) { c.Window = time.Millisecond },
		"network":      func(c *Config) { c.Network = 100 * time.Millisecond },
		"lag":          func(c *Config) { c.Lag = -1 },
		"fault":        func(c *Config) { c.Faults = []Fault{{Kind: NodeLoss, For: 1, Which: 16}} },
		"node-entries": func(c *Config) { c.NodeEntries = -1 },
	} {
		cfg := Defaults()
		set(&cfg)
		_, err := Run(t.Context(), cfg)
		if e, is := errors.AsType[*ConfigError](err); !is || e.Setting != want {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]string{
		"crash":           "has no moment",
		"crash@x":         `"x" is not a time`,
		"lose@1s":         "does not say how long",
		"lose@1s+0s":      `"0s" is not a duration`,
		"lose@1s+1s:2":    `"2" is not a share`,
		"lose@1s+1s:NaN":  `"NaN" is not a share`,
		"node@1s+1s:-1":   `"-1" is not a number of a node`,
		"lag@1s+1s":       `"" is not how far the replica is behind`,
		"storm@1s+1s":     `there is no fault "storm"`,
		"cut@1s+1s:three": `"three" is not a number`,
	} {
		if _, err := ParseFault(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// FuzzParseFault: whatever is taken is written and read again the same.
func FuzzParseFault(f *testing.F) {
	f.Add("node@2s+1s:3")
	f.Add("lose@1ms+2h:0.25")
	f.Fuzz(func(t *testing.T, text string) {
		one, err := ParseFault(text)
		if err != nil {
			return
		}
		if two, err := ParseFault(one.String()); err != nil || two != one {
			t.Errorf("%q became %q: %v", text, one, err)
		}
	})
}

// FuzzTrace: whatever the file has, it is read to its end or there is an error with a line.
func FuzzTrace(f *testing.F) {
	f.Add("1,a\n2,b,write\n")
	f.Add("a\nb\n")
	f.Fuzz(func(t *testing.T, text string) {
		cfg := ofTrace(text)
		w := newTraced(&cfg, strings.NewReader(text), &keys{byKey: map[string]int{}})
		last := time.Duration(0)
		for range strings.Count(text, "\n") + 2 {
			o, ok, err := w.next()
			if _, is := errors.AsType[*TraceError](err); err != nil && !is {
				t.Fatal(err)
			}
			if err != nil || !ok {
				return
			}
			if o.at < last || o.key >= len(w.keys.names) {
				t.Fatalf("got %+v", o)
			}
			last = o.at
		}
		t.Error("it does not end")
	})
}

// TestPage makes a page of keys that would be markup, with nothing in it that is fetched.
func TestPage(t *testing.T) {
	cfg := ofTrace("<script>alert(1)</script>\nb\nb\n")
	cfg.TraceName = "<b>trace</b>"
	page := string(Report{cfg, []*Result{run(t, cfg)}}.HTML())
	for _, bad := range []string{"<script", "<b>trace", "http", "url(", "NaN", "Inf"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	cfg.Policy = Source
	if page := string(Report{cfg, []*Result{run(t, cfg)}}.HTML()); strings.Contains(page, ">source<") || !strings.Contains(page, "<b>by hand</b> is") {
		t.Error("the page has a policy that it does not explain")
	}
	if !strings.Contains(page, "&lt;script&gt;") || strings.Count(page, "<svg") < 6 {
		t.Error("the page lacks keys or plots")
	}
}
