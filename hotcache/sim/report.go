package sim

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Setting is one of a [Config], as a flag has it.
type Setting struct {
	Name, Value string
}

// Settings returns what a run was made with, in the order in which people look for it. What has no part in it is left
// out.
func (c Config) Settings() []Setting {
	var out []Setting
	add := func(name string, value any) { out = append(out, Setting{name, fmt.Sprint(value)}) }
	if c.Trace != nil {
		add("trace", c.TraceName)
	} else {
		add("reads", c.Reads)
		add("keys", c.Keys)
		add("skew", c.Skew)
		add("write-every", c.WriteEvery)
		add("write-rate", c.WriteRate)
	}
	add("rate", strconv.FormatFloat(c.Rate, 'f', -1, 64))
	add("servers", c.Servers)
	add("nodes", c.Nodes)
	add("capacity", c.Capacity)
	add("service", c.Service)
	add("node-entries", c.NodeEntries)
	add("vnodes", c.VNodes)
	add("ttl", c.TTL)
	add("replicate", c.Replicate)
	add("copies", c.Copies)
	add("counters", c.Counters)
	add("hot-share", c.HotShare)
	add("window", c.Window)
	add("window-reads", c.windowReads())
	add("l1", c.L1)
	add("l1-ttl", c.L1TTL)
	add("l1-entries", c.L1Entries)
	add("trust", c.Trust)
	add("network", c.Network)
	add("load", c.Load)
	add("lag", c.Lag)
	add("value-bytes", c.ValueBytes)
	for _, f := range c.Faults {
		add("fault", f)
	}
	add("seed", c.Seed)
	return out
}

// A Report is one or more runs of the same work.
type Report struct {
	Config  Config
	Results []*Result
}

// MarshalJSON writes the settings by the names of their flags, and the results.
func (r Report) MarshalJSON() ([]byte, error) {
	settings, faults := map[string]string{}, []Fault{}
	for _, s := range r.Config.Settings() {
		if s.Name != "fault" {
			settings[s.Name] = s.Value
		}
	}
	faults = append(faults, r.Config.Faults...)
	return json.Marshal(struct {
		Settings map[string]string `json:"settings"`
		Faults   []Fault           `json:"faults"`
		Results  []*Result         `json:"results"`
	}{settings, faults, r.Results})
}

// shown is what a person reads for a policy.
func shown(policy string) string {
	if policy == Source {
		return "by hand"
	}
	return policy
}

// A line is one of the figures that are shown for each policy.
type line struct {
	name  string
	value func(*Result) string
	what  string // what it means, for those who ask
}

func part(of, all uint64) string {
	if all == 0 {
		return grouped(of)
	}
	return fmt.Sprintf("%s (%.1f %%)", grouped(of), 100*float64(of)/float64(all))
}

// grouped writes a number with a thin gap between thousands.
func grouped(n uint64) string {
	digits := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func sizeOf(n uint64) string {
	x, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for x >= 1000 && len(units) > 1 {
		x, units = x/1000, units[1:]
	}
	return fmt.Sprintf("%.3g %s", x, units[0])
}

// lines are the figures, in the order in which they matter.
func lines() []line {
	return []line{
		{"reads", func(r *Result) string { return grouped(r.Reads) }, "that were answered, or failed"},
		{"L1 hits", func(r *Result) string { return part(r.L1Hits, r.Reads) }, "answered by the server's own memory"},
		{"node hits", func(r *Result) string { return part(r.NodeHits, r.Reads) }, "answered by a node"},
		{"of them by a copy", func(r *Result) string { return part(r.CopyHits, r.Reads) }, "of a hot key"},
		{"database reads", func(r *Result) string { return grouped(r.DBReads) }, "loads; one may answer many reads"},
		{"stale reads", func(r *Result) string { return part(r.StaleReads, r.Reads) },
			"older than the last write that was finished when they began"},
		{"old reads", func(r *Result) string { return part(r.OldReads, r.Reads) }, "older than the row was when they were answered"},
		{"keys left stale", func(r *Result) string { return grouped(r.LeftStale) }, "older on a node than in the database, at the end"},
		{"failed reads", func(r *Result) string { return part(r.FailedReads+r.Unanswered, r.Reads) }, "without an answer"},
		{"busiest node / mean", func(r *Result) string { return fmt.Sprintf("%.2f", r.MaxMean) }, "of questions by reads; 1 is even"},
		{"hot keys", func(r *Result) string { return strconv.Itoa(r.HotKeys) }, "at a time, at most"},
		{"reads that waited for a load", func(r *Result) string { return part(r.BlockedReads, r.Reads) }, "their own or another's"},
		{"how long, in all", func(r *Result) string { return r.Blocked.String() }, "the sum of their waits"},
		{"time of a read, mean", func(r *Result) string { return r.Latency.Mean.String() }, ""},
		{"p50", func(r *Result) string { return r.Latency.P50.String() }, ""},
		{"p99", func(r *Result) string { return r.Latency.P99.String() }, ""},
		{"p99.9", func(r *Result) string { return r.Latency.P999.String() }, ""},
		{"refused fills", func(r *Result) string { return grouped(r.RefusedFills) }, "what was loaded was outdated by then"},
		{"writes", func(r *Result) string { return grouped(r.Writes) }, ""},
		{"of them unsure", func(r *Result) string { return grouped(r.UnsureWrites) }, "committed, and the cache may not know"},
		{"writers that crashed", func(r *Result) string { return grouped(r.Crashes) }, "between commit and invalidation"},
		{"time of a write, mean", func(r *Result) string { return r.WriteWait.String() }, "until it was finished, from its commit"},
		{"commands to invalidate", func(r *Result) string { return grouped(r.Invalidations) }, ""},
		{"messages lost", func(r *Result) string { return grouped(r.LostMessages) }, "about invalidations"},
		{"broadcasts missed", func(r *Result) string { return grouped(r.LostHeard) }, "by a server"},
		{"of them noticed in time", func(r *Result) string { return part(r.LostNoticed, r.LostHeard) }, "within the time that memory is trusted"},
		{"bytes", func(r *Result) string { return sizeOf(r.Bytes) }, "between servers and nodes"},
	}
}

// Text returns the report as a table for a terminal.
func (r Report) Text() string {
	var b strings.Builder
	all := lines()
	wide := 0
	for _, l := range all {
		wide = max(wide, len(l.name))
	}
	columns := make([]int, len(r.Results))
	rows := make([][]string, len(all))
	for i, res := range r.Results {
		columns[i] = len(shown(res.Policy))
		for j, l := range all {
			rows[j] = append(rows[j], l.value(res))
			columns[i] = max(columns[i], len([]rune(rows[j][i])))
		}
	}
	row := func(name string, cells []string) {
		fmt.Fprintf(&b, "%-*s", wide, name)
		for i, c := range cells {
			b.WriteString(strings.Repeat(" ", 2+columns[i]-len([]rune(c))) + c)
		}
		b.WriteByte('\n')
	}
	var names []string
	for _, res := range r.Results {
		names = append(names, shown(res.Policy))
	}
	row("", names)
	for j, l := range all {
		row(l.name, rows[j])
	}
	b.WriteByte('\n')
	for _, res := range r.Results {
		var loads []string
		for i, n := range res.NodeLoad {
			if i == 16 && len(res.NodeLoad) > 20 {
				loads = append(loads, fmt.Sprintf("… %d more", len(res.NodeLoad)-i))
				break
			}
			loads = append(loads, strconv.FormatUint(n, 10))
		}
		items(&b, "load per node, "+shown(res.Policy)+":", loads)
	}
	b.WriteByte('\n')
	var most []string
	if len(r.Results) > 0 {
		for _, k := range r.Results[0].Top[:min(5, len(r.Results[0].Top))] {
			most = append(most, strconv.Quote(cut(k.Key, 40))+" "+grouped(k.Reads))
		}
	}
	items(&b, "most read:", most)
	for _, res := range r.Results {
		if res.Interrupted {
			fmt.Fprintf(&b, "\n%s was interrupted: this is what there was until then\n", shown(res.Policy))
		}
	}
	return b.String()
}

// textWide is how wide a text is at most: a terminal that is no wider breaks no line.
const textWide = 80

// items writes items behind a heading, each of them whole.
func items(b *strings.Builder, heading string, all []string) {
	b.WriteString(heading)
	at := len(heading)
	for _, item := range all {
		n := 2 + len([]rune(item))
		if at+n > textWide {
			b.WriteString("\n")
			at = 0
		}
		b.WriteString("  " + item)
		at += n
	}
	b.WriteByte('\n')
}

// cut makes a key short enough to be shown.
func cut(key string, most int) string {
	if name := []rune(key); len(name) > most {
		return string(name[:most-1]) + "…"
	}
	return key
}
