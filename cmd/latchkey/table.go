package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/lease"
)

// style is how text may look where it goes.
type style struct {
	width  int // columns of the terminal; zero when it is none, and nothing is cut
	colour bool
}

// styleOf looks at what a file is. Colour is for terminals that have not asked
// for none: see no-color.org.
func styleOf(f *os.File, env func(string) (string, bool)) style {
	width := terminalWidth(f)
	if width == 0 {
		return style{}
	}
	none, _ := env("NO_COLOR")
	term, _ := env("TERM")
	return style{width: width, colour: none == "" && term != "dumb" && term != "" && canColour}
}

// Colours are SGR codes. They repeat what the text says, and are never needed to
// read it.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s style) paint(code, text string) string {
	if !s.colour || text == "" || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// cell is one field of a table.
type cell struct {
	text   string
	colour string
}

// column is a heading and how its cells are laid out.
type column struct {
	name  string
	right bool // numbers
	cut   bool // may be cut when the terminal is too narrow
	spare bool // is left out when otherwise nothing would be left of those
}

// table lays out rows in columns.
type table struct {
	columns []column
	rows    [][]cell
}

const gap = "  "

// render lays the table out as wide as the terminal allows.
func (t *table) render(s style) string {
	t.spare(s.width)
	widths := t.widths(s.width)
	var b strings.Builder
	head := make([]cell, len(t.columns))
	for i, c := range t.columns {
		head[i] = cell{c.name, bold}
	}
	t.renderRow(&b, s, widths, head)
	for _, row := range t.rows {
		t.renderRow(&b, s, widths, row)
	}
	return b.String()
}

func (t *table) renderRow(b *strings.Builder, s style, widths []int, row []cell) {
	blanks := 0
	for i, c := range row {
		text := cut(c.text, widths[i])
		room := widths[i] - displayWidth(text)
		if i > 0 {
			blanks += len(gap)
		}
		if t.columns[i].right {
			blanks += room
			room = 0
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", blanks) + s.paint(c.colour, text))
			blanks = 0
		}
		blanks += room
	}
	b.WriteByte('\n')
}

// cutWidth is what a column that may be cut should keep, as long as others can be
// spared.
const cutWidth = 24

// spare leaves out the columns that can be spared, if the terminal is so narrow that
// those that may be cut would not keep enough, or that cutting does not make it fit.
func (t *table) spare(limit int) {
	narrow := func(w int, c column) bool { return c.cut && w < cutWidth }
	full, cut := t.widths(0), t.widths(limit)
	total := len(gap) * (len(t.columns) - 1)
	for _, w := range cut {
		total += w
	}
	short := limit > 0 && total > limit
	for i, c := range t.columns {
		short = short || narrow(cut[i], c) && cut[i] < full[i]
	}
	for i := len(t.columns) - 1; i >= 0 && short; i-- {
		if !t.columns[i].spare {
			continue
		}
		t.columns = slices.Delete(t.columns, i, i+1)
		for r := range t.rows {
			t.rows[r] = slices.Delete(t.rows[r], i, i+1)
		}
	}
}

// widths are those of the contents, less what the widest columns that may be cut
// must give up to fit.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.columns))
	total := len(gap) * (len(t.columns) - 1)
	for i, c := range t.columns {
		widths[i] = displayWidth(c.name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], displayWidth(row[i].text))
		}
		total += widths[i]
	}
	for limit > 0 && total > limit {
		widest := -1
		for i, c := range t.columns {
			if c.cut && widths[i] > 8 && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// cut shortens text to a width; the sign at its end shows that it was.
func cut(text string, width int) string {
	if displayWidth(text) <= width {
		return text
	}
	n := 0
	for i, r := range text {
		if n += runeWidth(r); n >= width {
			return text[:i] + "…"
		}
	}
	return text
}

func displayWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is the number of columns that terminals give a character: two for
// the wide ones of East Asia and for pictures, none for marks.
func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// plain shows text that others chose: as it is when it can be seen for what it
// is, and quoted when not, so that it cannot pass for anything else or reach the
// terminal as a command.
func plain(s string) string {
	if s == "" || strings.TrimSpace(s) != s || strings.HasPrefix(s, `"`) || !utf8.ValidString(s) {
		return strconv.Quote(s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return strconv.Quote(s)
		}
	}
	return s
}

// span shows a duration in at most two units, the smaller ones cut off.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(a time.Duration, an string, b time.Duration, bn string) string {
		s := strconv.FormatInt(int64(d/a), 10) + an
		if rest := d % a / b; rest > 0 {
			s += strconv.FormatInt(int64(rest), 10) + bn
		}
		return s
	}
	switch {
	case d == lease.Forever:
		return "never"
	case d < 0:
		return "0s"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Truncate(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Minute:
		return two(time.Second, "s", time.Second, "")
	case d < time.Hour:
		return two(time.Minute, "m", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "m")
	}
	return two(day, "d", time.Hour, "h")
}

// ordinal is 1st, 2nd, 3rd, …
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}

// who shows a party as people say it: alice@host pid 4 "label".
func who(p lease.Party) string {
	s := plain(p.Session)
	if p.Session == "" {
		s = "(unnamed)"
	}
	if p.Host != "" {
		s += "@" + plain(p.Host)
	}
	if p.PID != 0 {
		s += " pid " + strconv.Itoa(p.PID)
	}
	if p.Label != "" {
		s += " " + strconv.Quote(p.Label)
	}
	return s
}

// mode shows a mode and its limit.
func mode(m lease.Mode, limit int) string {
	if m == lease.Counted {
		return "counted, max " + strconv.Itoa(limit)
	}
	return m.String()
}

// count shows a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
