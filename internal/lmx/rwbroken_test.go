package lmx

import (
	"strings"
	"testing"
)

// Monitors that are wrong, most of them in ways in which brokers of live-mutex are.

// tolerant lets a writer in beside one reader.
type tolerant struct{ exact }

func (b tolerant) put(q question) bool {
	if q.ask == mayWrite && b.writer == nil && b.total == 1 {
		b.writer = q.conn
		return true
	}
	return b.exact.put(q)
}

func (b tolerant) clone() machine { return tolerant{exact{b.monitor.clone()}} }

// doubling counts a reader that had to wait twice.
type doubling struct{ exact }

func (b doubling) wake() []question {
	woken := b.exact.wake()
	for _, q := range woken {
		if q.ask == addReader {
			b.count(q.conn)
		}
	}
	return woken
}

func (b doubling) clone() machine { return doubling{exact{b.monitor.clone()}} }

// loyal keeps the flag of a connection that has ended.
type loyal struct{ exact }

func (b loyal) leave(c *Conn) {
	flag := b.writer
	b.exact.leave(c)
	b.writer = flag
}

func (b loyal) clone() machine { return loyal{exact{b.monitor.clone()}} }

// forgetful wakes one at a time, and forgets the others.
type forgetful struct{ exact }

func (b forgetful) wake() []question {
	woken := b.exact.wake()
	for _, q := range woken[min(1, len(woken)):] {
		switch q.ask {
		case mayWrite:
			b.lower(q.conn)
		case enterRead, addReader:
			b.discount(q.conn)
		}
	}
	return woken[:min(1, len(woken))]
}

func (b forgetful) clone() machine { return forgetful{exact{b.monitor.clone()}} }

// flagless answers a writer that waited and does not put its flag up.
type flagless struct{ exact }

func (b flagless) wake() []question {
	woken := b.exact.wake()
	for _, q := range woken {
		if q.ask == mayWrite {
			b.lower(q.conn)
		}
	}
	return woken
}

func (b flagless) clone() machine { return flagless{exact{b.monitor.clone()}} }

// trusting counts a reader of 0.2.27 although a writer came meanwhile.
type trusting struct{ exact }

func (b trusting) put(q question) bool {
	if q.ask == addReader {
		b.count(q.conn)
		return true
	}
	return b.exact.put(q)
}

func (b trusting) clone() machine { return trusting{exact{b.monitor.clone()}} }

// sleepy tells nobody when a connection ends.
type sleepy struct {
	exact
	asleep *bool
}

func (b sleepy) leave(c *Conn) {
	b.exact.leave(c)
	*b.asleep = true
}

func (b sleepy) wake() []question {
	if *b.asleep {
		*b.asleep = false
		return nil
	}
	return b.exact.wake()
}

func (b sleepy) clone() machine { return sleepy{exact{b.monitor.clone()}, new(bool)} }

// The exploration is able to fail: it rejects what is wrong.
func TestMonitorExplorationFails(t *testing.T) {
	for name, b := range map[string]struct {
		machine  machine
		keepBase bool
		says     string
	}{
		"a writer is let in beside one reader":           {machine: tolerant{exact{&monitor{}}}, says: "beside"},
		"a reader that waited is counted twice":          {machine: doubling{exact{&monitor{}}}, says: "counts"},
		"a flag outlives its connection":                 {machine: loyal{exact{&monitor{}}}, says: "waits for ever"},
		"only one of those who wait is told":             {machine: forgetful{exact{&monitor{}}}, says: "keeps"},
		"a writer that waited has no flag":               {machine: flagless{exact{&monitor{}}}, says: "beside"},
		"a reader is counted beside a writer":            {machine: trusting{exact{&monitor{}}}, says: "beside"},
		"nobody is told of the end of a connection":      {machine: sleepy{exact{&monitor{}}, new(bool)}, says: "waits for ever"},
		"the base lock is kept by a question that waits": {machine: exact{&monitor{}}, keepBase: true, says: "waits for ever"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, kinds := range generations {
				e := &explorer{breaks: true, keepBase: b.keepBase}
				if _, fault := e.explore(kinds, layouts[0], b.machine.clone()); strings.Contains(fault, b.says) {
					t.Logf("%s: %s", kinds, fault)
					return
				} else if fault != "" {
					t.Fatalf("it is rejected for another reason than %q: %s", b.says, fault)
				}
			}
			t.Error("it is accepted")
		})
	}
}

// Writers go first: while one waits no reader is let in that was not told before.
func TestMonitorPrefersWriters(t *testing.T) {
	reader, writer := &Conn{}, &Conn{}
	for _, a := range []ask{mayRead, enterRead} {
		m := &monitor{}
		m.put(question{conn: reader, echo: "1", ask: enterRead})
		if m.put(question{conn: writer, echo: "2", ask: mayWrite}) {
			t.Fatal("the writer is let in beside a reader")
		}
		if m.put(question{conn: reader, echo: "3", ask: a}) {
			t.Fatal("a reader is let in before a writer that waits")
		}
		if !m.put(question{conn: reader, echo: "4", ask: addReader}) {
			t.Fatal("a reader that was told that it may read waits for a writer that is not inside")
		}
		m.discount(reader)
		m.discount(reader)
		if woken := m.wake(); len(woken) != 1 || woken[0].echo != "2" {
			t.Fatalf("woken are %v, want the writer", woken)
		}
		m.lower(writer)
		if woken := m.wake(); len(woken) != 1 || woken[0].echo != "3" {
			t.Fatalf("woken are %v, want the reader", woken)
		}
	}
}
