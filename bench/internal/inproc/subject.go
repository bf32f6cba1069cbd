package inproc

import "fmt"

// Record is the value that is read and replaced: 24 bytes.
type Record struct {
	Seq    int64
	Twin   int64 // ^Seq, so that a mixture of two records is seen
	Status int64
}

// first is the Seq of a record that nothing has replaced.
const first = 7

func begin() *Record { return record(first) }

// record makes the record with that number.
func record(seq int64) *Record { return &Record{Seq: seq, Twin: ^seq, Status: seq & 3} }

// after is what replaces a record.
func after(r Record) Record {
	return Record{Seq: r.Seq + 1, Twin: ^(r.Seq + 1), Status: (r.Seq + 1) & 3}
}

// next is after, in memory of its own.
func next(r *Record) *Record { return record(r.Seq + 1) }

// Op is what is measured.
type Op int

// The operations.
const (
	Read      Op = iota
	Write        // replace the record by the one after it
	Mix          // nine reads, then a write
	Increment    // add one to a number
)

// String names the operation as rows are named.
func (o Op) String() string { return [...]string{"read", "write", "mix", "increment"}[o] }

// Where is what the goroutines of a cell have in common.
type Where int

// The conditions.
const (
	Shared Where = iota // one object, one key
	Own                 // an object each
	OwnKey              // one map, a key each
)

// String names the condition as columns are headed.
func (w Where) String() string { return [...]string{"shared", "own", "own key"}[w] }

// MarshalText makes the condition readable where figures are.
func (w Where) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// Subject is a way to share state.
type Subject struct {
	// Labels names each operation that the subject has.
	Labels map[Op]string

	Map   bool // has keys
	Alone bool // is not shared at all, so that only one goroutine may use a thing

	// New makes a thing for goroutines that use keys 0 to keys-1.
	New func(keys int) (Thing, error)
}

// Thing is one object: a value and a number, or a map of both.
type Thing struct {
	// Worker makes the access of one goroutine to a key.
	Worker func(key int) Worker

	// State returns what is stored under a key when nobody works.
	State func(key int) (Record, int64)

	// Err is the first error of an operation. May be nil, where none can fail.
	Err func() error

	// Close ends what the thing started. May be nil.
	Close func() error
}

// Worker is what one goroutine does. A function that its subject has no use for is
// nil.
type Worker struct {
	Read  func() Record
	Write func()
	Add   func()

	// Flush waits until all that the worker has sent is done, where its functions
	// do not wait for that. May be nil.
	Flush func()
}

// keys are the keys of a map: all maps have that many entries, so that looking one up
// is work.
const keys = 16

// name is the key of a goroutine.
func name(key int) string { return fmt.Sprintf("session-%04d", key*37) }

// apart keeps what follows it off the cache lines of what is before it.
type apart [128]byte

// Subjects lists all, the row without sharing first.
func Subjects() []Subject {
	all := standard()
	all = append(all, mapped()...)
	all = append(all, peers()...)
	return append(all, ours()...)
}
