package httpserve

import (
	"context"
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// hostile are names that would do something if they were not escaped.
var hostile = []string{
	`<script>document.documentElement.setAttribute("data-owned","1")</script>`,
	`"><img src=x onerror=document.documentElement.setAttribute("data-owned","2")>`,
	`'onmouseover='document.documentElement.setAttribute("data-owned","3")`,
	`javascript:document.documentElement.setAttribute("data-owned","4")`,
	`</table></main><style>*{display:none}</style>`,
	"{{.Base}} &amp; \u202eright to left",
}

func (r *rig) holdHostile() {
	r.t.Helper()
	for i, text := range hostile {
		s := r.open(lease.SessionOptions{Name: text, Host: text, PID: i + 1})
		s.Acquire(lease.Request{Keys: []string{text}, Label: text, TTL: time.Hour}, quietCaller{})
		s.Acquire(lease.Request{Keys: []string{text}, Label: text}, quietCaller{})
	}
}

// Names that would not be seen for what they are, because they hide a part of
// themselves or turn what follows around, are shown quoted.
func TestPageQuotes(t *testing.T) {
	r := start(t, Options{})
	hidden := []string{"rtl\u202egnp.exe", "esc\x1b[31m\u009b", "new\nline", "zero\u200bwidth", " space"}
	for i, text := range hidden {
		s := r.open(lease.SessionOptions{Name: text, Host: text, PID: i + 1})
		s.Acquire(lease.Request{Keys: []string{text}, Label: text, TTL: time.Hour}, quietCaller{})
		s.Acquire(lease.Request{Keys: []string{text}, Label: text}, quietCaller{})
	}
	page := r.get("/").want(t, 200)
	for _, text := range hidden {
		quoted := html.EscapeString(strconv.Quote(text))
		// As the key, where it is most waited for and in the list, and in both rows below it.
		if n := strings.Count(page.text, quoted); n != 2+2*3 {
			t.Errorf("%+q is shown quoted %d times, want 8", text, n)
		}
		if text != " space" && strings.Contains(page.text, text) {
			t.Errorf("%+q is shown as it is", text)
		}
	}
	for path, text := range map[string]string{"/?prefix=%E2%80%AEx": "\u202ex", "/?after=z%E2%80%AE": "z\u202e"} {
		page := r.get(path).want(t, 200)
		if !strings.Contains(page.text, html.EscapeString(strconv.Quote(text))) {
			t.Errorf("%s: %+q is not shown quoted", path, text)
		}
	}
}

// A detached hold has no use for its session, so that a cut says nothing of it.
func TestPageOfDetachedHold(t *testing.T) {
	row := renderLocks(t, lease.Holder{Party: lease.Party{Session: "gone"}, Detached: true, Broken: true})
	if !strings.Contains(row, "detached") || strings.Contains(row, "cut off") {
		t.Errorf("got %s", row)
	}
	row = renderLocks(t, lease.Holder{Party: lease.Party{Session: "away"}, Broken: true})
	if !strings.Contains(row, "cut off") {
		t.Errorf("got %s", row)
	}
}

func renderLocks(t *testing.T, h lease.Holder) string {
	t.Helper()
	var text strings.Builder
	d := summary{Keys: []keyRow{keyRowOf(lease.KeyInfo{Key: "k", Holders: []lease.Holder{h}})}}
	if err := pageTemplate.ExecuteTemplate(&text, "locks", d); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestPageEscapes looks for any markup or script that a name could have become.
func TestPageEscapes(t *testing.T) {
	r := start(t, Options{Version: hostile[0], More: func() []Row { return []Row{{hostile[0], hostile[1]}} }})
	r.holdHostile()
	for _, path := range []string{"/", "/status", "/?prefix=%22%3E%3Cscript%3E", "/?after=%3Cimg"} {
		page := r.get(path).want(t, 200)
		for _, bad := range []string{"<script>document", "<img", "'onmouseover='", "<style>*", `href="javascript:`} {
			if strings.Contains(page.text, bad) {
				t.Errorf("%s: unescaped %s", path, bad)
			}
		}
		if n := strings.Count(page.text, "<script"); n != 1 {
			t.Errorf("%s: %d scripts, want our one", path, n)
		}
	}
	if page := r.get("/"); !strings.Contains(page.text, "&lt;script&gt;document") {
		t.Error("the key is not shown")
	}
	next, stop := r.follow("/v1/status/stream")
	defer stop()
	for {
		name, data := next()
		if strings.Contains(data, "<script") || strings.Contains(data, "<img") {
			t.Errorf("the stream carries unescaped text in %s", name)
		}
		if name == "beat" {
			break
		}
	}
}

func TestPageShows(t *testing.T) {
	r := start(t, Options{Version: "9.9", More: func() []Row { return []Row{{"Data directory", "/var/lib/locks"}} }})
	empty := r.get("/").want(t, 200).text
	for _, text := range []string{"Nothing is locked", "latchkey run demo", "curl -H", r.base + "/v1/lock",
		`<noscript><meta http-equiv="refresh" content="5"></noscript>`, "MaxKeyLength", "/var/lib/locks", "latchkey 9.9",
		"Durability <b>memory</b>", "Fencing <b>clock</b>"} {
		if !strings.Contains(empty, text) {
			t.Errorf("the empty page does not show %s", text)
		}
	}
	s := r.open(lease.SessionOptions{Name: "worker", Host: "h1", PID: 12})
	s.Acquire(lease.Request{Keys: []string{"a/1"}, Label: "one", TTL: time.Hour}, quietCaller{})
	for range 12 {
		s.Acquire(lease.Request{Keys: []string{"a/1"}, Wait: time.Hour}, quietCaller{})
	}
	s.Acquire(lease.Request{Keys: []string{"b/1"}, TTL: lease.Forever}, quietCaller{})
	for range 25 {
		s.Acquire(lease.Request{Keys: []string{"c/1"}, Mode: lease.Shared, TTL: time.Hour}, quietCaller{})
	}
	eventually(t, "the page shows the locks", func() bool { return strings.Contains(r.get("/").text, "c/1") })
	page := r.get("/").text
	for _, text := range []string{"a/1", "worker", "<q>one</q>", "on h1 pid 12", "12 waiting", "10th", "and 2 more waiting",
		"never expires", "and 5 more holders", "gives up in", "Most waited for", "exclusive", "shared"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not show %s", text)
		}
	}
	filtered := r.get("/?prefix=b/").text
	if !strings.Contains(filtered, "b/1") || strings.Contains(filtered, "c/1") || !strings.Contains(filtered, `value="b/"`) {
		t.Error("the filter by prefix does not filter")
	}
	if none := r.get("/?prefix=zzz").text; !strings.Contains(none, "No key that is held") || strings.Contains(none, "Nothing is locked") {
		t.Error("an empty filter is not told from an empty broker")
	}
}

// TestPagePaging walks through more keys than fit on one page by its links.
func TestPagePaging(t *testing.T) {
	r := start(t, Options{})
	s := r.open(lease.SessionOptions{})
	const keys = 2*shownKeys + 10
	for i := range keys {
		s.Acquire(lease.Request{Keys: []string{fmt.Sprintf("k&%04d", i)}, TTL: time.Hour}, quietCaller{})
	}
	link := regexp.MustCompile(`<a href="(/\?[^"]*)">further keys</a>`)
	seen := make(map[string]bool)
	key := regexp.MustCompile(`k&amp;\d{4}</span>`)
	for path, pages := "/?prefix=k%26", 0; ; pages++ {
		text := r.get(path).want(t, 200).text
		for _, k := range key.FindAllString(text, -1) {
			seen[k] = true
		}
		m := link.FindStringSubmatch(text)
		if m == nil {
			if pages != 2 {
				t.Errorf("%d pages, want 3", pages+1)
			}
			break
		}
		path = strings.ReplaceAll(m[1], "&amp;", "&")
	}
	if len(seen) != keys {
		t.Errorf("the pages show %d keys, want %d", len(seen), keys)
	}
}

// slow is a service whose listings take their time, counted.
type slow struct {
	lease.Service
	lists int
}

func (s *slow) List(ctx context.Context, q lease.Query) (lease.Listing, error) {
	s.lists++
	return s.Service.List(ctx, q)
}

// TestBoardSharesLooks shows that viewers share a look, and that a costly look
// is not repeated before the service had its share of the time.
func TestBoardSharesLooks(t *testing.T) {
	r := start(t, Options{})
	svc := &slow{Service: r.svc}
	b := newBoard(svc)
	render := func(*look) {}
	first := b.see(context.Background(), view{}, time.Hour, render)
	if b.see(context.Background(), view{}, time.Hour, render) != first || svc.lists != 1 {
		t.Errorf("%d listings for two viewers of one view, want 1", svc.lists)
	}
	if b.see(context.Background(), view{prefix: "other"}, time.Hour, render) == first {
		t.Error("another view got the same look")
	}
	first.took = 2 * time.Second
	if got := b.next(first); got != liveAtMost {
		t.Errorf("after a look of 2 s a stream waits %v, want %v", got, liveAtMost)
	}
	if b.see(context.Background(), view{}, 0, render) != first {
		t.Error("a costly look was repeated at once")
	}
	first.took = time.Microsecond
	if got := b.next(first); got != liveEvery {
		t.Errorf("after a cheap look a stream waits %v, want %v", got, liveEvery)
	}
	first.took = 0
	first.at = first.at.Add(-time.Minute)
	first.used = first.used.Add(-2 * keepLook)
	b.see(context.Background(), view{prefix: "third"}, 0, render)
	if b.looks[view{}] != nil {
		t.Error("an unused look is kept")
	}
}

func TestRates(t *testing.T) {
	begin := time.Now()
	var samples []sample
	for i := range 4 {
		samples = append(samples, sample{at: begin.Add(time.Duration(i) * time.Second), granted: uint64(i * i * 10)})
	}
	r := rateOf(samples, func(s sample) uint64 { return s.granted })
	if !r.Known || r.Now != 50 || r.Most != 50 {
		t.Errorf("rate %+v, want 50 now and at most", r)
	}
	if !strings.HasSuffix(r.Line, "100.0,2.0") || !strings.HasSuffix(r.Area, "100,24") {
		t.Errorf("curve %q, area %q", r.Line, r.Area)
	}
	if rateOf(samples[:1], func(s sample) uint64 { return s.granted }).Known {
		t.Error("a rate from one sample")
	}
	b := newBoard(nil)
	for i := range 300 {
		b.sample(begin.Add(time.Duration(i)*time.Second), lease.Stats{Granted: uint64(i)})
		b.sample(begin.Add(time.Duration(i)*time.Second+time.Millisecond), lease.Stats{Granted: uint64(i)})
	}
	if n := len(b.samples); n > 125 {
		t.Errorf("%d samples are kept", n)
	}
	b.sample(begin.Add(time.Hour), lease.Stats{})
	if len(b.samples) != 1 {
		t.Error("samples from before a restart are kept")
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 ms", 42 * time.Millisecond: "42 ms", 9990 * time.Millisecond: "9.9 s", 59 * time.Second: "59 s",
		time.Minute: "1 min", 61 * time.Second: "1 min 1 s", 3*time.Hour + 59*time.Second: "3 h", 26 * time.Hour: "1 d 2 h",
		366 * 24 * time.Hour: "366 d",
	} {
		if got := strings.ReplaceAll(span(d), "\u202f", " "); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1 000", 1234567: "1 234 567", -1000: "-1 000"} {
		if got := strings.ReplaceAll(count(n), "\u202f", " "); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for i, want := range map[int]string{0: "1st", 1: "2nd", 2: "3rd", 3: "4th", 10: "11th", 11: "12th", 12: "13th", 20: "21st", 110: "111th"} {
		if got := ordinal(i); got != want {
			t.Errorf("place %d is %q, want %q", i, got, want)
		}
	}
}

// TestContrast reads the colours of the style sheet and computes the contrast of
// each text on what it stands on, as WCAG 2.2 defines it, in both schemes.
func TestContrast(t *testing.T) {
	blocks := regexp.MustCompile(`:root \{([^}]*)\}`).FindAllStringSubmatch(pageCSS, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d colour schemes, want light and dark", len(blocks))
	}
	for i, scheme := range []string{"light", "dark"} {
		colours := make(map[string]string)
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6})`).FindAllStringSubmatch(blocks[i][1], -1) {
			colours[m[1]] = m[2]
		}
		for _, pair := range [][2]string{
			{"ink", "paper"}, {"ink", "sheet"}, {"quiet", "paper"}, {"quiet", "sheet"}, {"accent", "paper"}, {"accent", "sheet"},
			{"warn", "paper"}, {"warn", "warn-paper"}, {"bad", "bad-paper"},
		} {
			if c := contrast(t, colours[pair[0]], colours[pair[1]]); c < 4.5 {
				t.Errorf("%s: %s on %s has a contrast of %.2f, want 4.5", scheme, pair[0], pair[1], c)
			}
		}
	}
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(hex, 16, 32)
	if err != nil {
		t.Fatalf("colour %q: %v", hex, err)
	}
	linear := func(v uint64) float64 {
		c := float64(v&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(n>>16) + 0.7152*linear(n>>8) + 0.0722*linear(n)
}

// TestPageSaysItsAge shows that a look that is shown again says how old it is.
func TestPageSaysItsAge(t *testing.T) {
	r := start(t, Options{})
	r.get("/").want(t, 200)
	b := r.server.board
	b.mu.Lock()
	for _, l := range b.looks {
		l.at = l.at.Add(-10 * time.Second)
		l.took = time.Second
	}
	b.mu.Unlock()
	if page := r.get("/").want(t, 200).text; !strings.Contains(page, "as of 10\u202fs ago") {
		t.Error("the page does not say that it is ten seconds old")
	}
	next, stop := r.follow("/v1/status/stream")
	defer stop()
	for {
		if name, data := next(); name == "beat" {
			if data != "20000" {
				t.Errorf("the stream announces %s ms until the next look, want 20000", data)
			}
			return
		}
	}
}
