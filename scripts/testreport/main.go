// Command testreport reads `go test -json` on standard input and prints what a person wants to see of it: one line a
// package, the output of every test that failed, the attributes that tests gave themselves, every skipped test with its
// reason, and a last line with the counts.
//
// It exits with 1 when a test or a package failed, and when no test ran at all, so that an empty run is never green.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of test2json; only the fields that are used here.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build, where Package is empty
	Test        string
	Output      string
	FailedBuild string
	Key, Value  string // of an attribute
}

// key names one test, or a whole package when test is empty.
type key struct{ pkg, test string }

// report gathers events. Output is held back until a test's fate is known, then printed or dropped.
type report struct {
	out     io.Writer
	output  map[key][]string
	notes   []string // attributes
	skips   []string
	passed  int
	failed  int
	skipped int
	broken  int // packages that failed
}

func main() {
	r := &report{out: os.Stdout, output: make(map[key][]string)}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.close() {
		os.Exit(1)
	}
}

// read consumes the whole stream. A line that is not an event is passed on as it is: it comes from the go command.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.add(e)
	}
	return lines.Err()
}

func (r *report) add(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.output[key{e.ImportPath, ""}] = append(r.output[key{e.ImportPath, ""}], e.Output)
	case "output":
		r.output[k] = append(r.output[k], e.Output)
	case "attr":
		r.notes = append(r.notes, fmt.Sprintf("%s %s: %s", k.pkg, e.Key, e.Value))
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e)
		} else {
			r.endTest(k, e.Action)
		}
	}
}

func (r *report) endTest(k key, action string) {
	switch action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", k.pkg, k.test, reason(r.output[k])))
	case "fail":
		r.failed++
		r.print(k)
	}
	delete(r.output, k)
}

// endPackage prints the package's line. In a failed package the output of tests that never ended comes first: that
// is where a panic or a timeout is.
func (r *report) endPackage(e event) {
	whole := key{e.Package, ""}
	if e.Action == "fail" {
		r.broken++
		if e.FailedBuild != "" {
			r.print(key{e.FailedBuild, ""})
		}
		for k := range r.output {
			if k.pkg == e.Package && k.test != "" {
				r.print(k)
			}
		}
		r.print(whole) // ends in the line "FAIL", package, time
	} else {
		r.printLast(whole)
	}
	for k := range r.output {
		if k.pkg == e.Package {
			delete(r.output, k)
		}
	}
}

func (r *report) print(k key) {
	for _, line := range r.output[k] {
		fmt.Fprint(r.out, line)
	}
}

// printLast prints the "ok" or "no test files" line, which the go command writes last.
func (r *report) printLast(k key) {
	if lines := r.output[k]; len(lines) > 0 {
		fmt.Fprint(r.out, lines[len(lines)-1])
	}
}

func (r *report) list(head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(r.out, head)
	for _, l := range lines {
		fmt.Fprintln(r.out, "  "+l)
	}
}

// close prints attributes, skips and counts, and says whether the run was good.
func (r *report) close() bool {
	r.list("attributes:", r.notes)
	r.list("skipped:", r.skips)
	if r.broken > 0 {
		fmt.Fprintf(r.out, "%d package(s) failed\n", r.broken)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	if r.passed+r.failed+r.broken == 0 {
		fmt.Fprintln(r.out, "no test ran: that is a failure")
		return false
	}
	return r.failed == 0 && r.broken == 0
}

// reason finds what the test said when it skipped: its last line of output that is not a frame of the test runner.
func reason(output []string) string {
	for i := len(output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(output[i])
		if line != "" && !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "=== ") {
			return line
		}
	}
	return "no reason given"
}
