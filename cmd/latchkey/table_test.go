package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0ms"},
		{-time.Second, "0s"},
		{350 * time.Millisecond, "350ms"},
		{2*time.Second + 450*time.Millisecond, "2.4s"},
		{59 * time.Second, "59s"},
		{2*time.Minute + 10*time.Second, "2m10s"},
		{time.Hour, "1h"},
		{25 * time.Hour, "1d1h"},
		{lease.Forever, "never"},
	} {
		if got := span(c.d); got != c.want {
			t.Errorf("span(%v) = %q, want %q", c.d, got, c.want)
		}
	}
}

func TestOrdinal(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 21: "21st", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %q, want %q", n, got, want)
		}
	}
}

// Keys and labels are others' text: they must not reach the terminal as
// commands, nor pass for something else.
func TestPlain(t *testing.T) {
	for s, want := range map[string]string{
		"jobs/nightly": "jobs/nightly",
		"schlüssel 鍵":  "schlüssel 鍵",
		"":             `""`,
		" a":           `" a"`,
		"a\x1b[2J":     `"a\x1b[2J"`,
		"a\u202eb":     `"a\u202eb"`,
		`"a"`:          `"\"a\""`,
		"a\xffb":       `"a\xffb"`,
	} {
		if got := plain(s); got != want {
			t.Errorf("plain(%q) = %s, want %s", s, got, want)
		}
	}
}

func holder() lease.Holder {
	return lease.Holder{
		Party: lease.Party{Session: "alice", Host: "web1", PID: 4, Label: "make deploy"},
		Token: 17, Since: 2 * time.Minute, TTL: 30 * time.Second, Remaining: 28 * time.Second,
	}
}

func contended() *lease.KeyInfo {
	k := &lease.KeyInfo{Key: "deploy", Holders: []lease.Holder{holder()}, Waiting: 5}
	for i := range 5 {
		k.Waiters = append(k.Waiters, lease.Waiter{
			Party: lease.Party{Session: "bob", Host: "web2", PID: 100 + i},
			Mode:  lease.Shared, Keys: 1 + i%2, Age: time.Duration(i) * time.Second, Left: lease.Forever,
		})
	}
	return k
}

const wantTable = `KEY     MODE       HOLDER                             SINCE  LEFT  TOKEN  WAITING
deploy  exclusive  alice@web1 pid 4 "make deploy"        2m   28s     17        5
        shared       1. bob@web2 pid 100                0ms
        shared       2. bob@web2 pid 101, for 2 keys     1s
        shared       3. bob@web2 pid 102                 2s
                     … and 2 more
`

func TestKeyTable(t *testing.T) {
	table := keyTable()
	table.addKey(contended(), false)
	if got := table.render(style{}); got != wantTable {
		t.Errorf("got\n%s\nwant\n%s", got, wantTable)
	}
	table = keyTable()
	table.addKey(contended(), true)
	if got := table.render(style{}); strings.Count(got, "\n") != 7 {
		t.Errorf("with all who wait:\n%s", got)
	}
}

// A narrow terminal cuts what may be cut, and never the numbers.
func TestTableFits(t *testing.T) {
	k := contended()
	k.Key = strings.Repeat("鍵", 40)
	table := keyTable()
	table.addKey(k, false)
	got := table.render(style{width: 80})
	for line := range strings.Lines(got) {
		if w := displayWidth(strings.TrimSuffix(line, "\n")); w > 80 {
			t.Errorf("a line is %d columns wide: %q", w, line)
		}
	}
	for _, part := range []string{"28s", "…"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
}

// Tokens, which show has as well, make room for keys and holders where these would
// otherwise be cut to nothing.
func TestTableSpares(t *testing.T) {
	k := contended()
	k.Key = "deploy/production/eu-central-1/web"
	k.Holders[0].Token = 1795975745419271
	for width, want := range map[int]bool{0: true, 160: true, 80: false} {
		table := keyTable()
		table.addKey(k, false)
		got := table.render(style{width: width})
		if strings.Contains(got, "TOKEN") != want || strings.Contains(got, "1795975745419271") != want {
			t.Errorf("%d columns: tokens %v, want %v\n%s", width, !want, want, got)
		}
		if !strings.Contains(got, "deploy/production") || !strings.Contains(got, "alice@web1 pid 4") {
			t.Errorf("%d columns: too much is cut\n%s", width, got)
		}
	}
}

// A column that can be spared goes too when there is nothing to cut.
func TestTableSparesWhatDoesNotFit(t *testing.T) {
	for width, want := range map[int]bool{0: true, 60: true, 40: false} {
		table := table{columns: []column{{name: "KEY", cut: true}, {name: "REVISION", spare: true}},
			rows: [][]cell{{{text: "k"}, {text: strings.Repeat("0", 40)}}}}
		if got := table.render(style{width: width}); strings.Contains(got, "REVISION") != want {
			t.Errorf("%d columns: revisions %v, want %v\n%s", width, !want, want, got)
		}
	}
}

func TestDetail(t *testing.T) {
	a := &app{}
	k := contended()
	k.Holders[0].Detached = true
	k.Delay = time.Second
	got := a.detail(k)
	for _, part := range []string{`held by  alice@web1 pid 4 "make deploy"`, "28s of a ttl of 30s", "token    17",
		"detached", "kept free for 1s", "5 waiting", "2nd  bob@web2 pid 101, for 2 keys"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
}

func TestWaitingLine(t *testing.T) {
	cause, place := waitingLine("deploy", []lease.Holder{holder(), holder()}, 2)
	got := cause + place
	want := `waiting for deploy: held by alice@web1 pid 4 "make deploy" for 2m and 1 other, 3rd in line`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var out bytes.Buffer
	c := &console{out: &out, width: 60}
	c.replace(cause, place+", waiting for 4s")
	shown := strings.TrimSpace(out.String())
	if displayWidth(shown) != 59 || !strings.HasSuffix(shown, "…, 3rd in line, waiting for 4s") {
		t.Errorf("on a narrow terminal: got %q", shown)
	}
}

func TestEventLine(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	got := eventLine(style{}, lease.Event{Kind: lease.EventGranted, Party: holder().Party, Key: "deploy", Token: 17,
		After: 3 * time.Second}, at)
	want := `03:04:05.006  granted   deploy  alice@web1 pid 4 "make deploy"  token 17, waited 3s`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got = eventLine(style{}, lease.Event{Kind: lease.EventGap}, at)
	if !strings.Contains(got, "list again") {
		t.Errorf("got %s", got)
	}
}

func TestStatusText(t *testing.T) {
	a := &app{server: "127.0.0.1:6970"}
	st := lease.Stats{Durability: "always", Fencing: "journal", Uptime: 90 * time.Second, Granted: 900, Holds: 1,
		LastToken: 5, JournalSyncs: 3, JournalRecords: 9, JournalBytes: 4096}
	for range 100 {
		st.Sync.Observe(200 * time.Microsecond)
	}
	got := a.statusText(&st)
	for _, part := range []string{"up 1m30s", "state       ok", "durability  always", "journal, last token 5", "900 (10 a second)",
		"1 lock held", "9 records in 3 syncs, 4.0 KiB", "mean 200µs, half within 256µs"} {
		if !strings.Contains(got, part) {
			t.Errorf("%q is missing in\n%s", part, got)
		}
	}
	st.Failed = "disk full"
	if got := a.statusText(&st); !strings.Contains(got, "FAILED: disk full") {
		t.Errorf("a failure is not shown:\n%s", got)
	}
}

func TestSplitKeys(t *testing.T) {
	for s, want := range map[string][]string{
		"a":       {"a"},
		"a,b":     {"a", "b"},
		`a\,b,c`:  {"a,b", "c"},
		`c:\d,\\`: {`c:\d`, `\\`},
		"a,":      {"a", ""},
		"":        {""},
	} {
		if got := splitKeys(s); !slices.Equal(got, want) {
			t.Errorf("splitKeys(%q) = %q, want %q", s, got, want)
		}
	}
}

// Whatever is given, no key is lost or changed: escaped and joined again, it is
// what was split.
func FuzzSplitKeys(f *testing.F) {
	f.Add("a,b")
	f.Add(`a\,b,`)
	f.Add(`\`)
	f.Fuzz(func(t *testing.T, s string) {
		keys := splitKeys(s)
		escaped := make([]string, len(keys))
		for i, k := range keys {
			escaped[i] = strings.ReplaceAll(k, ",", `\,`)
		}
		if got := strings.Join(escaped, ","); got != s {
			t.Errorf("splitKeys(%q) = %q, which joins to %q", s, keys, got)
		}
	})
}

// Only durations above zero are taken, and each is shown as it can be given.
func FuzzLifetime(f *testing.F) {
	for _, s := range []string{"30s", "forever", "-1s", "0", "1h2m", "9999999h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var d lifetime
		if d.Set(s) != nil {
			return
		}
		if time.Duration(d) <= 0 {
			t.Errorf("%q was taken as %v", s, time.Duration(d))
		}
		var again lifetime
		if err := again.Set(d.String()); err != nil || again != d {
			t.Errorf("%q is shown as %q, which is taken as %v, %v", s, d.String(), again, err)
		}
	})
}
