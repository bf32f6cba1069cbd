package sim

import (
	_ "embed" // the page's style is a file
	"fmt"
	"html"
	"strings"
)

//go:embed page.css
var pageStyle string

// HTML returns the report as a page that stands alone: nothing in it is fetched.
func (r Report) HTML() []byte {
	var b strings.Builder
	b.WriteString(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>A cache, simulated</title>
<style>` + pageStyle + "</style></head>\n<body><main><h1>A cache, simulated</h1>\n")
	r.summary(&b)
	r.figures(&b)
	b.WriteString("<section class=\"plots\">\n")
	for _, p := range r.plots() {
		p.draw(&b)
	}
	b.WriteString("</section>\n")
	r.settings(&b)
	b.WriteString("</main></body></html>\n")
	return []byte(b.String())
}

// summary says in words what was run.
func (r Report) summary(b *strings.Builder) {
	c, what := r.Config, ""
	if c.Trace != nil {
		what = fmt.Sprintf("The work is the trace %s.", c.TraceName)
	} else {
		what = fmt.Sprintf("%s reads of %s keys with a skew of %v, %s a second", whole(uint64(c.Reads)), whole(uint64(c.Keys)),
			c.Skew, whole(uint64(c.Rate)))
		if c.WriteEvery > 0 {
			what += fmt.Sprintf(", and a write after every %d", c.WriteEvery)
		}
		what += "."
	}
	fmt.Fprintf(b, "<p class=\"lead\">%s %d servers, %d nodes, replica %v behind, seed %d.", html.EscapeString(what), c.Servers, c.Nodes,
		c.Lag, c.Seed)
	var faults []string
	for _, f := range c.Faults {
		faults = append(faults, f.String())
	}
	if len(faults) > 0 {
		fmt.Fprintf(b, " What goes wrong: <code>%s</code>.", html.EscapeString(strings.Join(faults, " ")))
	}
	for _, res := range r.Results {
		fmt.Fprintf(b, " <b>%s</b> is %s.", shown(res.Policy), explained[res.Policy])
	}
	b.WriteString("</p>\n")
	for _, res := range r.Results {
		if res.Remark != "" {
			fmt.Fprintf(b, "<p class=\"lead\"><b>Look at the trace:</b> %s.</p>\n", html.EscapeString(res.Remark))
			break
		}
	}
	for _, res := range r.Results {
		if res.Interrupted {
			fmt.Fprintf(b, "<p class=\"lead\"><b>%s was interrupted:</b> this is what there was until then.</p>\n", shown(res.Policy))
		}
	}
}

// explained says what the policies are.
var explained = map[string]string{
	Ours: "package hotcache",
	Source: "a cache as one writes it: delete on write, memory that only a time to live ends, hot keys that each server finds " +
		"for itself, copies at random places that are each filled from the database",
}

// whole is grouped for a text that is broken at spaces.
func whole(n uint64) string { return strings.ReplaceAll(grouped(n), " ", "\u00a0") }

// figures is the table.
func (r Report) figures(b *strings.Builder) {
	b.WriteString("<div class=\"scroll\"><table><thead><tr><th></th>")
	for _, res := range r.Results {
		fmt.Fprintf(b, `<th class="number"><i class="%s"></i>%s</th>`, res.Policy, shown(res.Policy))
	}
	b.WriteString("<th class=\"what\"></th></tr></thead><tbody>\n")
	for _, l := range lines() {
		fmt.Fprintf(b, "<tr><th>%s<small>%s</small></th>", l.name, l.what) // the one or the other is shown, by the width
		for _, res := range r.Results {
			fmt.Fprintf(b, `<td class="number">%s</td>`, l.value(res))
		}
		fmt.Fprintf(b, "<td class=\"what\">%s</td></tr>\n", l.what)
	}
	b.WriteString("</tbody></table></div>\n")
}

// perSecond returns a series of a result as a rate.
func perSecond(res *Result, of func(*Bucket) float64) []float64 {
	out := make([]float64, len(res.Series))
	for i := range res.Series {
		out[i] = of(&res.Series[i]) / (float64(res.Bucket) / 1e9)
	}
	return out
}

// span is how many seconds the series of a result cover.
func span(res *Result) float64 { return float64(len(res.Series)) * float64(res.Bucket) / 1e9 }

// over makes a plot over time with a line for each result.
func (r Report) over(title, note string, of func(*Result) []float64) plot {
	p := plot{title: title, note: note}
	for _, res := range r.Results {
		p.seconds = max(p.seconds, span(res))
		p.rows = append(p.rows, plotRow{shown(res.Policy), res.Policy, of(res)})
	}
	return p
}

func (r Report) plots() []plot {
	load := plot{title: "Load of each node", note: "Questions that reads asked it. Even is good."}
	for _, res := range r.Results {
		row := plotRow{name: shown(res.Policy), class: res.Policy}
		for i, n := range res.NodeLoad {
			row.values = append(row.values, float64(n))
			if len(load.bars) <= i {
				load.bars = append(load.bars, fmt.Sprint(i))
			}
		}
		load.rows = append(load.rows, row)
	}
	out := []plot{load}
	uneven := r.over("Busiest node against the mean", "Over time. 1 is even.", func(res *Result) []float64 {
		values := make([]float64, len(res.Series))
		for i, b := range res.Series {
			most, sum := uint64(0), uint64(0)
			for _, n := range b.NodeLoad {
				most, sum = max(most, n), sum+n
			}
			if sum >= 20*uint64(len(b.NodeLoad)) { // with fewer it is noise
				values[i] = float64(most) * float64(len(b.NodeLoad)) / float64(sum)
			} else if i > 0 {
				values[i] = values[i-1]
			}
		}
		return values
	})
	out = append(out, uneven)
	for _, res := range r.Results {
		out = append(out, answers(res))
	}
	out = append(out,
		r.over("Reads of the database", "A second.", func(res *Result) []float64 {
			return perSecond(res, func(b *Bucket) float64 { return float64(b.DBReads) })
		}),
		r.over("Stale reads", "A second: older than the last write that was finished when they began.", func(res *Result) []float64 {
			return perSecond(res, func(b *Bucket) float64 { return float64(b.StaleReads) })
		}),
		r.over("Hot keys", "As a server sees them.", func(res *Result) []float64 {
			values := make([]float64, len(res.Series))
			for i, b := range res.Series {
				values[i] = float64(b.HotKeys)
			}
			return values
		}))
	if len(r.Results) > 0 {
		out = append(out, mostRead(r.Results[0]))
	}
	return out
}

// answers shows where the answers of one policy came from.
func answers(res *Result) plot {
	p := plot{title: "Who answers: " + shown(res.Policy), note: "Reads a second.", seconds: span(res), stacked: true}
	p.rows = []plotRow{
		{"memory of the server", "memory", perSecond(res, func(b *Bucket) float64 { return float64(b.L1Hits) })},
		{"a node", "atnode", perSecond(res, func(b *Bucket) float64 { return float64(b.NodeHits) })},
		{"a load", "byload", perSecond(res, func(b *Bucket) float64 {
			return float64(b.Reads) - float64(b.L1Hits+b.NodeHits+b.FailedReads)
		})},
		{"nobody", "nobody", perSecond(res, func(b *Bucket) float64 { return float64(b.FailedReads) })},
	}
	return p
}

func mostRead(res *Result) plot {
	p := plot{title: "Keys that were read most", note: "Reads of each, by rank; their names are listed below.", bars: []string{}}
	row := plotRow{name: "reads", class: "plain"}
	for i, k := range res.Top {
		p.bars = append(p.bars, fmt.Sprintf("%d", i+1))
		row.values = append(row.values, float64(k.Reads))
	}
	p.rows = []plotRow{row}
	return p
}

// settings lists what the run was made with, and which keys were read most.
func (r Report) settings(b *strings.Builder) {
	b.WriteString("<details><summary>Settings</summary><dl>")
	for _, s := range r.Config.Settings() {
		fmt.Fprintf(b, "<dt>%s</dt><dd>%s</dd>", html.EscapeString(s.Name), html.EscapeString(s.Value))
	}
	b.WriteString("</dl></details>\n")
	if len(r.Results) == 0 {
		return
	}
	b.WriteString("<details><summary>Keys that were read most</summary><ol>")
	for _, k := range r.Results[0].Top {
		fmt.Fprintf(b, "<li><code>%s</code> %s</li>", html.EscapeString(cut(k.Key, 80)), whole(k.Reads))
	}
	b.WriteString("</ol></details>\n")
}
