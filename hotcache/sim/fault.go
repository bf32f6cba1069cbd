package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A FaultKind is what goes wrong.
type FaultKind string

// The kinds of faults.
const (
	Crash    FaultKind = "crash" // servers that write die between the commit and the invalidation
	Lose     FaultKind = "lose"  // messages about invalidations get lost
	Cut      FaultKind = "cut"   // a server hears nothing of what nodes broadcast, and is not told that
	NodeLoss FaultKind = "node"  // a node dies, and comes back empty
	NodeAway FaultKind = "away"  // a node cannot be reached, and comes back with what it had
	Lag      FaultKind = "lag"   // the replica is further behind
)

// A Fault is something that goes wrong for a while, in a form that a flag has: KIND@START[+DURATION][:WHICH].
type Fault struct {
	Kind  FaultKind
	Begin time.Duration // since the work began
	For   time.Duration // 0 for a crash is: the next writer
	Share float64       // of the writers that crash, or the messages that are lost
	Which int           // the node, or the server
	Much  time.Duration // of a lag
}

// ParseFault reads what [Fault.String] writes.
func ParseFault(text string) (Fault, error) {
	kind, rest, ok := strings.Cut(text, "@")
	if !ok {
		return Fault{}, fmt.Errorf("%q has no moment: a fault is KIND@START+DURATION:WHICH, such as node@2s+1s:3", text)
	}
	when, arg, hasArg := strings.Cut(rest, ":")
	begin, length, hasLength := strings.Cut(when, "+")
	f := Fault{Kind: FaultKind(kind), Share: 1}
	var err error
	if f.Begin, err = time.ParseDuration(begin); err != nil || f.Begin < 0 {
		return Fault{}, fmt.Errorf("%q: %q is not a time such as 2s or 500ms", text, begin)
	}
	if hasLength {
		if f.For, err = time.ParseDuration(length); err != nil || f.For <= 0 {
			return Fault{}, fmt.Errorf("%q: %q is not a duration such as 2s or 500ms", text, length)
		}
	}
	if !hasLength && f.Kind != Crash {
		return Fault{}, fmt.Errorf("%q does not say how long: write %s@%s+1s", text, kind, begin)
	}
	if err := f.argument(arg, hasArg); err != nil {
		return Fault{}, fmt.Errorf("%q: %w", text, err)
	}
	return f, nil
}

func (f *Fault) argument(arg string, has bool) error {
	var err error
	switch f.Kind {
	case Crash, Lose:
		if has {
			if f.Share, err = strconv.ParseFloat(arg, 64); err != nil || !(f.Share > 0 && f.Share <= 1) {
				return fmt.Errorf("%q is not a share above 0, up to 1", arg)
			}
		}
	case Cut, NodeLoss, NodeAway:
		if has {
			if f.Which, err = strconv.Atoi(arg); err != nil || f.Which < 0 {
				return fmt.Errorf("%q is not a number of a node or server, from 0", arg)
			}
		}
	case Lag:
		if f.Much, err = time.ParseDuration(arg); err != nil || f.Much < 0 || f.Much > 30*time.Second {
			return fmt.Errorf("%q is not how far the replica is behind, such as 100ms, 30s at most", arg)
		}
	default:
		return fmt.Errorf("there is no fault %q; there are crash, lose, cut, node, away and lag", string(f.Kind))
	}
	return nil
}

// String returns the fault as a flag has it.
func (f Fault) String() string {
	text := fmt.Sprintf("%s@%v", f.Kind, f.Begin)
	if f.For > 0 {
		text += fmt.Sprintf("+%v", f.For)
	}
	switch f.Kind {
	case Crash, Lose:
		if f.Share != 1 {
			text += ":" + strconv.FormatFloat(f.Share, 'g', -1, 64)
		}
		return text
	case Lag:
		return text + ":" + f.Much.String()
	}
	return text + ":" + strconv.Itoa(f.Which)
}

// MarshalText returns the fault as a flag has it.
func (f Fault) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads it.
func (f *Fault) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFault(string(text))
	return err
}

// trouble is what goes wrong now.
type trouble struct {
	crash, lose float64 // shares
	next        int     // crashes that are still to come, one for each fault without a duration
	lag         time.Duration
}

// plan has the faults happen.
func (w *world) plan() {
	w.trouble.lag = w.cfg.Lag
	for _, f := range w.cfg.Faults {
		w.after(f.Begin, func() { w.begin(f) })
		if f.For > 0 {
			w.after(f.Begin+f.For, func() { w.end(f) })
		}
	}
}

func (w *world) begin(f Fault) {
	switch f.Kind {
	case Crash:
		if f.For == 0 {
			w.trouble.next++
			return
		}
		w.trouble.crash = f.Share
	case Lose:
		w.trouble.lose = f.Share
	case Cut:
		w.policy.cut(f.Which, true)
	case NodeLoss, NodeAway:
		w.nodes[f.Which].lose(f.Kind == NodeAway)
		w.policy.lost(f.Which, f.Kind == NodeAway)
	case Lag:
		w.trouble.lag = f.Much
	}
}

func (w *world) end(f Fault) {
	switch f.Kind {
	case Crash:
		w.trouble.crash = 0
	case Lose:
		w.trouble.lose = 0
	case Cut:
		w.policy.cut(f.Which, false)
	case NodeLoss, NodeAway:
		w.nodes[f.Which].out = false
	case Lag:
		w.trouble.lag = w.cfg.Lag
	}
}

// crashes tells whether the writer of now dies after its commit.
func (w *world) crashes() bool {
	if w.trouble.next > 0 {
		w.trouble.next--
		return true
	}
	return w.trouble.crash > 0 && w.random.Float64() < w.trouble.crash
}

// drops tells whether a message about an invalidation gets lost.
func (w *world) drops() bool {
	if w.trouble.lose == 0 || w.random.Float64() >= w.trouble.lose {
		return false
	}
	w.res.LostMessages++
	return true
}
