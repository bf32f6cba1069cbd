package sim

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// The size of a plot in its own units, and what is left for the axes.
const (
	plotWide, plotHigh = 640.0, 280.0
	plotLeft, plotDown = 74.0, 44.0
	plotTop, plotRight = 12.0, 14.0
)

// A plot is drawn as SVG by hand: the page must stand alone, and has few kinds of them.
type plot struct {
	title, note string
	seconds     float64 // along the axis; 0 when there is none
	rows        []plotRow
	bars        []string // names of the groups, for bars
	stacked     bool
	limit       float64 // of the axis at least; 0 is any
}

// A plotRow is one line, layer or colour of bars. class has the colour.
type plotRow struct {
	name, class string
	values      []float64
}

func (p *plot) points() int {
	n := len(p.bars)
	for _, r := range p.rows {
		n = max(n, len(r.values))
	}
	return n
}

// top is where the axis ends: a round number that no value exceeds.
func (p *plot) top() float64 {
	most := p.limit
	for i := range p.points() {
		sum := 0.0
		for _, r := range p.rows {
			if i >= len(r.values) {
				continue
			}
			if p.stacked {
				sum += r.values[i]
			} else {
				sum = max(sum, r.values[i])
			}
		}
		most = max(most, sum)
	}
	if most <= 0 {
		return 1
	}
	step := tick(most)
	return math.Ceil(most/step-1e-9) * step
}

// tick is a round distance of which about four make up a length.
func tick(length float64) float64 {
	raw := length / 4
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*unit {
			return m * unit
		}
	}
	return 10 * unit
}

// short writes a number in few letters.
func short(x float64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if x >= u.of {
			return strconv.FormatFloat(x/u.of, 'g', 3, 64) + u.name
		}
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

func (p *plot) y(v, top float64) float64 {
	return plotHigh - plotDown - v/top*(plotHigh-plotDown-plotTop)
}

func (p *plot) x(i float64, n int) float64 {
	return plotLeft + i/float64(max(n, 1))*(plotWide-plotLeft-plotRight)
}

// draw writes the figure.
func (p *plot) draw(b *strings.Builder) {
	fmt.Fprintf(b, "<figure><figcaption><h2>%s</h2><p>%s</p>", html.EscapeString(p.title), html.EscapeString(p.note))
	if len(p.rows) > 1 {
		b.WriteString(`<p class="legend">`)
		for _, r := range p.rows {
			fmt.Fprintf(b, `<span><i class="%s"></i>%s</span>`, r.class, html.EscapeString(r.name))
		}
		b.WriteString("</p>")
	}
	fmt.Fprintf(b, `</figcaption><svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWide, plotHigh, html.EscapeString(p.title))
	top := p.top()
	p.axes(b, top)
	switch {
	case p.bars != nil:
		p.drawBars(b, top)
	case p.stacked:
		p.drawLayers(b, top)
	default:
		p.drawLines(b, top)
	}
	b.WriteString("</svg></figure>\n")
}

func (p *plot) axes(b *strings.Builder, top float64) {
	step := tick(top)
	for v := 0.0; v <= top+step/2; v += step {
		y := p.y(v, top)
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotLeft, plotWide-plotRight, y, y)
		fmt.Fprintf(b, `<text class="end" x="%g" y="%.1f">%s</text>`, plotLeft-8, y+5, short(v))
	}
	floor := plotHigh - plotDown
	if p.bars == nil && p.seconds > 0 {
		step := tick(p.seconds)
		for s := 0.0; s <= p.seconds*1.001; s += step {
			x := p.x(s/p.seconds, 1)
			anchor := "mid"
			if s+step > p.seconds*1.001 && x > plotWide-40 {
				anchor = "end"
			}
			fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%g">%s s</text>`, anchor, x, floor+26, short(s))
		}
		return
	}
	every := max(1, (len(p.bars)+11)/12)
	for i := 0; i < len(p.bars); i += every {
		fmt.Fprintf(b, `<text class="mid" x="%.1f" y="%g">%s</text>`, p.x(float64(i)+0.5, len(p.bars)), floor+26,
			html.EscapeString(p.bars[i]))
	}
}

func (p *plot) drawBars(b *strings.Builder, top float64) {
	n := len(p.bars)
	each := (p.x(1, n) - p.x(0, n)) * 0.8 / float64(max(len(p.rows), 1))
	for j, r := range p.rows {
		for i, v := range r.values {
			x := p.x(float64(i)+0.1, n) + float64(j)*each
			y := p.y(v, top)
			fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s, %s: %s</title></rect>`, r.class, x, y,
				max(each-1, 0.5), plotHigh-plotDown-y, html.EscapeString(r.name), html.EscapeString(p.bars[i]), short(v))
		}
	}
}

func (p *plot) drawLines(b *strings.Builder, top float64) {
	for _, r := range p.rows {
		fmt.Fprintf(b, `<polyline class="line %s" points="`, r.class)
		for i, v := range r.values {
			fmt.Fprintf(b, "%.1f,%.1f ", p.x(float64(i)+0.5, p.points()), p.y(v, top))
		}
		fmt.Fprintf(b, `"><title>%s</title></polyline>`, html.EscapeString(r.name))
	}
}

func (p *plot) drawLayers(b *strings.Builder, top float64) {
	n := p.points()
	below := make([]float64, n)
	for _, r := range p.rows {
		fmt.Fprintf(b, `<polygon class="%s" points="`, r.class)
		above := make([]float64, n)
		for i := range n {
			above[i] = below[i]
			if i < len(r.values) {
				above[i] += r.values[i]
			}
			fmt.Fprintf(b, "%.1f,%.1f ", p.x(float64(i)+0.5, n), p.y(above[i], top))
		}
		for i := n - 1; i >= 0; i-- {
			fmt.Fprintf(b, "%.1f,%.1f ", p.x(float64(i)+0.5, n), p.y(below[i], top))
		}
		fmt.Fprintf(b, `"><title>%s</title></polygon>`, html.EscapeString(r.name))
		below = above
	}
}
