package httpserve

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/latchkey-go/latchkey/lease"
)

const (
	shownHolders = 20 // of one key on the page
	shownWaiters = 10
)

// summary is what the live parts of the page show.
type summary struct {
	Base       string
	Prefix     string
	Trouble    string // why nothing is known
	Failed     string
	Recovering time.Duration
	Stats      lease.Stats
	Grants     rate
	Expiries   rate
	Top        []topRow
	Keys       []keyRow
	From       string       // the listing starts behind this key
	Next       template.URL // query of the next page
	First      template.URL // query of the first page
	Filtered   bool
}

// rate is a curve of events per second.
type rate struct {
	Known bool
	Now   float64
	Most  float64
	Line  string // points of the curve in a box of 100 by 24
	Area  string // points of the area below it
}

type topRow struct {
	Key     string
	Waiting int
	Share   int // of the most contended key's waiters, in percent
	Longest time.Duration
}

type keyRow struct {
	Key         string
	Holders     []holderRow
	Waiters     []lease.Waiter
	Waiting     int
	MoreHolders int
	MoreWaiters int
	Delay       time.Duration
}

type holderRow struct {
	lease.Holder
	Permille int // of its ttl that is left
}

// Forever reports whether the hold never expires by itself.
func (h holderRow) Forever() bool { return h.TTL == lease.Forever || h.Remaining == lease.Forever }

// Low reports whether less than a quarter of the ttl is left.
func (h holderRow) Low() bool { return !h.Forever() && h.Permille < 250 }

// digest turns a look into what the page shows of it.
func digest(v view, l *look) summary {
	d := summary{Base: v.base, Prefix: v.prefix, From: v.after, Filtered: v.prefix != "" || v.after != ""}
	if l.err != nil {
		d.Trouble = reason(l.err)
		return d
	}
	d.Stats, d.Failed, d.Recovering = l.stats, l.stats.Failed, l.stats.Recovering
	d.Grants = rateOf(l.samples, func(s sample) uint64 { return s.granted })
	d.Expiries = rateOf(l.samples, func(s sample) uint64 { return s.expired })
	for _, k := range l.top.Keys {
		d.Top = append(d.Top, topRowOf(k, l.top.Keys[0].Waiting))
	}
	for _, k := range l.keys.Keys {
		d.Keys = append(d.Keys, keyRowOf(k))
	}
	if n := len(l.keys.Keys); l.keys.More && n > 0 {
		d.Next = template.URL(query(v.prefix, l.keys.Keys[n-1].Key)) // encoded already
	}
	d.First = template.URL(query(v.prefix, ""))
	return d
}

func topRowOf(k lease.KeyInfo, most int) topRow {
	t := topRow{Key: k.Key, Waiting: k.Waiting, Share: 100 * k.Waiting / max(most, 1)}
	for _, w := range k.Waiters {
		t.Longest = max(t.Longest, w.Age)
	}
	return t
}

func keyRowOf(k lease.KeyInfo) keyRow {
	row := keyRow{Key: k.Key, Waiters: k.Waiters, Waiting: k.Waiting, Delay: k.Delay}
	for i, h := range k.Holders {
		if i == shownHolders {
			row.MoreHolders = len(k.Holders) - shownHolders
			break
		}
		r := holderRow{Holder: h}
		if !r.Forever() && h.TTL > 0 {
			r.Permille = int(min(max(1000*h.Remaining.Seconds()/h.TTL.Seconds(), 0), 1000))
		}
		row.Holders = append(row.Holders, r)
	}
	if len(row.Waiters) > shownWaiters {
		row.Waiters = row.Waiters[:shownWaiters]
	}
	row.MoreWaiters = max(k.Waiting-len(row.Waiters), 0)
	return row
}

// rateOf draws the growth of a counter between samples. The time axis ends at
// the newest sample.
func rateOf(samples []sample, value func(sample) uint64) rate {
	if len(samples) < 2 {
		return rate{}
	}
	var r rate
	rates := make([]float64, len(samples)-1)
	for i := range rates {
		a, b := samples[i], samples[i+1]
		rates[i] = float64(value(b)-value(a)) / b.at.Sub(a.at).Seconds()
		r.Most = max(r.Most, rates[i])
	}
	r.Known, r.Now = true, rates[len(rates)-1]
	end := samples[len(samples)-1].at
	x := func(t time.Time) float64 { return max(100-100*end.Sub(t).Seconds()/rateWindow.Seconds(), 0) }
	const bottom, height = 24.0, 22.0
	var line strings.Builder
	for i, v := range rates {
		y := bottom
		if r.Most > 0 {
			y -= height * v / r.Most
		}
		if i == 0 {
			fmt.Fprintf(&line, "%.1f,%.1f", x(samples[0].at), y)
		}
		fmt.Fprintf(&line, " %.1f,%.1f", x(samples[i+1].at), y)
	}
	r.Line = line.String()
	r.Area = fmt.Sprintf("%.1f,%.0f %s 100,%.0f", x(samples[0].at), bottom, r.Line, bottom)
	return r
}

// plain shows a name as it is when it can be seen for what it is, and quoted when a
// part of it is invisible, ends a line, or turns around what comes after it.
func plain(s string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if strings.TrimSpace(s) != s || strings.ContainsFunc(s, hidden) {
		return strconv.Quote(s)
	}
	return s
}

func forever(d time.Duration) bool { return d == lease.Forever }

// span renders a duration with its two largest units.
func span(d time.Duration) string {
	unit := func(n time.Duration, big, small time.Duration, bigName, smallName string) string {
		if rest := n % big / small; rest > 0 {
			return fmt.Sprintf("%d\u202f%s %d\u202f%s", n/big, bigName, rest, smallName)
		}
		return fmt.Sprintf("%d\u202f%s", n/big, bigName)
	}
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d\u202fms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f\u202fs", math.Floor(d.Seconds()*10)/10)
	case d < time.Minute:
		return fmt.Sprintf("%d\u202fs", d/time.Second)
	case d < time.Hour:
		return unit(d, time.Minute, time.Second, "min", "s")
	case d < day:
		return unit(d, time.Hour, time.Minute, "h", "min")
	default:
		return unit(d, day, time.Hour, "d", "h")
	}
}

// count renders a number with its thousands apart.
func count(n any) string {
	text := fmt.Sprint(n)
	var out []byte
	for i := range len(text) {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			out = append(out, "\u202f"...)
		}
		out = append(out, text[i])
	}
	return string(out)
}

// decimal renders a rate: one decimal place while that says something.
func decimal(f float64) string {
	if f < 100 && f != math.Trunc(f) {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return count(int64(math.Round(f)))
}

// ordinal renders a place in a queue, counted from 0.
func ordinal(i int) string {
	n := i + 1
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
