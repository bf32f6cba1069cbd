package rmapredis_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/proctest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

func TestMain(m *testing.M) {
	proctest.Play(map[string]proctest.Part{"writer": writer, "reader": reader})
	goleak.VerifyTestMain(m)
}

// A member says how a process takes part.
type member struct {
	Addr, Map string
	Name      string        // of the member; its keys begin with it
	File      string        // what it did or saw
	Loops     int           // of a writer: how many of them write at a time, each to keys of its own
	Count     int           // of a writer: how often each loop writes; 0 is until it is told to stop
	Pause     time.Duration // after each write, or between two looks
	Heartbeat time.Duration // 0 is what is usual
	Pong      time.Duration
}

const keysEach = 4 // keys of one loop of a writer

// A written is one write, as its writer knows it. Times are in nanoseconds of Unix time: all is on one machine.
type written struct {
	Key, Value    string // a value is written once
	Deleted       bool
	Start, Finish int64
	Outcome       rmap.Outcome
	Revision      rmap.Revision
}

// A seen is what a reader saw in one look: it asked how old the copy may be, and then took it as it was.
type seen struct {
	Before, After int64
	Age           time.Duration
	State         rmap.State
	Revision      rmap.Revision
	Entries       map[string]value
}

type value struct {
	Text     string
	Revision rmap.Revision // that wrote it
}

// A shown is what a reader answers when it is asked to show its copy.
type shown struct {
	Entries  map[string]string
	Revision rmap.Revision
	State    rmap.State
	Stats    rmap.Stats
}

// A diary is a file of lines in JSON.
type diary struct {
	mu   sync.Mutex // guards what follows
	file *os.File
	out  *bufio.Writer
}

func (d *diary) note(what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.out.Write(append(text, '\n'))
	return err
}

func (d *diary) close() error { return errors.Join(d.out.Flush(), d.file.Close()) }

// take begins a part: the process's copy and its diary.
func take(args []string) (m member, c *text, d *diary, end func() error, err error) {
	if err := json.Unmarshal([]byte(args[0]), &m); err != nil {
		return m, nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	store, err := rmapredis.Open(ctx, "redis://"+m.Addr, rmapredis.Options{Heartbeat: m.Heartbeat, Pong: m.Pong})
	if err != nil {
		return m, nil, nil, nil, err
	}
	c, err = rmap.Join(ctx, store, m.Map, options{Heartbeat: m.Heartbeat})
	if err != nil {
		return m, nil, nil, nil, err
	}
	file, err := os.Create(m.File)
	if err != nil {
		return m, nil, nil, nil, err
	}
	d = &diary{file: file, out: bufio.NewWriter(file)}
	return m, c, d, func() error { c.Close(); store.Close(); return d.close() }, nil
}

// writer writes from "go" to "stop", or so often as it is to, and says how many of its writes were applied.
func writer(stage *proctest.Stage, args []string) error {
	m, c, d, end, err := take(args)
	if err != nil {
		return err
	}
	stage.Say("joined")
	if _, err := stage.Hear(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var loops sync.WaitGroup
	applied := make([]int, m.Loops)
	problems := make([]error, m.Loops)
	for i := range m.Loops {
		loops.Go(func() { applied[i], problems[i] = m.write(ctx, c, d, m.Name+strconv.Itoa(i)) })
	}
	if m.Count == 0 {
		if _, err := stage.Hear(); err != nil {
			return err
		}
		stop()
	}
	loops.Wait()
	sum := 0
	for _, n := range applied {
		sum += n
	}
	if err := errors.Join(append(problems, end())...); err != nil {
		return err
	}
	stage.Say(strconv.Itoa(sum))
	return nil
}

// write is one loop of a writer.
func (m member) write(ctx context.Context, c *text, d *diary, name string) (applied int, err error) {
	for i := 0; ctx.Err() == nil && (m.Count == 0 || i < m.Count); i++ {
		w := written{Key: fmt.Sprintf("%s.%d", name, i%keysEach), Deleted: i%13 == 12}
		limited, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		w.Start = time.Now().UnixNano()
		var err error
		if w.Deleted {
			w.Revision, err = c.Delete(limited, w.Key)
		} else {
			w.Value = fmt.Sprintf("%s/%d", name, i)
			w.Revision, err = c.Set(limited, w.Key, w.Value)
		}
		w.Finish = time.Now().UnixNano()
		cancel()
		if w.Outcome = rmap.OutcomeOf(err); err == nil {
			applied++
		}
		if err := d.note(w); err != nil {
			return applied, err
		}
		if m.Pause > 0 {
			<-time.After(m.Pause)
		}
	}
	return applied, nil
}

// reader looks at its copy all the time, from "go" to "stop", and shows it whenever it is asked to.
func reader(stage *proctest.Stage, args []string) error {
	m, c, d, end, err := take(args)
	if err != nil {
		return err
	}
	stage.Say("joined")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var looking sync.WaitGroup
	var problem error
	for {
		line, err := stage.Hear()
		switch {
		case errors.Is(err, io.EOF):
			return end()
		case err != nil:
			return err
		case line == "go":
			looking.Go(func() { problem = m.look(ctx, c, d) })
		case line == "stop":
			stop()
			looking.Wait()
			stage.Say(fmt.Sprintf("stopped: %v", problem))
		case line == "show":
			s := c.Snapshot()
			text, err := json.Marshal(shown{maps.Collect(s.All()), s.Revision(), c.Lag().State, c.Stats()})
			if err != nil {
				return err
			}
			stage.Say(string(text))
		}
	}
}

func (m member) look(ctx context.Context, c *text, d *diary) error {
	for ctx.Err() == nil {
		s := seen{Before: time.Now().UnixNano(), Entries: make(map[string]value)}
		lag := c.Lag()
		view := c.Snapshot()
		s.After = time.Now().UnixNano()
		s.Age, s.State, s.Revision = lag.Age, lag.State, view.Revision()
		for k, v := range view.All() {
			rev, _ := view.RevisionOf(k)
			s.Entries[k] = value{v, rev}
		}
		if err := d.note(s); err != nil {
			return err
		}
		<-time.After(m.Pause)
	}
	return nil
}

// fork starts a member.
func (w *world) fork(part string, m member) *proctest.Forked {
	w.t.Helper()
	m.Map, m.File = w.name, w.diary(m.Name)
	if m.Addr == "" {
		m.Addr = w.Addr()
	}
	text, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return proctest.Fork(w.t, part, string(text))
}

func (w *world) diary(name string) string {
	return filepath.Join(w.dir, name)
}

// look asks a reader to show its copy.
func look(t testing.TB, f *proctest.Forked) shown {
	t.Helper()
	var s shown
	if err := json.Unmarshal([]byte(f.Ask("show")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// agreed waits until the readers show what is stored, and returns what they show.
func (w *world) agreed(readers ...*proctest.Forked) []shown {
	w.t.Helper()
	out := make([]shown, len(readers))
	for i, f := range readers {
		for began := time.Now(); ; pause() {
			want, at := w.stored()
			s := look(w.t, f)
			if s.State == rmap.Live && s.Revision == at && maps.Equal(s.Entries, want) {
				out[i] = s
				break
			}
			if time.Since(began) > patience {
				w.t.Fatalf("reader %d is %v at %v with %q; stored is at %v %q", i, s.State, s.Revision, s.Entries, at, want)
			}
		}
	}
	return out
}

// stopped ends a reader.
func stopped(t testing.TB, f *proctest.Forked) {
	t.Helper()
	if got := f.Ask("stop"); got != "stopped: <nil>" {
		t.Errorf("the reader says %q", got)
	}
	f.Finish()
}

// Nothing goes wrong: no change is missed, strange or seen twice, and no map is read anew, by nobody.
func TestSteadyState(t *testing.T) {
	const processes, loops, count = 2, 4, 1250
	w := newWorld(t)
	w.join(deaf()).set("begun", "v") // the first change of a map is one that nobody expects
	var writers, readers []*proctest.Forked
	for i := range processes {
		writers = append(writers, w.fork("writer", member{Name: "w" + strconv.Itoa(i), Loops: loops, Count: count}))
		readers = append(readers, w.fork("reader", member{Name: "r" + strconv.Itoa(i), Pause: 20 * time.Millisecond}))
	}
	all := append(append([]*proctest.Forked(nil), writers...), readers...)
	for _, f := range all {
		f.Wants("joined")
	}
	before := w.agreed(readers...)
	for _, f := range all {
		f.Tell("go")
	}
	for _, f := range writers {
		f.Wants(strconv.Itoa(loops * count))
		f.Finish()
	}
	for i, s := range w.agreed(readers...) {
		st, was := s.Stats, before[i].Stats
		made := s.Revision.Number - before[i].Revision.Number
		if n := st.Changes - was.Changes; n != made || made < processes*loops*count*9/10 {
			t.Errorf("%d changes applied, the store made %d", n, made)
		}
		if st.Strange+st.Duplicates+st.Unreadable+st.Losses > 0 || st.CaughtUp != was.CaughtUp || st.Reloads != was.Reloads {
			t.Errorf("stats %+v, at the beginning %+v", st, was)
		}
		stopped(t, readers[i])
	}
}

// One process is killed in the middle of its writes, and one is stopped for longer than anybody waits, so that the
// server has given up on it when it goes on. The copies are equal at the end, and what was acknowledged is in them.
func TestKilledAndFrozenProcesses(t *testing.T) {
	w := newWorld(t)
	w.Do("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 512kb 1")
	fast := func(name string) member {
		return member{Name: name, Loops: 2, Pause: 2 * time.Millisecond, Heartbeat: 100 * time.Millisecond, Pong: time.Second}
	}
	killed, writing := w.fork("writer", fast("killed")), w.fork("writer", fast("writing"))
	frozen, reading := w.fork("reader", fast("frozen")), w.fork("reader", fast("reading"))
	for _, f := range []*proctest.Forked{killed, writing, frozen, reading} {
		f.Wants("joined")
		f.Tell("go")
	}
	until(t, "all have written", func() bool { return look(t, frozen).Revision.Number > 200 })
	frozen.Freeze()
	killed.Kill()
	filler := w.join(deaf())
	until(t, "the server gave up on the frozen process", func() bool {
		filler.set("large", strings.Repeat("v", 200_000))
		return strings.Contains(w.Log(), "output buffer limits")
	})
	filler.del("large")
	frozen.Thaw()
	writes := number(t, writing.Ask("stop"))
	writing.Finish()
	shows := w.agreed(frozen, reading)
	if got := shows[0].Stats.Losses; got == 0 {
		t.Error("the frozen process has lost nothing")
	}
	if got := shows[1].Stats.Losses; got != 0 {
		t.Errorf("the other one has lost its subscription %d times", got)
	}
	if writes < 100 {
		t.Errorf("only %d writes", writes)
	}
	last := make(map[string]written)
	for _, wr := range lines[written](t, w.diary("writing")) {
		last[wr.Key] = wr
	}
	for key, wr := range last {
		if got := shows[0].Entries[key]; got != wr.Value {
			t.Errorf("%s is %q, its last write is %q", key, got, wr.Value)
		}
	}
	stopped(t, frozen)
	stopped(t, reading)
}

// lines reads a diary; what a killed process has not written to its end is left out.
func lines[T any](t testing.TB, name string) []T {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []T
	for in := bufio.NewReader(file); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return out
		}
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
}
