package core

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of a report. Keys that do not fit are left out, which its Missing accounts for.
const (
	maxReportKeys  = 256
	maxReportBytes = 16 << 10
	maxReportText  = 64 << 10 // of what is read
	maxReportFrom  = 128
)

// A Report is what one process counted in a window, or a part of one, for the other processes; or the set of hot keys,
// for those that begin. It goes from one to the other as a text.
type Report struct {
	kind string
	from string        // the process
	over time.Duration // how long it was counted
	next time.Duration // when the next is due
	Summary
}

// The kinds of reports.
const (
	reportWindow = "window" // at the end of a window
	reportEarly  = "early"  // within one, since a key became hot
	reportSet    = "set"    // the merged counts of all keys that are hot
)

// IsReport tells whether a text is meant to be a report, whether it can be read or not.
func IsReport(text string) bool { return strings.HasPrefix(text, reportWord) }

const reportWord = "hot1 "

// Early tells whether the report came before the end of its window, since a key became hot.
func (r Report) Early() bool { return r.kind == reportEarly }

// Over sends the report over one node, or over two when it is early. Each turn begins with another node and, where it
// cannot be sent, goes on with the next, twice at most: nodes that do not answer must not hold up the windows.
func (r Report) Over(turn, nodes int, send func(node int) bool) {
	wanted := 1
	if r.Early() {
		wanted = 2
	}
	for i, most := 0, min(nodes, wanted+2); i < most && wanted > 0; i++ {
		if send((turn + i) % nodes) {
			wanted--
		}
	}
}

// String returns the report as it is sent: words with a space between, and the keys in base64, since they are any bytes.
func (r Report) String() string {
	body := make([]byte, 0, 1<<10)
	missing, n := r.Missing, 0
	for _, c := range r.Keys {
		if n == maxReportKeys || len(body)+base64.RawURLEncoding.EncodedLen(len(c.Key))+44 > maxReportBytes {
			missing = max(missing, c.Count)
			continue
		}
		n++
		body = append(body, ' ')
		body = strconv.AppendUint(body, c.Count, 10)
		body = append(body, ' ')
		body = strconv.AppendUint(body, c.Err, 10)
		body = append(body, ' ')
		body = base64.RawURLEncoding.AppendEncode(body, []byte(c.Key))
	}
	return fmt.Sprintf("%s%s %s %d %d %d %d%s", reportWord, r.kind, r.from, r.over.Milliseconds(), r.next.Milliseconds(),
		r.Total, missing, body)
}

var errReport = errors.New("not a report of hot keys")

// ParseReport reads what String wrote. What it returns is within the limits and consistent in itself.
func ParseReport(text string) (Report, error) {
	rest, ok := strings.CutPrefix(text, reportWord)
	if !ok || len(text) > maxReportText {
		return Report{}, errReport
	}
	words := strings.Split(rest, " ")
	if len(words) < 6 || len(words)%3 != 0 || len(words)/3-2 > maxReportKeys {
		return Report{}, errReport
	}
	r := Report{kind: words[0], from: words[1]}
	if r.kind != reportWindow && r.kind != reportEarly && r.kind != reportSet || r.from == "" || len(r.from) > maxReportFrom {
		return Report{}, errReport
	}
	var head [4]uint64
	for i, word := range words[2:6] {
		v, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return Report{}, errReport
		}
		head[i] = v
	}
	const longest = uint64(24 * time.Hour / time.Millisecond)
	if head[0] == 0 || head[0] > longest || head[1] == 0 || head[1] > longest || head[3] > head[2] {
		return Report{}, errReport
	}
	r.over, r.next = time.Duration(head[0])*time.Millisecond, time.Duration(head[1])*time.Millisecond
	r.Total, r.Missing = head[2], head[3]
	seen := map[string]bool{}
	for w := words[6:]; len(w) > 0; w = w[3:] {
		count, err1 := strconv.ParseUint(w[0], 10, 64)
		off, err2 := strconv.ParseUint(w[1], 10, 64)
		key, err3 := base64.RawURLEncoding.Strict().DecodeString(w[2])
		c := Counted{string(key), count, off}
		if err1 != nil || err2 != nil || err3 != nil || off > count || c.Least() > r.Total || len(key) == 0 || seen[c.Key] {
			return Report{}, errReport
		}
		seen[c.Key] = true
		r.Keys = append(r.Keys, c)
	}
	r.sort()
	return r, nil
}
