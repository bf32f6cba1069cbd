//go:build unix

package siege

import (
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
	"github.com/latchkey-go/latchkey/internal/proctest"
)

// quiet ends the writing, waits until all that is owed was told, and has everybody, and one who has just begun, read all
// rows in all ways. Then it ends the processes, and sees that nothing is left of them.
func (s *siege) quiet() {
	began := time.Now()
	for _, p := range s.fleet {
		s.calm(p)
	}
	s.until("the outbox is empty", func() bool { return s.base.number(`select count(*) from latchkey_outbox`) == 0 })
	s.until("the replica has caught up", func() bool {
		return s.base.number(`select count(*) from rows join replica using (id) where rows.version <> replica.version`) == 0
	})
	for key, v := range s.base.versions() {
		if got := s.ledger.finished(key).Load(); got != v && v != 1 {
			s.t.Errorf("row %d is at version %d, and the caches were told of %d", key, v, got)
		}
		rise(s.ledger.committed(key), v) // where a writer did not live to say so
	}
	told := time.Since(began)
	newcomer := s.fleet[s.random.IntN(slots)]
	s.replace(newcomer)
	s.calm(newcomer)
	for _, p := range s.fleet {
		p.Tell("verify")
	}
	for _, p := range s.fleet {
		if got := p.Hear(); got != "verified "+strconv.Itoa(keys-hot+often*hot) {
			s.t.Errorf("process %d, when all is quiet: %s", p.slot, got)
		}
	}
	verified := time.Since(began)
	s.agree()
	s.still()
	for _, p := range s.fleet {
		p.Tell("stop")
	}
	for _, p := range s.fleet {
		p.Wants("stopped")
		p.Finish()
	}
	s.until("no lease is left", func() bool { return s.leases() == "" })
	s.t.Logf("all was told after %v, verified after %v, and over after %v", told, verified, time.Since(began))
}

// agree looks at what the nodes hold themselves.
func (s *siege) agree() {
	held := 0
	for i, n := range s.nodes {
		node, err := hotcacheredis.Open(s.t.Context(), n.URL(), hotcacheredis.Options{Rules: rules()})
		if err != nil {
			s.t.Fatal(err)
		}
		defer node.Close()
		for key, v := range s.base.versions() {
			a, err := node.Ask(s.t.Context(), hotcache.Ask{Key: strconv.FormatInt(key, 10)})
			if err != nil {
				s.t.Fatal(err)
			}
			if a.Item != nil {
				if held++; uint64(a.Item.Version) != v {
					s.t.Errorf("node %d has version %d of row %d, of which the last is %d", i, a.Item.Version, key, v)
				}
			}
		}
	}
	if held < keys/2 {
		s.t.Errorf("the nodes hold %d of %d rows, though all were read", held, keys)
	}
}

// still watches the fleet read for a second in which nothing is written: whatever five processes read, a row is loaded
// once, to be refreshed, beside those that somebody wants fresh.
func (s *siege) still() {
	loads, fresh := s.ledger.counted("loads"), s.ledger.counted("fresh")
	<-time.After(time.Second)
	loads, fresh = s.ledger.counted("loads")-loads, s.ledger.counted("fresh")-fresh
	s.t.Logf("in a second of quiet there were %d loads, %d of them for reads that want them", loads, fresh)
	if loads > fresh+keys+slots*4 {
		s.t.Errorf("%d loads for %d rows when all is quiet, %d of them wanted", loads, keys, fresh)
	}
}

// calm has a process stop writing. One that is to die has had its time.
func (s *siege) calm(p *post) {
	s.t.Helper()
	if p.doomed {
		s.replace(p)
	}
	p.Tell("calm")
	p.Wants("calm")
}

// until waits for something that must come.
func (s *siege) until(what string, is func() bool) {
	s.t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > proctest.Patience {
			s.t.Fatalf("after %v it is not so that %s", time.Since(began), what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// leases are the leases that some node has.
func (s *siege) leases() string {
	var out []string
	for _, n := range s.nodes {
		for _, key := range n.Do("KEYS", "*:load:*").([]any) {
			if text := n.Text("GET", key.(string)); strings.HasPrefix(text, "l ") {
				out = append(out, key.(string))
			}
		}
	}
	return strings.Join(out, " ")
}
