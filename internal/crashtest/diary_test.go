//go:build linux

package crashtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/lease"
)

// What an entry of a diary says.
const (
	connected = "connected" // a session was opened
	asked     = "asked"     // a request is sent
	got       = "got"       // it was granted
	failed    = "failed"    // it was not
	still     = "still"     // the holder looked, and has it up to a later time
	renewed   = "renewed"   // with another ttl
	drop      = "drop"      // the holder stops, and then releases
	dropped   = "dropped"   // how the release went
	lost      = "lost"      // the service told of a loss
	listed    = "listed"    // what the broker says is held
	killed    = "killed"    // the broker was
	trouble   = "trouble"   // something that must not happen
)

// entry is one line of a diary. Times are nanoseconds of CLOCK_MONOTONIC, which is one for all processes.
type entry struct {
	At    int64         `json:"at"`
	What  string        `json:"what"`
	Who   string        `json:"who"`             // one worker of a client process
	ID    string        `json:"id,omitempty"`    // of the request
	From  int64         `json:"from,omitempty"`  // when it was asked for, of an answer
	Ask   lease.Request `json:"ask,omitzero"`    // asked
	TTL   time.Duration `json:"ttl,omitempty"`   // renewed
	Held  []lease.Hold  `json:"held,omitempty"`  // what was granted, lost or listed
	Until int64         `json:"until,omitempty"` // up to when the holder may act; 0 for not at all
	Code  lease.Code    `json:"code,omitempty"`
	Text  string        `json:"text,omitempty"`
}

// clock reads the clock that all processes share.
func clock() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock is always there
	}
	return ts.Nano()
}

// onClock turns an instant of this process into one of the shared clock, too early rather than too late.
func onClock(t time.Time) int64 {
	now := clock()
	return now + int64(time.Until(t))
}

// diary is what a process writes down. Each entry is in the file before what follows it is done, so that a process that
// is killed leaves all that it had acted on.
type diary struct {
	mu sync.Mutex // guards the order: an entry's time is not before that of the entry above
	f  *os.File
}

func openDiary(path string) (*diary, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &diary{f: f}, err
}

// write adds an entry and returns its time.
func (d *diary) write(e entry) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.At = clock()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = d.f.Write(append(line, '\n'))
	}
	if err != nil {
		panic(fmt.Sprintf("diary: %v", err)) // nothing is proved without it
	}
	return e.At
}

// readDiaries merges the entries of several files in the order of their times. The last line of a process that was
// killed may be cut.
func readDiaries(paths []string) ([]entry, error) {
	var all []entry
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var e entry
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, line, err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
