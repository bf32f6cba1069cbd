package main

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
)

// Data of others and of later versions is explained, and left alone, by every verb.
func TestMapForeignAndNewerData(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.server.Do("SET", "latchkey:map:{text}", "x")
	m.server.Do("HSET", "latchkey:map:{hash}", "field", "value")
	m.server.Do("HSET", "latchkey:map:{newer}", "", "2 whatever is there then")
	for _, name := range []string{"text", "hash", "newer"} {
		want, code := "was not written by Latchkey, and is left alone", "foreign"
		if name == "newer" {
			want, code = "was written by a newer version of Latchkey", "newer_format"
		}
		for _, args := range [][]string{{"get", name, "k"}, {"set", name, "k", "v"}, {"del", name, "k"},
			{"del", name, "--all", "--yes"}, {"ls", name}, {"status", name}, {"watch", name}} {
			m.run(args...).want(t, 1, "", want)
			m.run(append(args, "--json")...).want(t, 1, `"code":"`+code+`"`, "")
		}
	}
	if got := m.server.Text("GET", "latchkey:map:{text}") + m.server.Text("HGET", "latchkey:map:{hash}", "field"); got != "xvalue" {
		t.Errorf("what was there has become %q", got)
	}
	// Maps of programs with a prefix of their own.
	m.set("text", "k", "v", "--namespace", "mine:")
	if m.server.Int("EXISTS", "mine:{text}") != 1 {
		t.Error("the map is not below its namespace")
	}
}

// A field that something else wrote into a map is no value: it is named, and can be replaced and removed.
func TestMapFieldOfAnother(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "k", "v")
	plant := func() {
		m.server.Do("HSET", "latchkey:map:{m}", "alien", "x")
		m.server.Do("DEL", "latchkey:map:{m}:log")
	}
	plant()
	m.run("get", "m", "alien").want(t, 1, "", "was not written by Latchkey, and no program reads it")
	m.run("get", "m", "alien", "--json").want(t, 1, `"code":"foreign"`, "")
	m.run("ls", "m").want(t, 0, "1 key", "not listed: what is under alien in map m was not written by Latchkey")
	m.set("m", "alien", "mended")
	m.run("get", "m", "alien").want(t, 0, "mended", "")
	plant()
	m.revision(m.run("del", "m", "alien"))
}

func TestMapStoreThatIsNoneOrAway(t *testing.T) {
	m := &testMaps{t: t}
	for address, want := range map[string]string{
		"":                               "which store? Set --store or $LATCHKEY_STORE",
		"http://127.0.0.1:1":             "begins with redis://",
		"127.0.0.1:6379":                 "the URL of the store",
		"redis://127.0.0.1:1":            "nobody listens at redis://127.0.0.1:1: start a Redis there",
		"unix:///no/such.sock":           "nobody listens at unix:/no/such.sock",
		"redis://127.0.0.1:1/zero":       "the URL of the server",
		"redis://u:se/cret@127.0.0.1:1":  "%2F for /",
		"redis://u:123/cret@127.0.0.1:1": "%2F for /",
		"redis://u:s#cret@127.0.0.1:1":   "%2F for /",
		"redis://u:cret%zz@127.0.0.1:1":  "%2F for /",
	} {
		m.url = address
		r := m.run("get", "m", "k")
		r.want(t, 1, "", want)
		if strings.Contains(r.err, "cret") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: got %q, want one line without the password", address, r.err)
		}
	}
	m.url = "redis://127.0.0.1:1"
	m.run("get", "redis://:cret@127.0.0.1:1", "k").want(t, 1, "", "the name of a map comes first, and a URL belongs behind --store")
	for _, args := range [][]string{{"redis://:cret@h"}, {"get", "redis://:cret@h"}, {"get", "m", "k", "redis://:cret@h"},
		{"ls", "m", "redis://:cret@h"}, {"status"}, {"set", "m", "k"}, {"get", "a b", "k"}, {"ls", "m", "--timeout", "0s"}} {
		if r := m.run(args...); r.code != 1 || r.out != "" || strings.Contains(r.err, "cret") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("map %s: got %+v, want one line of an error", args, r)
		}
	}
	if r := m.run("get", "m", "k", "--json"); !strings.Contains(r.out, `"code":"unavailable"`) || r.err != "" {
		t.Errorf("got %+v, want an error as JSON", r)
	}
	for _, args := range [][]string{{"--help"}, {"get", "--help"}} {
		m.url = "redis://:cret@127.0.0.1:1"
		if r := m.run(args...); r.code != 0 || strings.Contains(r.out+r.err, "cret") {
			t.Errorf("map %s shows the password", args)
		}
	}
}

// Whatever goes wrong, and whatever goes well, the password of the store is never shown.
func TestMapPassword(t *testing.T) {
	const secret = "pa55 wörd/@:#"
	m := startMaps(t, redistest.Options{Password: secret, Users: []string{
		"reader on >" + "cret ~latchkey:map:* &latchkey:map:* +@read +@connection +@pubsub +time",
		"deaf on >" + "cret ~latchkey:map:* resetchannels +@read +@write +@scripting +@connection +@pubsub +time"}})
	var all strings.Builder
	check := func(r result, code int, out, errOut string) {
		t.Helper()
		r.want(t, code, out, errOut)
		all.WriteString(r.out + r.err)
	}
	check(m.run("set", "m", "k", "v"), 0, "-", "begins now")
	check(m.run("status", "m"), 0, "m in redis://"+m.server.Addr()+"\n", "")
	check(m.run("status", "m", "--json"), 0, `"store":"redis://`+m.server.Addr()+`"`, "")
	check(m.run("get", "m", "none"), 1, "", "no key none")
	full := m.url
	as := func(user, password string) {
		u := url.URL{Scheme: "redis", Host: m.server.Addr(), User: url.UserPassword(user, password)}
		m.url = u.String()
	}
	m.url = "redis://" + m.server.Addr()
	check(m.run("get", "m", "k"), 1, "", "demands a password: put it into the URL in $LATCHKEY_STORE")
	as("", "wrong"+secret)
	check(m.run("get", "m", "k"), 1, "", "does not know the user and password")
	as("reader", "cret")
	check(m.run("get", "m", "k"), 0, "v", "")
	check(m.run("set", "m", "k", "w"), 1, "", "does not permit that to this user: NOPERM")
	as("deaf", "cret")
	check(m.run("get", "m", "k", "--timeout", "2s"), 1, "", "does not permit that to this user: redis refuses to subscribe")
	m.url = full
	m.server.Kill()
	check(m.run("get", "m", "k"), 1, "", "nobody listens at redis://"+m.server.Addr())
	for _, word := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), "cret", "w%C3%B6rd", "pa55"} {
		if strings.Contains(all.String(), word) {
			t.Errorf("%q is shown in:\n%s", word, &all)
		}
	}
}

// A store that hangs is given up within the time limit, and a write that was sent to one has an unknown outcome.
func TestMapStoreThatHangs(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	m.set("m", "k", "v")
	m.server.Do("CLIENT", "PAUSE", "60000", "WRITE")
	r := m.run("set", "m", "k", "w", "--timeout", "2s")
	r.want(t, 1, "", "did not answer, so nobody knows whether it was written: look with `latchkey map get m KEY`")
	m.run("del", "m", "k", "--timeout", "2s", "--json").want(t, 1, `"code":"unknown"`, "")
	m.run("get", "m", "k").want(t, 0, "v", "")
	m.server.Do("CLIENT", "UNPAUSE")

	m.server.Freeze()
	began := time.Now()
	m.run("get", "m", "k", "--timeout", "300ms").want(t, 1, "", "no answer from redis://"+m.server.Addr()+" in time")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v to give up after 300 ms", took)
	}
	m.server.Thaw()
	m.run("get", "m", "k").want(t, 0, "v", "")

	// ^C is heard while it waits.
	relay := redistest.NewRelay(t, m.server.Addr())
	relay.Freeze(redistest.Both)
	m.url = "redis://" + relay.Addr()
	cmd := m.command("get", "m", "k", "--timeout", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has connected", func() bool { return relay.Accepted() > 0 })
	began = time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code, took := waitFor(t, cmd), time.Since(began); code != 130 || took > 10*time.Second {
		t.Errorf("it ended with %d after %v, want 130 at once", code, took)
	}
}

// Every verb of map prints JSON that can be read, one object a line.
func TestMapJSON(t *testing.T) {
	m := startMaps(t, redistest.Options{})
	for _, args := range [][]string{{"set", "m", "<&>", "<&>"}, {"get", "m", "<&>"}, {"ls", "m"}, {"status", "m"},
		{"get", "m", "none"}, {"del", "m", "<&>"}, {"del", "m", "--all", "--yes"}, {"del", "m", "none"}} {
		r := m.run(append(args, "--json")...)
		if r.err != "" || strings.Count(r.out, "\n") != 1 || !json.Valid([]byte(r.out)) || strings.Contains(r.out, `\u0026`) {
			t.Errorf("map %s --json: got %+v", args, r)
		}
	}
}
