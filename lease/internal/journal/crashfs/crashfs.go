// Package crashfs is a file system in memory that fails and crashes on demand,
// for tests of what is written through journal.FS.
//
// It keeps apart what a program sees (the page cache) and what is durable, and
// forgets the difference at a crash: all of it, a seeded part of it in sectors
// of 512 bytes, or none. Directory entries are durable only after SyncDir. Each
// call is counted, so that a test can run a workload once, learn how many calls
// it makes, and then fail or crash it at every one of them.
//
// After a crash every call on the FS and on its files fails with ErrCrashed and
// all locks are free; Reopen gives what is on the disk. An FS is safe for use
// from several goroutines. It holds files in memory twice: use small segments.
package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"

	"github.com/latchkey-go/latchkey/lease/internal/journal"
)

// Op is a kind of call.
type Op string

// The kinds of call that are counted.
const (
	OpMkdir       Op = "mkdir"
	OpList        Op = "list"
	OpCreate      Op = "create"
	OpOpen        Op = "open"
	OpRename      Op = "rename"
	OpRemove      Op = "remove"
	OpSyncDir     Op = "syncdir"
	OpLock        Op = "lock"
	OpRead        Op = "read"
	OpWrite       Op = "write"
	OpSync        Op = "sync"
	OpTruncate    Op = "truncate"
	OpPreallocate Op = "preallocate"
	OpSize        Op = "size"
	OpClose       Op = "close"
)

// Call is one call as a plan sees it, before it takes effect.
type Call struct {
	// N counts the calls since New or Reopen, from 1.
	N int
	// Op is its kind and Name the file's full path.
	Op   Op
	Name string
}

// Action is what a plan lets happen to a call.
type Action struct {
	// Err makes the call fail. A failed write has written nothing, or half of it
	// when Short is set; a failed sync leaves what it should have written visible
	// and never durable, as Linux does.
	Err   error
	Short bool
	// Crash ends the machine during the call: a write may be on the disk in part,
	// a sync has synced nothing for certain.
	Crash bool
}

// Plan decides about each call; nil lets everything pass. It runs under the
// FS's lock and must not call it.
type Plan func(Call) Action

// Mode says what survives a crash of what was not synced.
type Mode int

const (
	// Lose keeps nothing: the power fails before anything was flushed.
	Lose Mode = iota
	// Tear keeps a seeded part: each sector as it was at some moment since the
	// last sync, each directory entry changed or not.
	Tear
	// Kill keeps everything, still unsynced: the process dies, the machine does not.
	Kill
)

// ErrCrashed is what every call returns after a crash.
var ErrCrashed = errors.New("crashfs: the machine has crashed")

const sector = 512

// FS implements journal.FS.
type FS struct {
	mu      sync.Mutex
	plan    Plan
	calls   int
	crashed bool

	cached  map[string]*inode // the names as the program sees them
	durable map[string]*inode
	pending []change // name changes since the last SyncDir of their directory
	dirs    map[string]bool
	locks   map[string]bool
}

// change is one call's effect on a directory's names; nil removes.
type change struct {
	dir  string
	sets map[string]*inode
}

// inode is a file's contents: as seen, as durable, and what leads from one to the other.
type inode struct {
	data    []byte
	durable []byte
	pending []edit
}

// edit is a write (p at off) or, when p is nil, a change of the length to off.
type edit struct {
	off int64
	p   []byte
}

// New returns an empty disk.
func New(plan Plan) *FS {
	return &FS{
		plan: plan, cached: map[string]*inode{}, durable: map[string]*inode{},
		dirs: map[string]bool{}, locks: map[string]bool{},
	}
}

// FailAt fails the nth call with err.
func FailAt(n int, err error) Plan {
	return func(c Call) Action {
		if c.N == n {
			return Action{Err: err}
		}
		return Action{}
	}
}

// FailOp fails the nth call of kind op with err. It is for one FS at a time.
func FailOp(op Op, n int, err error) Plan {
	seen := 0
	return func(c Call) Action {
		if c.Op == op {
			if seen++; seen == n {
				return Action{Err: err}
			}
		}
		return Action{}
	}
}

// CrashAt crashes during the nth call.
func CrashAt(n int) Plan {
	return func(c Call) Action { return Action{Crash: c.N == n} }
}

// SetPlan replaces the plan.
func (f *FS) SetPlan(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Calls returns how many calls were made since New or Reopen.
func (f *FS) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Crash ends the machine now. A second crash changes nothing.
func (f *FS) Crash() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashLocked()
}

func (f *FS) crashLocked() {
	f.crashed = true
	clear(f.locks)
}

// Crashed tells whether the machine has crashed.
func (f *FS) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// Reopen crashes the machine, if it has not yet, and returns the disk as mode and
// seed leave it, with a count of zero. The old FS and its files stay dead.
func (f *FS) Reopen(mode Mode, seed uint64, plan Plan) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashLocked()
	g := New(plan)
	for d := range f.dirs {
		g.dirs[d] = true
	}
	// Spread out, because the first numbers from neighbouring seeds are alike.
	rnd := rand.New(rand.NewPCG(seed*0x9e3779b97f4a7c15, ^seed*0xd1b54a32d192ed03))
	s := survivor{rnd: rnd, mode: mode, copies: map[*inode]*inode{}}
	s.names(f, g)
	return g
}

// enter counts a call and lets the plan decide. The caller holds the lock.
func (f *FS) enter(op Op, name string) (Action, error) {
	if f.crashed {
		return Action{}, ErrCrashed
	}
	f.calls++
	var a Action
	if f.plan != nil {
		a = f.plan(Call{N: f.calls, Op: op, Name: name})
	}
	if a.Crash {
		a.Err = ErrCrashed
		f.crashLocked()
	}
	if a.Err != nil && !a.Crash {
		return a, fmt.Errorf("%s %s: %w", op, name, a.Err)
	}
	return a, a.Err
}

// change applies a call's effect on names; a crash during the call leaves it pending.
func (f *FS) change(dir string, sets map[string]*inode) {
	for name, node := range sets {
		if node == nil {
			delete(f.cached, name)
		} else {
			f.cached[name] = node
		}
	}
	f.pending = append(f.pending, change{dir: dir, sets: sets})
}

// MkdirAll implements journal.FS; directories are durable at once.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.enter(OpMkdir, dir); err != nil {
		return err
	}
	f.dirs[filepath.Clean(dir)] = true
	return nil
}

// List implements journal.FS.
func (f *FS) List(dir string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.enter(OpList, dir); err != nil {
		return nil, err
	}
	return f.namesLocked(dir), nil
}

// Create implements journal.FS.
func (f *FS) Create(path string) (journal.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.enter(OpCreate, path)
	if err != nil && !a.Crash {
		return nil, err
	}
	node := &inode{}
	f.change(filepath.Dir(path), map[string]*inode{path: node})
	if err != nil {
		return nil, err
	}
	return &file{fs: f, name: path, node: node}, nil
}

// Open implements journal.FS.
func (f *FS) Open(path string) (journal.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.enter(OpOpen, path); err != nil {
		return nil, err
	}
	node := f.cached[path]
	if node == nil {
		return nil, fmt.Errorf("open %s: %w", path, fs.ErrNotExist)
	}
	return &file{fs: f, name: path, node: node}, nil
}

// Rename implements journal.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.enter(OpRename, from)
	if err != nil && !a.Crash {
		return err
	}
	node := f.cached[from]
	if node == nil {
		return errors.Join(err, fmt.Errorf("rename %s: %w", from, fs.ErrNotExist))
	}
	f.change(filepath.Dir(from), map[string]*inode{from: nil, to: node})
	return err
}

// Remove implements journal.FS.
func (f *FS) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, err := f.enter(OpRemove, path)
	if err != nil && !a.Crash {
		return err
	}
	if f.cached[path] == nil {
		return errors.Join(err, fmt.Errorf("remove %s: %w", path, fs.ErrNotExist))
	}
	f.change(filepath.Dir(path), map[string]*inode{path: nil})
	return err
}

// SyncDir implements journal.FS. A failed one may be tried again: file systems
// journal their entries and stop altogether when that fails.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.enter(OpSyncDir, dir); err != nil {
		return err
	}
	var rest []change
	for _, c := range f.pending {
		if c.dir != filepath.Clean(dir) {
			rest = append(rest, c)
			continue
		}
		c.apply(f.durable)
	}
	f.pending = rest
	return nil
}

func (c change) apply(names map[string]*inode) {
	for name, node := range c.sets {
		if node == nil {
			delete(names, name)
		} else {
			names[name] = node
		}
	}
}

// Lock implements journal.FS.
func (f *FS) Lock(path string) (io.Closer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, err := f.enter(OpLock, path); err != nil {
		return nil, err
	}
	if f.locks[path] {
		return nil, fmt.Errorf("lock %s: %w", path, journal.ErrLocked)
	}
	f.locks[path] = true
	return &held{fs: f, path: path}, nil
}

type held struct {
	fs   *FS
	path string
}

func (h *held) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	_, err := h.fs.enter(OpClose, h.path)
	delete(h.fs.locks, h.path)
	return err
}
