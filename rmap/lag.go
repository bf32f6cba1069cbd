package rmap

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A State says how a copy stands to the store.
type State uint8

const (
	// CatchingUp: connected, but something may be missing; the copy is being compared with the store or read anew.
	CatchingUp State = iota
	// Live: every change is followed as it is broadcast, and the last comparison with the store found nothing missing.
	Live
	// CutOff: the subscription does not stand. The copy is what it was.
	CutOff
	// Refused: the store holds what this process must not or cannot read: a newer format, or foreign data.
	Refused
	// Closed: Close was called.
	Closed
)

// String returns the state in words.
func (s State) String() string {
	switch s {
	case CatchingUp:
		return "catching up"
	case Live:
		return "live"
	case CutOff:
		return "cut off"
	case Refused:
		return "refused"
	case Closed:
		return "closed"
	}
	return "unknown state"
}

// A Lag says how old a copy may be.
type Lag struct {
	State State
	// Since is when the state began.
	Since time.Time
	// Age is how long ago the copy was last proved current: it shows every write that finished before then. While the
	// state is Live, what was broadcast since has been applied too, and Age stays below the heartbeat and two of the
	// feed's time limits. It is meaningless before Join has returned.
	Age time.Duration
	// Revision is where the copy stands.
	Revision Revision
	// Err is why the state is not Live, when that is known.
	Err error
}

// Lag says how old the copy may be, and why.
func (m *Map[K, V]) Lag() Lag {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.copy
	return Lag{State: c.state, Since: c.since, Age: m.age(), Revision: c.revision(), Err: c.err}
}

func (m *Map[K, V]) age() time.Duration {
	return time.Duration(m.copy.clock.now() - m.proved.Load())
}

// A StaleError says that the copy is older than [Options.MaxStale] allows. It matches [ErrStale].
type StaleError struct {
	Map   string
	State State
	Age   time.Duration // as in Lag
	Limit time.Duration // MaxStale
}

// Error implements error.
func (e *StaleError) Error() string {
	limit := "only a live one may be read"
	if e.Limit != LiveOnly {
		limit = fmt.Sprintf("the limit is %v", e.Limit)
	}
	return fmt.Sprintf("rmap: the copy of map %q is %v and was last proved current %v ago; %s", e.Map, e.State,
		e.Age.Round(time.Millisecond), limit)
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Fresh returns nil when the copy may be read by the rule in [Options.MaxStale], and a [StaleError] otherwise. It is
// for those who read by Get, All or Snapshot, which serve in any case.
func (m *Map[K, V]) Fresh() error {
	limit := m.opts.MaxStale
	if limit == 0 || limit == LiveOnly && m.live.Load() {
		return nil
	}
	age := m.age()
	if limit > 0 && age <= limit {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &StaleError{Map: m.name, State: m.copy.state, Age: age, Limit: limit}
}

// setState is the one place where the state changes. Closed is for ever.
func (m *Map[K, V]) setState(s State, err error) {
	c := &m.copy
	if c.state == Closed {
		return
	}
	c.err = err
	if s == Live {
		c.err = nil
	}
	if c.state == s {
		return
	}
	from := c.state
	c.state, c.since = s, time.Now()
	m.live.Store(s == Live)
	level := slog.LevelInfo
	if s == CutOff || s == Refused {
		level = slog.LevelWarn
	}
	m.note(level, "state of the copy", "from", from.String(), "to", s.String(), "revision", c.revision().String(), "error", errText(err))
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// isRefusal tells whether an error of the store stays until somebody does something about the data.
func isRefusal(err error) bool { return errors.Is(err, ErrFormat) || errors.Is(err, ErrForeign) }
