package process

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// The test binary plays the child: it burns CPU until it is told to end.
func TestMain(m *testing.M) {
	switch os.Getenv("PROCESS_TEST_CHILD") {
	case "burn":
		for {
			if time.Now().IsZero() {
				return
			}
		}
	case "fail":
		_, _ = os.Stderr.WriteString("no luck today\n")
		os.Exit(3)
	}
	os.Exit(m.Run())
}

func TestCPUTimeOfAChildIsSeenWhileItRuns(t *testing.T) {
	t.Setenv("PROCESS_TEST_CHILD", "burn")
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	deadline := time.Now().Add(10 * time.Second)
	p, err := Start(t.Context(), Command{Name: "burner", Program: os.Args[0], Ready: func() error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for CPUTime(p.PID()) < 20*time.Millisecond {
		if time.Now().After(deadline) {
			t.Fatalf("a child that burns CPU is charged with %v", CPUTime(p.PID()))
		}
		<-poll.C
	}
	if rss := Resident(p.PID()); rss < 1<<20 {
		t.Errorf("resident memory of a Go program = %d bytes", rss)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err == nil {
		t.Error("stopping a process that has ended says nothing")
	}
	if got := CPUTime(p.PID()); got != 0 {
		t.Errorf("a process that is gone is charged with %v", got)
	}
}

func TestStartSaysWhyAProgramDidNotStart(t *testing.T) {
	t.Setenv("PROCESS_TEST_CHILD", "fail")
	_, err := Start(t.Context(), Command{Name: "failer", Program: os.Args[0], Ready: func() error { return errors.New("not yet") }})
	if err == nil || !strings.Contains(err.Error(), "no luck today") || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("error = %v, want its output and its exit status", err)
	}
}

func TestMachineTimeMovesOn(t *testing.T) {
	busy, all := MachineTime()
	if busy <= 0 || all <= busy {
		t.Fatalf("busy %v of %v", busy, all)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var out tail
	_, _ = out.Write([]byte(strings.Repeat("a", keptOutput)))
	_, _ = out.Write([]byte("end"))
	if s := out.String(); len(s) != keptOutput || !strings.HasSuffix(s, "aend") {
		t.Fatalf("kept %d bytes ending in %q", len(s), s[max(0, len(s)-4):])
	}
}
