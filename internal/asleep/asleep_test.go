package asleep

import (
	"testing"
	"time"
)

// A mark counts what was slept after it, from a millisecond on.
func TestMarkCountsSleep(t *testing.T) {
	slept := 5 * time.Hour
	c := Told(func() time.Duration { return slept })
	first := c.Mark()
	if d := first.Slept(); d != 0 {
		t.Errorf("slept %v at once, want none", d)
	}
	slept += noise - 1
	if d := first.Slept(); d != 0 {
		t.Errorf("slept %v, want noise to be none", d)
	}
	slept += time.Minute
	second := first.Again()
	if d := first.Slept(); d != time.Minute+noise-1 {
		t.Errorf("slept %v, want a minute", d)
	}
	if d := second.Slept(); d != 0 {
		t.Errorf("slept %v since the second mark, want none", d)
	}
	if d := second.After(first); d != time.Minute+noise-1 {
		t.Errorf("slept %v from mark to mark, want a minute", d)
	}
	slept = 0
	if d := first.Slept(); d != 0 {
		t.Errorf("slept %v by a clock that went back, want none", d)
	}
}

// A mark of no clock counts nothing.
func TestZeroMark(t *testing.T) {
	var none *Clock
	for _, m := range []Mark{{}, none.Mark(), Mark{}.Again()} {
		if m.Counts() || m.Slept() != 0 || m.After(Mark{}) != 0 {
			t.Errorf("%+v counts", m)
		}
	}
}

// The system's clock is read to within a scheduling delay, however the threads
// are interrupted: a machine that runs a test has not slept.
func TestSystemHasNotSlept(t *testing.T) {
	var c Clock
	first := c.Mark()
	for range 20_000 {
		if d := first.Slept(); d > 50*time.Millisecond {
			t.Fatalf("slept %v", d)
		}
		if d := c.Mark().After(first); d > 50*time.Millisecond {
			t.Fatalf("slept %v from mark to mark", d)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = c.Mark().Slept() }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkMark(b *testing.B) {
	var c Clock
	for b.Loop() {
		_ = c.Mark()
	}
}

func BenchmarkSlept(b *testing.B) {
	m := new(Clock).Mark()
	for b.Loop() {
		_ = m.Slept()
	}
}
