package core

import (
	"errors"
	"math/rand/v2"
	"time"
)

var (
	// ErrOutdated: the loader keeps returning rows older than it is asked for. A loader must read the primary when it is
	// asked for a version.
	ErrOutdated = errors.New("loader returns outdated rows")
	// ErrOverloaded: so many loads are under way, and wait, that another one would endanger the database.
	ErrOverloaded = errors.New("too many loads")
	// ErrLoadFailed: the load of somebody else failed a moment ago.
	ErrLoadFailed = errors.New("load failed elsewhere")
)

// Settings are those of one process.
type Settings struct {
	Rules
	// Trust is D: how long after a proof that all invalidations were heard memory may be served.
	Trust time.Duration
	// StaleWhile is how long past its hard time an item may be served while it is loaded.
	StaleWhile time.Duration
	// StaleOnError is how long past its hard time an item may be served when its load fails.
	StaleOnError time.Duration
	// FirstPause and LastPause bound how long nobody loads a key after its load failed; it doubles in between.
	FirstPause, LastPause time.Duration
	// MaxDirect is how many loads may go past nodes that are out at the same time, and MaxWaiting how many may wait
	// for that, and for the loads of nodes that answer.
	MaxDirect, MaxWaiting int
	// MaxLoads is how many loads of nodes that answer may be under way at the same time; 0 is any number.
	MaxLoads int
	// BreakAfter is how many failures in a row take a node out, and BreakFor how long it is not asked then.
	BreakAfter int
	BreakFor   time.Duration
	// Tries is how often a loader is asked that returns older rows than it must.
	Tries int
	// Memory is whether this process keeps items of its own.
	Memory bool
	// Home returns the index of the node that owns a key.
	Home func(key string) int
	// Hot decides where a hot key is read. Nil is without copies.
	Hot Spreader
}

// A Spreader knows which keys are hot and where their copies are.
type Spreader interface {
	// Pick returns the node to read a key from; the home itself for a key that is not hot.
	Pick(now time.Duration, key string, home int) int
	// Copies returns the other nodes that are to have a copy of a key; none for one that is not hot.
	Copies(key string) []int
	// Refresh tells whether this process is to get another copy of a key, of which it found one past its soft time.
	Refresh(now time.Duration, key string) bool
	// Asked is told that a node is asked to read, and Answered that it answered what it was asked then, or failed to.
	Asked(node int)
	Answered(now time.Duration, node int, asked time.Duration)
}

// A Front decides for one process. It is not safe for concurrent use; its methods return what is to be done, in order.
type Front struct {
	set    Settings
	random *rand.Rand
	nodes  []nodeState

	open    map[string]*flight   // the flight that a new read of a key joins
	flights map[OpID]*flight     // those that wait for an outcome, by the operation
	asleep  map[string][]*flight // those that wait for somebody else's load, by key
	asking  map[string][]*flight // those that wait for what the home says, by key
	timers  timers
	pauses  map[string]time.Duration // the latest pause of keys whose loads fail
	direct  int                      // loads that go past a node
	running map[string]*flight       // the flight of each key that goes past its node first
	queue   []*flight                // those of them that wait for their load to begin
	loads   int                      // of nodes that answer
	turns   []*flight                // those that have leases, and wait for such a load to begin
	lastOp  OpID
	out     []Action
}

type nodeState struct {
	sight    Sight
	lost     time.Duration // when its feed broke last
	failures int
	outUntil time.Duration // the breaker is open
	probing  bool          // one flight may try whether it is back
	vouched  bool          // a head ended its last outage, and it has answered nothing since
}

// A flight is one way to an item, shared by the reads that joined it.
type flight struct {
	key     string
	home    int
	min     Version
	reads   reads
	waits   bool // in asleep
	stirred bool // what wakes those in asleep came while the home was asked
	token   Token
	least   Version // what the load must ask for
	floor   Version // what may be stored, as the home knows
	stale   *Item   // what may be served if the load fails
	times   Times   // of stale, at since
	since   time.Duration
	tries   int
	past    bool // it goes past the node
	loading bool // its load has begun; kept for those that go past a node
	turn    turn
	next    *flight       // goes past the node too, when this one has landed
	copies  int           // node that asked for a copy of the key and is to get it; -1 for none
	asked   time.Duration // when the node that answers next was asked
	done    bool
}

// reads are those that a flight answers, and the least version of each. It may be one that nobody wrote: who wants it
// must not get less, and takes nothing from the others. Any of very many can leave at little cost.
type reads map[ReadID]Version

// NewFront returns the front of a process with so many nodes.
func NewFront(nodes int, set Settings, random *rand.Rand) *Front {
	return &Front{
		set: set, random: random, nodes: make([]nodeState, nodes), open: map[string]*flight{},
		flights: map[OpID]*flight{}, asleep: map[string][]*flight{},
		asking: map[string][]*flight{}, running: map[string]*flight{}, pauses: map[string]time.Duration{},
	}
}

// flush returns what is to be done and forgets it.
func (f *Front) flush() []Action {
	out := f.out
	f.out = nil
	return out
}

func (f *Front) do(a Action) { f.out = append(f.out, a) }

// start gives an action an operation whose outcome goes to the flight.
func (f *Front) start(fl *flight, a Action) OpID {
	f.lastOp++
	a.Op, a.Key = f.lastOp, fl.key
	f.flights[a.Op] = fl
	f.do(a)
	return a.Op
}

// finish takes the flight that an operation belongs to.
func (f *Front) finish(op OpID) *flight {
	fl := f.flights[op]
	delete(f.flights, op)
	return fl
}

// Read starts a read of a key that memory did not answer. min is the least version that will do.
//
// A read joins the flight of another only while the process can prove that it has heard all invalidations: a flight
// that began before an invalidation is closed when that is heard, and a read that begins after it must not get what the
// flight brings. Nor must one that wants the row as it is now, or a version that it knows: a flight that asked for the
// row as it was then may have read it already. Any may join a flight that has yet to ask.
func (f *Front) Read(now time.Duration, id ReadID, key string, min Version) []Action {
	return f.read(now, id, key, min, min)
}

// Reload is Read that loads the row in any case: what there is of it is of no use. Other than who wants it [Fresh], the
// reader still gets nothing below min.
func (f *Front) Reload(now time.Duration, id ReadID, key string, min Version) []Action {
	return f.read(now, id, key, Fresh, min)
}

// read joins a flight, or begins one, for a read that has no less than least. min is what it is asked for.
func (f *Front) read(now time.Duration, id ReadID, key string, min, least Version) []Action {
	home := f.set.Home(key)
	if fl := f.open[key]; fl != nil && fl.min >= min && (fl.waiting() || (fl.min != Fresh || min == 0) && f.Current(now, home)) {
		fl.reads[id] = least
		return f.flush()
	}
	fl := &flight{key: key, home: home, min: min, reads: reads{id: least}, copies: -1}
	f.open[key] = fl
	f.begin(now, fl)
	return f.flush()
}

// waiting tells whether the flight has yet to ask for what it brings.
func (fl *flight) waiting() bool { return fl.waits || fl.past && !fl.loading }

// closeTo keeps new reads out of a flight.
func (f *Front) closeTo(fl *flight) {
	if f.open[fl.key] == fl {
		delete(f.open, fl.key)
	}
}

// Leave takes a read whose caller went away out of its flight. The load goes on: the next reader wants it too.
func (f *Front) Leave(id ReadID, key string) {
	if fl := f.open[key]; fl != nil {
		delete(fl.reads, id)
	}
}

// begin asks a copy or the home, or goes past the home if that is out.
func (f *Front) begin(now time.Duration, fl *flight) {
	if f.set.Hot != nil && fl.min == 0 && f.Current(now, fl.home) {
		if node := f.set.Hot.Pick(now, fl.key, fl.home); node != fl.home && f.reachable(now, node) {
			f.asks(now, fl, node)
			f.start(fl, Action{Do: DoCopy, Node: node})
			return
		}
	}
	f.askHome(now, fl)
}

func (f *Front) askHome(now time.Duration, fl *flight) {
	if !f.reachable(now, fl.home) {
		f.goPast(now, fl)
		return
	}
	f.asks(now, fl, fl.home)
	fl.stirred = false
	f.asking[fl.key] = append(f.asking[fl.key], fl)
	ask := Ask{Key: fl.key, Min: fl.min, Token: f.token()}
	f.start(fl, Action{Do: DoAsk, Node: fl.home, Ask: ask})
}

func (f *Front) asks(now time.Duration, fl *flight, node int) {
	fl.asked = now
	if f.set.Hot != nil {
		f.set.Hot.Asked(node)
	}
}

func (f *Front) answers(now time.Duration, fl *flight, node int) {
	if f.set.Hot != nil {
		f.set.Hot.Answered(now, node, fl.asked)
	}
}

func (f *Front) token() Token {
	for {
		if t := Token(f.random.Uint64()); t != 0 {
			return t
		}
	}
}

// Copied is told what a node has as a copy of a key, nil for nothing.
//
// A copy past its soft time is served until its hard time, as the home serves the item meanwhile. Whoever refreshes the
// item puts new copies; should they get lost, one process of the fleet asks the home for another, now and then.
func (f *Front) Copied(now time.Duration, op OpID, node int, c *Copy, err error) []Action {
	fl := f.finish(op)
	f.judge(now, node, err)
	if fl == nil {
		return f.flush()
	}
	f.answers(now, fl, node)
	usable := err == nil && c != nil && c.Times.Hard > 0 && f.Holds(now, fl.home, fl.key, c.Stamp)
	if !usable {
		if err == nil {
			fl.copies = node
		}
		f.askHome(now, fl)
		return f.flush()
	}
	f.serve(fl, FromCopy, c.Item, c.Times)
	f.keep(now, fl, c.Item, c.Times, c.Stamp)
	if c.Times.Soft <= 0 && f.set.Hot.Refresh(now, fl.key) {
		fl.copies = node
		f.askHome(now, fl)
		return f.flush()
	}
	f.land(fl)
	return f.flush()
}

// Answered is told what the home said.
func (f *Front) Answered(now time.Duration, op OpID, a Answer, err error) []Action {
	fl := f.finish(op)
	if fl == nil {
		return f.flush()
	}
	without(f.asking, fl)
	f.answers(now, fl, fl.home)
	f.judge(now, fl.home, err)
	if err != nil {
		f.goPast(now, fl)
		return f.flush()
	}
	if a.State != Lease {
		f.endTurn(now, fl)
	}
	fl.stale, fl.times, fl.since = nil, Times{}, now
	if a.State != Hit && a.Item != nil {
		fl.stale, fl.times = a.Item, a.Times
	}
	switch a.State {
	case Hit:
		f.hit(now, fl, a)
	case Lease:
		fl.token, fl.least, fl.floor = a.Token, a.Min, a.Floor
		f.serveStale(fl, Stale, f.set.StaleWhile)
		f.takeTurn(now, fl)
	case Busy:
		f.serveStale(fl, Stale, f.set.StaleWhile)
		if len(fl.reads) == 0 {
			f.land(fl) // whoever loads it does so for those who come later
			break
		}
		if fl.stirred {
			f.askHome(now, fl) // what it was to wait for is over
			break
		}
		f.sleep(now, fl, a.Retry)
	case Failed:
		if !f.serveStale(fl, StaleOnError, f.set.StaleOnError) {
			f.fail(fl, FailedShared, errShared{a.Why})
		}
		f.land(fl)
	}
	return f.flush()
}

func (f *Front) hit(now time.Duration, fl *flight, a Answer) {
	f.serve(fl, FromHome, *a.Item, a.Times)
	f.keep(now, fl, *a.Item, a.Times, a.Stamp)
	if fl.copies >= 0 && a.Times.Hard > 0 {
		f.do(Action{Do: DoPutCopy, Node: fl.copies, Key: fl.key, Copy: Copy{*a.Item, a.Times, a.Stamp}})
	}
	if a.Token != 0 { // to be refreshed, by this process, for those who come later
		fl.token, fl.least, fl.floor, fl.times = a.Token, a.Min, a.Floor, a.Times
		f.takeTurn(now, fl)
		return
	}
	f.land(fl)
}

// load asks the loader.
func (f *Front) load(fl *flight) {
	fl.tries++
	f.start(fl, Action{Do: DoLoad, Node: fl.home, Min: fl.least})
}

// Loaded is told what the loader returned. A loader without versions returns 0; what it read counts as being as new as
// it was asked for, which is all that the lease can promise. For the home that is the floor, and no version that a
// reader named: it may be one that nobody wrote, of which an item would outlive invalidations with less.
//
// What is not below the floor is good for all but those who want more. They fail, and nobody is kept from loading for
// them.
func (f *Front) Loaded(now time.Duration, op OpID, item Item, times Times, err error) []Action {
	fl := f.finish(op)
	if fl == nil {
		return f.flush()
	}
	if err != nil {
		f.loadFailed(now, fl, FailedLoad, err)
		return f.flush()
	}
	reached := item.Version
	if reached == 0 {
		reached, item.Version = Fresh, fl.floor
	}
	if short := f.serveLoaded(fl, item, times, reached); short && fl.tries < f.set.Tries {
		f.at(now+f.set.FirstPause<<(fl.tries-1)/8, fl, timerReload)
		return f.flush()
	}
	if item.Version < fl.floor {
		f.loadFailed(now, fl, FailedOutdated, ErrOutdated)
		return f.flush()
	}
	delete(f.pauses, fl.key)
	f.endTurn(now, fl)
	f.fail(fl, FailedOutdated, ErrOutdated) // those who want more than there is
	if fl.past {
		f.landed(now, fl)
		f.land(fl)
		return f.flush()
	}
	fl.stale, fl.times, fl.since = &item, times, now // for memory, when the home has taken it
	f.start(fl, Action{Do: DoFill, Node: fl.home, Fill: Fill{Key: fl.key, Token: fl.token, Item: item, Times: times}})
	return f.flush()
}

// Filled is told what the home did with what was loaded. If it did not take it, or is not known to, the lease is given back,
// so that nobody waits for its end; when it has taken it there is none any more.
func (f *Front) Filled(now time.Duration, op OpID, r Filled, err error) []Action {
	fl := f.finish(op)
	if fl == nil {
		return f.flush()
	}
	if err != nil { // it may be full, and good for reading: that it is away, whoever reads finds out
		f.do(Action{Do: DoFail, Node: fl.home, Key: fl.key, Token: fl.token})
		f.land(fl)
		return f.flush()
	}
	f.judge(now, fl.home, nil)
	if r.Refusal == Stored && fl.stale != nil {
		times := fl.times.Minus(now - fl.since)
		f.keep(now, fl, *fl.stale, times, r.Stamp)
		f.putCopies(fl, Copy{*fl.stale, times, r.Stamp})
	}
	f.land(fl)
	return f.flush()
}

// putCopies gives a hot key's other nodes what its home has taken, so that nobody has to ask the home for it.
func (f *Front) putCopies(fl *flight, c Copy) {
	if f.set.Hot == nil || c.Times.Hard <= 0 {
		return
	}
	for _, node := range f.set.Hot.Copies(fl.key) {
		if !f.Out(node) {
			f.do(Action{Do: DoPutCopy, Node: node, Key: fl.key, Copy: c})
		}
	}
}

// Renewed is told whether a lease still holds. When it does not, the load goes on for those who wait for it, and what
// it brings will not be stored.
func (f *Front) Renewed(now time.Duration, op OpID, held bool, err error) []Action {
	fl := f.finish(op)
	if fl == nil || fl.done {
		return f.flush()
	}
	f.judge(now, fl.home, err)
	if held || err != nil {
		f.at(now+f.set.LeaseTTL/3, fl, timerRenew)
	} else if fl.turn == waitsForTurn {
		fl.turn = waitsInVain
	}
	return f.flush()
}

// keep puts an item into memory, if nothing that was heard speaks against it.
func (f *Front) keep(now time.Duration, fl *flight, item Item, times Times, at Stamp) {
	if f.set.Memory && times.Soft > 0 && f.Holds(now, fl.home, fl.key, at) {
		f.do(Action{Do: DoKeep, Node: fl.home, Key: fl.key, Item: item, Times: times, Stamp: at})
	}
}
