package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// testMaps are maps in a Redis of the test's own.
type testMaps struct {
	t      *testing.T
	server *redistest.Server
	url    string
}

func startMaps(t *testing.T, o redistest.Options) *testMaps {
	t.Helper()
	s := redistest.Start(t, o)
	return &testMaps{t, s, s.URL()}
}

func (m *testMaps) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program(), append([]string{"map"}, args...)...)
	cmd.Env = append(os.Environ(), envStore+"="+m.url)
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// run runs a verb of map.
func (m *testMaps) run(args ...string) result {
	m.t.Helper()
	return finish(m.t, m.command(args...))
}

// feed is run with a standard input.
func (m *testMaps) feed(input string, args ...string) result {
	m.t.Helper()
	cmd := m.command(args...)
	cmd.Stdin = strings.NewReader(input)
	return finish(m.t, cmd)
}

// set runs set, which must print a revision and nothing else, and returns it.
func (m *testMaps) set(args ...string) string {
	m.t.Helper()
	return m.revision(m.run(append([]string{"set"}, args...)...))
}

func (m *testMaps) revision(r result) string {
	m.t.Helper()
	text := strings.TrimSuffix(r.out, "\n")
	begins := strings.Contains(r.err, "was not there: it begins now") // with the first key
	if at, err := rmap.ParseRevision(text); r.code != 0 || r.err != "" && !begins || err != nil || at.IsZero() {
		m.t.Fatalf("got %+v, want a revision", r)
	}
	return text
}

// object reads what --json printed.
func (m *testMaps) object(r result, into any) {
	m.t.Helper()
	if err := json.Unmarshal([]byte(r.out), into); err != nil || r.code != 0 || r.err != "" {
		m.t.Fatalf("got %+v, want an object: %v", r, err)
	}
}

// stored is an entry as get --json shows it.
type stored struct {
	Key, Value     any
	Kind, Revision string
	Items          []any
	Size           int
	Deadline       *time.Time
	TTL            *int64
}

func (m *testMaps) get(name, key string) stored {
	m.t.Helper()
	var s stored
	m.object(m.run("get", name, key, "--json"), &s)
	return s
}

func TestMapSetAndGet(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.run("ls", "flags").want(t, 0, "flags  no such map in redis://"+m.server.Addr(), "")
	m.run("status", "flags").want(t, 0, "never written", "")
	m.run("get", "flags", "k").want(t, 1, "", "map flags has no key k; `latchkey map ls flags` lists them")

	first := m.set("flags", "k", "true")
	m.run("get", "flags", "k").want(t, 0, "true", "")
	if s := m.get("flags", "k"); s.Key != "k" || s.Value != "true" || s.Kind != "plain" || s.Size != 4 || s.Revision != first || s.TTL != nil {
		t.Errorf("got %+v, want the plain value true of revision %s", s, first)
	}

	// Exactly the bytes come out that went in.
	for _, value := range []string{"", "\n", "a\x00b\xff\x1b[31m\r\n", "é\n\n", "-", strings.Repeat("x", rmap.MaxValue)} {
		m.revision(m.feed(value, "set", "flags", "bytes", "-"))
		if got := m.run("get", "flags", "bytes"); got.code != 0 || got.out != value {
			t.Errorf("%.20q with %d bytes came out with %d bytes: %.20q %s", value, len(value), len(got.out), got.out, got.err)
		}
	}
	m.feed(strings.Repeat("x", rmap.MaxValue+1), "set", "flags", "k", "-").want(t, 1, "", "longer than 1048576 bytes")
	m.set("flags", "k", "--", "-5")
	m.run("get", "flags", "k").want(t, 0, "-5", "")
	m.set("flags", "k", "--", "-") // behind a -- it is not the standard input
	m.run("get", "flags", "k").want(t, 0, "-", "")
	m.run("set", "flags", "k", "-5").want(t, 1, "", "a value that begins with - goes behind a --")

	// The kind stays until another one is named.
	m.set("flags", "n", "--kind", "int", " +041")
	if s := m.get("flags", "n"); s.Kind != "int" || s.Value != 41.0 {
		t.Errorf("got %+v, want the number 41", s)
	}
	m.set("flags", "n", "9223372036854775807")
	m.run("get", "flags", "n").want(t, 0, "9223372036854775807\n", "")
	m.run("set", "flags", "n", "many").want(t, 1, "", "not a whole number")
	m.run("set", "flags", "n", "9223372036854775808").want(t, 1, "", "does not fit into 64 bits")
	m.set("flags", "n", "--kind", "plain", "many")
	m.run("get", "flags", "n").want(t, 0, "many", "")
	m.run("set", "flags", "n", "a", "b").want(t, 1, "", "--kind list")
	m.run("set", "flags", "n", "a", "--kind", "set").want(t, 1, "", `--kind "set" is none of plain, int and list`)

	m.set("flags", "l", "--kind", "list", "a", "b c", "")
	m.run("get", "flags", "l").want(t, 0, "a\nb c\n\n", "")
	m.set("flags", "l", "only") // a list stays one
	m.revision(m.feed("one\ntwo\n", "set", "flags", "l", "-"))
	if s := m.get("flags", "l"); s.Kind != "list" || fmt.Sprint(s.Items) != "[one two]" || s.Size != 2 {
		t.Errorf("got %+v, want the list of one and two", s)
	}
	m.set("flags", "l", "--kind", "list", "\xff")
	if s := m.get("flags", "l"); fmt.Sprint(s.Items) != "[map[base64:/w==]]" {
		t.Errorf("got %+v, want the byte in base64", s)
	}
}

func TestMapConditions(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	first := m.set("m", "k", "--if-absent", "1")
	m.run("set", "m", "k", "2", "--if-absent").want(t, 75, "", "not written: what is under k was written by "+first)
	second := m.set("m", "k", "2", "--if-revision", first)
	m.run("set", "m", "k", "3", "--if-revision", first).want(t, 75, "", "was written by "+second)
	m.run("set", "m", "k", "3", "--if-revision", "none").want(t, 75, "", "was written by "+second)
	m.set("m", "other", "3", "--if-revision", "none")
	m.run("set", "m", "k", "3", "--if-value", "1").want(t, 75, "", "was written by "+second)
	m.set("m", "k", "3", "--if-value", "2")
	m.run("set", "m", "absent", "3", "--if-value", "2").want(t, 75, "", "map m has no key absent")
	// The condition speaks of the kind that is there, also when it is to be another one.
	m.set("m", "k", "--kind", "int", "4", "--if-value", "3")
	m.set("m", "k", "--kind", "list", "a", "b", "--if-value", "4")
	m.set("m", "k", "c", "--if-value", "a", "--if-value", "b")
	m.run("set", "m", "k", "d", "--if-value", "c", "--if-absent").want(t, 1, "", "exclude each other")
	m.run("set", "m", "k", "d", "--if-revision", "12").want(t, 1, "", "is not a revision")

	r := m.get("m", "k").Revision
	m.run("del", "m", "k", "--if-revision", first).want(t, 75, "", "was written by "+r)
	m.revision(m.run("del", "m", "k", "--if-revision", r))
	m.run("del", "m", "k").want(t, 1, "", "map m has no key k")
	m.run("del", "m", "k", "--if-revision", r).want(t, 75, "", "map m has no key k")
	m.run("del", "m", "k", "--if-revision", "none").want(t, 1, "", "what is not there cannot be removed")
	m.revision(m.run("del", "m", "other"))
	var f struct {
		OK           bool
		Code, Reason string
	}
	if got := m.run("set", "m", "k", "x", "--if-value", "y", "--json"); json.Unmarshal([]byte(got.out), &f) != nil ||
		f.OK || f.Code != "conflict" || got.code != 75 || got.err != "" {
		t.Errorf("got %+v, want a conflict as JSON", got)
	}
}

func TestMapTimeToLive(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "k", "1", "--ttl", "1h")
	m.set("m", "k", "2", "--keep-ttl")
	s := m.get("m", "k")
	if s.Value != "2" || s.TTL == nil || *s.TTL <= 3_500_000 || *s.TTL > 3_600_000 || s.Deadline == nil {
		t.Errorf("got %+v, want 2 with about an hour to live", s)
	}
	m.run("ls", "m").want(t, 0, "59m", "")
	m.run("status", "m").want(t, 0, "1 key has a time to live, the first ends in 59m", "")
	m.set("m", "k", "3")
	if s := m.get("m", "k"); s.TTL != nil || s.Deadline != nil {
		t.Errorf("got %+v, want it to live for ever", s)
	}
	m.run("set", "m", "k", "4", "--ttl", "1us").want(t, 1, "", "not between 1ms and")
	m.run("set", "m", "k", "4", "--ttl", "1h", "--keep-ttl").want(t, 1, "", "exclude each other")
	m.set("m", "brief", "1", "--ttl", "20ms")
	eventually(t, "it is gone", func() bool { return m.run("get", "m", "brief").code == 1 })
}

// A map that a person begins has the time to live that programs will demand, or the person is told that it has none.
func TestMapBegins(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.run("set", "m", "k", "1").want(t, 0, "-1-", "map m was not there: it begins now, and lives for ever")
	m.run("set", "m", "k", "1").want(t, 0, "-2-", "")
	m.run("set", "m", "k", "1", "--map-ttl", "1h").want(t, 1, "", "map m has another ttl than --map-ttl says")
	m.run("status", "m").want(t, 0, "lives for ever", "")
	m.run("set", "t", "k", "1", "--map-ttl", "1h", "--map-sliding").want(t, 0, "-1-", "it begins now, and has a ttl of 1h")
	m.run("set", "t", "k", "2").want(t, 0, "-2-", "")
	m.run("status", "t").want(t, 0, "ttl       1h from the last change: the map ends in ", "")
	m.run("ls", "t").want(t, 0, ", ends in ", "")
	m.run("set", "a", "k", "1", "--map-ttl", "1h").want(t, 0, "-1-", "1h")
	m.run("status", "a").want(t, 0, "ttl       1h from the first change: the map ends in ", "")
	m.run("set", "b", "k", "1", "--map-sliding").want(t, 1, "", "--map-sliding needs --map-ttl")
	m.run("set", "b", "k", "1", "--map-ttl", "1us").want(t, 1, "", "not between 1ms and")
	m.run("set", "b", "k", "1", "--json").want(t, 0, `{"revision":"`, "")
}

func TestMapReset(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "a", "1")
	m.set("m", "b", "1")
	m.run("del", "m", "--all").want(t, 1, "", "add --yes")
	m.run("del", "m").want(t, 1, "", "KEY is missing")
	m.run("del", "m", "k", "--all", "--yes").want(t, 1, "", "1 argument too many behind MAP")
	m.run("ls", "m").want(t, 0, "m  2 keys, live, revision ", "")
	m.revision(m.run("del", "m", "--all", "--yes"))
	m.run("ls", "m").want(t, 0, "m  0 keys, live, revision ", "")
	m.run("status", "m").want(t, 0, "the last that removed all keys was number 3\nkeys      none", "")
}

func TestMapList(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	long := strings.Repeat("long ", 2000)
	m.set("m", "b\x1b[31m\xff", "--", "\x1b]0;title\x07")
	m.set("m", "a/1", long)
	m.set("m", "a/2", "--kind", "int", "7", "--ttl", "1h")
	m.set("m", "c", "--kind", "list", "x", "y z", "")
	r := m.run("ls", "m")
	r.want(t, 0, `a/2`, "")
	for _, want := range []string{"m  4 keys, live, revision ", "KEY ", `"b\x1b[31m\xff"`, `"\x1b]0;title\a"`, "9.8 KiB", "long long",
		"59m", `[x, y z, ""]`, "3 items"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the listing has no %q:\n%s", want, r.out)
		}
	}
	for line := range strings.Lines(r.out) {
		if oneLine(line) != strings.TrimSpace(line) || displayWidth(line) > 220 {
			t.Errorf("a line that is too long or has what a terminal obeys: %q", line)
		}
	}
	if a, b, c := strings.Index(r.out, "a/1"), strings.Index(r.out, "a/2"), strings.Index(r.out, "\nc "); a > b || b > c {
		t.Errorf("the keys are not in order:\n%s", r.out)
	}

	var page struct {
		Entries         int
		State, Revision string
		Keys            []stored
	}
	m.object(m.run("ls", "m", "--json"), &page)
	if page.Entries != 4 || page.State != "live" || len(page.Keys) != 4 || page.Keys[0].Value != long ||
		fmt.Sprint(page.Keys[2].Key) != "map[base64:YhtbMzFt/w==]" || page.Keys[3].Size != 3 {
		t.Errorf("got %+v", page)
	}
	m.object(m.run("ls", "m", "--json", "--prefix", "a/", "--after", "a/1"), &page)
	if len(page.Keys) != 1 || page.Keys[0].Key != "a/2" {
		t.Errorf("got %+v, want a/2 alone", page)
	}
	m.run("ls", "m", "--limit", "1").want(t, 0, "a/1", "go on with --after a/1")
	m.run("ls", "m", "--prefix", "zz").want(t, 0, "4 keys", "none of the 4 keys begins with zz")
	m.run("ls", "m", "--limit", "-1").want(t, 1, "", "--limit -1 is negative")
	var empty struct{ Keys []stored }
	m.object(m.run("ls", "m", "--prefix", "zz", "--json"), &empty)
	if empty.Keys == nil {
		t.Error("without keys there is no field for them")
	}

	var st mapStatus
	m.object(m.run("status", "m", "--json"), &st)
	if st.Entries != 4 || st.Kinds["plain"] != 2 || st.Number != 4 || st.WithTTL != 1 || st.State != "live" ||
		st.Store != "redis://"+m.server.Addr() {
		t.Errorf("got %+v", st)
	}
}

// Pages are cut where the next key would make one too large.
func TestMapListInPages(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	for i := range 6 {
		m.revision(m.feed(strings.Repeat("x", rmap.MaxValue), "set", "m", fmt.Sprint("k", i), "-"))
	}
	r := m.run("ls", "m", "--json")
	keys, pages := "", 0
	for line := range strings.Lines(r.out) {
		var page struct{ Keys []stored }
		if err := json.Unmarshal([]byte(line), &page); err != nil {
			t.Fatal(err)
		}
		pages++
		for _, k := range page.Keys {
			keys += fmt.Sprint(k.Key)
		}
	}
	if keys != "k0k1k2k3k4k5" || pages != 2 {
		t.Errorf("got %q in %d pages, want all in 2", keys, pages)
	}
}

// A watch tells what happens, outlives its server, and says so.
func TestMapWatch(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "k", "0")
	people, machine := m.watch("m"), m.watch("m", "--json", "--prefix", "k")
	m.set("m", "k", "1")
	m.set("m", "\x1b[31m", "x")
	m.set("m", "k2", "1", "--ttl", "20ms")
	m.run("del", "m", "k").want(t, 0, "-", "")
	people.expect("set      k = 1, was 0  change ", `"\x1b[31m" = x`, "expire   k2, was 1", "delete   k, was 1")
	m.revision(m.run("del", "m", "--all", "--yes"))
	people.expect("reset    all keys went at once; there are 0 keys now")
	machine.expect(`"cause":"set"`, `"key":"k"`, `"old":{"kind":"plain","value":"0","size":1}`, `"cause":"expire"`,
		`"cause":"delete"`, `"cause":"reset"`)
	if strings.Contains(machine.out.String(), "u001b") {
		t.Errorf("a key without the prefix is told:\n%s", machine.out)
	}

	// The server is away, and comes back without data.
	m.set("m", "k", "3")
	people.expect("k = 3")
	m.server.Kill()
	people.expect("cut off  no connection to redis://" + m.server.Addr())
	machine.expect(`"state":"cut off"`)
	m.server.Restart()
	people.expect("live     the connection is back, and the copy is current: 0 keys", "reset  ")
	machine.expect(`"state":"live"`)
	m.set("m", "k", "4")
	people.expect("k = 4  change ")

	// Lost and back in a moment.
	if m.server.KillPubSub() != 2 {
		t.Error("there are not two watches")
	}
	people.expect("cut off", "live")

	for _, w := range []*watching{people, machine} {
		if err := w.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := waitFor(t, w.Cmd); code != exitSignal+int(syscall.SIGINT) {
			t.Errorf("the watch ended with %d and %q", code, w.errOut.String())
		}
	}
	for line := range strings.Lines(machine.out.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %q", line)
		}
	}
	if machine.errOut.String() != "" {
		t.Errorf("the watch said %q", machine.errOut)
	}
}

// watching is a watch in a process of its own.
type watching struct {
	*exec.Cmd
	t           *testing.T
	out, errOut *lockedBuffer
}

// watch starts one, and returns when it sees what happens.
func (m *testMaps) watch(name string, args ...string) *watching {
	m.t.Helper()
	before := subscriptions(m.server)
	w := &watching{m.command(append([]string{"watch", name}, args...)...), m.t, &lockedBuffer{}, &lockedBuffer{}}
	w.Stdout, w.Stderr = w.out, w.errOut
	if err := w.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if w.ProcessState == nil {
			_ = w.Process.Kill()
			_ = w.Wait()
		}
	})
	eventually(m.t, "the watch is subscribed", func() bool { return subscriptions(m.server) > before })
	// Subscribed, it may still be reading; changes of a key of the watch's own are told once it is not.
	i := 0
	eventually(m.t, "the watch tells what happens", func() bool {
		i++
		m.set(name, "k-probe", fmt.Sprint(i))
		return strings.Contains(w.out.String(), "k-probe")
	})
	m.revision(m.run("del", name, "k-probe"))
	return w
}

func subscriptions(s *redistest.Server) (n int) {
	for _, c := range s.Clients() {
		n += c.Sub
	}
	return n
}

// expect waits until the texts have been printed, in any order.
func (w *watching) expect(texts ...string) {
	w.t.Helper()
	for _, text := range texts {
		eventually(w.t, fmt.Sprintf("the watch prints %q", text), func() bool { return strings.Contains(w.out.String(), text) })
	}
}
