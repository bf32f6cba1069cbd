package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

// childDir makes the test binary run as the process that TestKilledProcess kills.
const childDir = "LATCHKEY_JOURNAL_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childDir); path != "" {
		if err := child(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child commits the numbers after those it finds, printing each when it is
// acknowledged, and takes a snapshot of all now and then. It runs until killed.
func child(path string) error {
	n := 0
	j, _, err := journal.Open(path, journal.Options{SegmentSize: 16 << 10}, func(rec []byte) error {
		i, err := number(rec)
		n = max(n, i+1)
		return err
	})
	if err != nil {
		return err
	}
	var state [][]byte
	for i := range n {
		state = append(state, record(i))
	}
	for done := make(chan error, 1); ; n++ {
		state = append(state, record(n))
		j.Append(record(n))
		if err := j.Commit(false); err != nil {
			return err
		}
		fmt.Println(n)
		if n%50 != 0 {
			continue
		}
		s, err := j.Snapshot()
		if err != nil {
			return err
		}
		if err := s.Write(state); err != nil {
			return err
		}
		s.Commit(func(err error) { done <- err })
		if err := <-done; err != nil {
			return err
		}
	}
}

func record(i int) []byte { return fmt.Appendf(nil, "%d %s", i, strings.Repeat("r", i%300)) }

// number undoes record, and refuses anything else.
func number(rec []byte) (int, error) {
	digits, _, _ := strings.Cut(string(rec), " ")
	i, err := strconv.Atoi(digits)
	if err != nil || string(record(i)) != string(rec) {
		return 0, broken("the record %.40q was never appended", rec)
	}
	return i, nil
}

// A process that is killed keeps what it has acknowledged, over several lives.
func TestKilledProcess(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	rounds := 4
	if soak() {
		rounds = 100
	}
	total := 0
	for round := range rounds {
		acked := runAndKill(t, exe, path, 20+37*round%200)
		seen := map[int]bool{}
		j, r, err := journal.Open(path, journal.Options{}, func(rec []byte) error {
			i, err := number(rec)
			seen[i] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Clean {
			t.Error("the end is called clean")
		}
		for i := range acked + 1 {
			if !seen[i] {
				t.Fatalf("round %d: record %d was acknowledged and is missing", round, i)
			}
		}
		total = len(seen)
		if total > acked+2 {
			t.Errorf("round %d: %d records came back, %d were acknowledged", round, total, acked+1)
		}
		closeJournal(t, j)
	}
	t.Logf("%d records over %d killed processes", total, rounds)
}

// runAndKill runs a child until it has acknowledged lines more records, kills it
// and returns the last one that it acknowledged.
func runAndKill(t *testing.T, exe, path string, lines int) int {
	t.Helper()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(out)
	last := -1
	for in.Scan() {
		n, err := strconv.Atoi(in.Text())
		if err != nil {
			break // a line that the kill has cut
		}
		last = n
		if lines--; lines == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Wait(); lines > 0 {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return last
}

// The snapshot's writer runs beside an owner that goes on, and beside readers of
// the counters; nothing is lost. The race detector watches.
func TestSnapshotBesideTheOwner(t *testing.T) {
	path := t.TempDir()
	o := journal.Options{SegmentSize: 8 << 10, Policy: journal.Interval}
	j, _, _ := replay(t, path, o)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _, _ = j.Stats(), j.Size(), j.Err()
				runtime.Gosched()
			}
		}
	})
	n := 0
	add := func() {
		j.Append(record(n))
		n++
		if err := j.Commit(n%16 == 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		for range 40 {
			add()
		}
		snapshotWhile(t, j, n, add)
	}
	close(stop)
	readers.Wait()
	closeJournal(t, j)
	seen := map[int]bool{}
	j, _, err := journal.Open(path, o, func(rec []byte) error {
		i, err := number(rec)
		seen[i] = true
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != n {
		t.Errorf("%d records came back, want %d", len(seen), n)
	}
	closeJournal(t, j)
}

// snapshotWhile hands over n records in pieces while the owner goes on.
func snapshotWhile(t *testing.T, j *journal.Journal, n int, goOn func()) {
	t.Helper()
	s, err := j.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; {
		goOn()
		var piece [][]byte
		for k := i; k < min(i+20, n); k++ {
			piece = append(piece, record(k))
		}
		switch err := s.Write(piece); {
		case err == nil:
			i += len(piece)
		case errors.Is(err, journal.ErrSnapshotBusy):
			<-s.Ready()
		default:
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	s.Commit(func(err error) { done <- err })
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
			goOn()
		}
	}
}
