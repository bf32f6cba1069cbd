//go:build unix

package siege

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	keys  = 200 // rows, of which the first few are hot
	hot   = 3
	slots = 5 // processes
	nodes = 3
)

// A ledger is memory that all processes share, so that it is known without any clock what was finished before a read
// began, and so that what a process knows outlives it.
type ledger struct {
	memory     []byte
	words      []atomic.Uint64
	counts     map[string]*atomic.Uint64
	complaints *os.File
}

const (
	finishedAt  = 0 // by key: the highest version of which an invalidation has returned
	committedAt = finishedAt + keys + 1
	deadAt      = committedAt + keys + 1 // by slot: it has killed itself
	countsAt    = deadAt + slots
	ledgerWords = 1024
)

// took notes how long something took that began at some time.
func (l *ledger) took(name string, began time.Time) {
	rise(l.counts[name], uint64(time.Since(began).Milliseconds()))
}

// counted is what the ledger counts. Those with "by" come from the caches.
func counted() []string {
	return []string{
		"reads", "absent", "least", "fresh", "peeks", "shed", "load failed", "load too slow", "writes", "deletes", "updates", "told direct", "told by relays",
		"told without version", "left to the outbox", "not invalidated", "commit unknown", "write failed", "database kills", "database is back",
		"loads without the database", "writes without the database", "answers without the database", "loads", "loads of the replica",
		"loads of the primary", "replica too far behind", "loads cut short", "most loads at a time", "died at commit", "died at load",
		"complaints", "lives", "longest read in ms", "longest write in ms",
		"by memory", "by copy", "by home", "by load", "by stale", "by stale_on_error", "by failed_load", "by failed_shared",
		"by failed_outdated", "by shed", "by refused lease", "by refused floor", "by losses", "by dropped", "by invalidations", "by hot keys",
	}
}

// openLedger opens the ledger in a file, and makes it when it is not there.
func openLedger(path string) (*ledger, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(ledgerWords * 8); err != nil {
		return nil, err
	}
	l := &ledger{counts: map[string]*atomic.Uint64{}}
	if l.memory, err = syscall.Mmap(int(f.Fd()), 0, ledgerWords*8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		return nil, err
	}
	l.words = unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&l.memory[0])), ledgerWords)
	for i, name := range counted() {
		l.counts[name] = &l.words[countsAt+i]
	}
	l.complaints, err = os.OpenFile(path+".complaints", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	return l, err
}

func (l *ledger) close() error { return errors.Join(syscall.Munmap(l.memory), l.complaints.Close()) }

func (l *ledger) finished(key int64) *atomic.Uint64  { return &l.words[finishedAt+key] }
func (l *ledger) committed(key int64) *atomic.Uint64 { return &l.words[committedAt+key] }
func (l *ledger) dead(slot int) *atomic.Uint64       { return &l.words[deadAt+slot] }

// count adds to a count.
func (l *ledger) count(name string, n uint64) { l.counts[name].Add(n) }

func (l *ledger) counted(name string) uint64 { return l.counts[name].Load() }

// rise raises a word to at least v.
func rise(w *atomic.Uint64, v uint64) {
	for old := w.Load(); old < v && !w.CompareAndSwap(old, v); old = w.Load() {
	}
}

// A complaint is something that must not be.
type complaint struct {
	Slot, Pid int
	What      string
}

func (l *ledger) complain(slot int, format string, args ...any) {
	text, err := json.Marshal(complaint{slot, os.Getpid(), fmt.Sprintf(format, args...)})
	if err == nil {
		_, err = l.complaints.Write(append(text, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a complaint cannot be written:", err)
	}
	l.count("complaints", 1)
}

// show returns all counts.
func (l *ledger) show() string {
	var out []string
	for _, name := range counted() {
		out = append(out, fmt.Sprintf("%s %d", name, l.counted(name)))
	}
	return strings.Join(out, ", ")
}
