// Command agent plays a client in Go for the check of all clients. It is told in lines of JSON on standard input what to do,
// and says in such lines on standard output what came of it; the agents of the other languages speak the same lines. See
// clients/README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// longestLine is more than any command needs.
const longestLine = 1 << 20

// A command is one line of input. What is absent has its default.
type command struct {
	Do       string   `json:"do"`
	Addr     string   `json:"addr"`
	Name     string   `json:"name"`
	Grace    int64    `json:"grace"`
	Ref      string   `json:"ref"`
	Keys     []string `json:"keys"`
	Mode     string   `json:"mode"`
	Max      int      `json:"max"`
	TTL      int64    `json:"ttl"`
	Wait     int64    `json:"wait"`
	Try      bool     `json:"try"`
	Label    string   `json:"label"`
	Renew    *bool    `json:"renew"`
	Prefix   string   `json:"prefix"`
	Key      string   `json:"key"`
	InFlight int      `json:"in_flight"`
	MS       int64    `json:"ms"`
}

// event is one line of output.
type event map[string]any

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// run obeys until it is told to close or nobody speaks any more.
func run(in io.Reader, out io.Writer) error {
	a := newAgent(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			a.complain("not a command: %v", err)
			continue
		}
		if c.Do == "close" {
			return a.close()
		}
		a.obey(c)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return a.close()
}
