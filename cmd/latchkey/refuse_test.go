//go:build unix

package main

import (
	"net"
	"strings"
	"testing"
)

// A command line that cannot be meant is refused in one line, in words that say
// which part of it and why.
func TestCommandLineRefuses(t *testing.T) {
	b := startBroker(t)
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"lock", "k", "--try", "--wait", "1s"}, "--try and --wait exclude each other"},
		{[]string{"run", "k", "--shared", "--max", "2", "--", "true"}, "--shared and --max exclude each other"},
		{[]string{"ls", "--after", "a", "--contended"}, "--after and --contended exclude each other"},
		{[]string{"lock", "k", "--max", "x"}, `"--max" flag: not a whole number;`},
		{[]string{"lock", "k", "--max", "99999999999999999999"}, `"--max" flag: too large a number;`},
		{[]string{"lock", "k", "--try=perhaps"}, `"--try" flag: neither true nor false;`},
		{[]string{"force", "k", "--token", "-1"}, `"--token" flag: not a whole number from 0;`},
		{[]string{"lock", "k", "--wait", "soon"}, `"--wait" flag: not a duration such as 30s or 5m;`},
		{[]string{"run", "k", "--at-least", "forever", "--", "true"}, `"--at-least" flag: not a duration such as 30s or 5m;`},
		{[]string{"watch", "--key", ""}, "key is empty"},
		{[]string{"lock", "k", "--ttl", "100y"}, "not a duration such as"},
		{[]string{"ls", "--server", "unix:" + strings.Repeat("s", 200)}, "the path of a unix socket may have"},
	} {
		got := b.run(c.args...)
		if got.code != 1 || !strings.Contains(got.err, c.text) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: got %+v; want code 1 and one line with %q", c.args, got, c.text)
		}
	}
}

// What answers may be something else than a broker, or the broker's other address.
func TestServerIsNoBroker(t *testing.T) {
	b := startBroker(t, "--http", "127.0.0.1:0")
	web := strings.TrimSuffix(strings.TrimPrefix(b.web(), "http://"), "/")
	b.run("ls", "--server", web).want(t, 1, "", web+": dial: protocol: what answers speaks HTTP")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write([]byte("220 mail.example ESMTP\r\n"))
			conn.Close()
		}
	}()
	b.run("ls", "--server", l.Addr().String()).want(t, 1, "", "what answers is no Latchkey broker")
}
