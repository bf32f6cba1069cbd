package lmxload

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// version is that of the client whose frames are sent.
const version = "0.2.25"

const (
	window    = 64 // requests in flight at most, where there are more keys
	patience  = 20 * time.Second
	inputSize = 64 << 10
)

// idLen is the length of a request's id, which looks like a UUID: 24 characters
// of the connection, then in hexadecimal 4 of the slot and 8 of the request.
const (
	idLen  = 36
	idSlot = 24
	idSeq  = 28
)

// maxSlots is how many keys a connection can have, by the room in the id.
const maxSlots = 1 << 16

// Options say what a connection does and what it expects.
type Options struct {
	TTL time.Duration // of each hold; zero means for ever

	// Tokens says that the broker gives fencing tokens, which then must rise.
	Tokens bool

	// Contest is shared by connections that want one and the same key: each has
	// that key alone and may have to wait for it. Without it every lock must be
	// granted at once.
	Contest *answers.Section
}

// Conn is a connection to a broker, with a slot for each of its keys.
type Conn struct {
	opts    Options
	nc      net.Conn
	slots   []slot
	id      [idLen]byte // of the last request
	seq     uint32
	lockEnd string // what follows the key in a lock frame
	end     string // what ends the other frames

	in        []byte
	begin, to int // what of in was read and not yet handled
	out       []byte

	what    task
	until   time.Time // pairs are begun before it
	next    int       // the slot to begin next, where there are more than fit the window
	open    int       // slots that wait for an answer
	leaving bool      // the holder of a contested key is about to unlock

	took   []time.Duration
	waited int
}

// task is what a connection is doing.
type task byte

const (
	pairing task = iota
	keeping
	dropping
	probing
)

// slot is one key and what was asked about it.
type slot struct {
	key    string
	state  state
	asked  [idLen]byte // the request that is not yet answered
	hold   [idLen]byte // the request that was granted
	queued bool        // told to wait
	began  time.Time
	holds  int
	tokens answers.Rising
}

type state byte

const (
	idle state = iota
	locking
	witnessing
	held
	unlocking
)

// Dial connects to a broker and introduces itself.
func Dial(ctx context.Context, addr string, keys []string, o Options) (*Conn, error) {
	if len(keys) == 0 || len(keys) > maxSlots || o.Contest != nil && len(keys) != 1 {
		return nil, fmt.Errorf("lmxload: %d keys for one connection", len(keys))
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("lmxload: %w", err)
	}
	return newConn(nc, keys, o), nil
}

func newConn(nc net.Conn, keys []string, o Options) *Conn {
	life := "null"
	if o.TTL > 0 {
		life = strconv.FormatInt(o.TTL.Milliseconds(), 10)
	}
	pid := strconv.Itoa(os.Getpid())
	c := &Conn{
		opts: o, nc: nc, slots: make([]slot, len(keys)), in: make([]byte, inputSize),
		lockEnd: `","type":"lock","ttl":` + life + `,"rwStatus":null,"max":null,"pid":` + pid + "}\n",
		end:     `,"max":null,"pid":` + pid + `,"keepLocksAfterDeath":false}` + "\n",
	}
	for i, k := range keys {
		c.slots[i].key = k
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails, see its documentation
	x := hex.EncodeToString(random[:])
	copy(c.id[:], x[:8]+"-"+x[8:12]+"-4"+x[12:15]+"-8"+x[15:18]+"-")
	c.out = append(append(c.out, `{"type":"version","value":"`+version+`"`...), c.end...)
	return c
}

// Close closes the connection. Drop what it holds before: the npm broker takes
// long over the locks of a closed connection.
func (c *Conn) Close() error { return c.nc.Close() }

// request stamps a new id for a slot into asked.
func (c *Conn) request(s *slot, slotNumber int) {
	c.seq++
	const digits = "0123456789abcdef"
	for i, n := idSeq-1, slotNumber; i >= idSlot; i, n = i-1, n>>4 {
		c.id[i] = digits[n&15]
	}
	for i, n := idLen-1, c.seq; i >= idSeq; i, n = i-1, n>>4 {
		c.id[i] = digits[n&15]
	}
	s.asked = c.id
	c.open++
}

func (c *Conn) lock(i int, now time.Time) {
	s := &c.slots[i]
	c.request(s, i)
	s.state, s.queued, s.began = locking, false, now
	c.out = append(c.out, `{"keepLocksAfterDeath":false,"retryCount":0,"uuid":"`...)
	c.out = append(c.out, s.asked[:]...)
	c.out = append(c.out, `","key":"`...)
	c.out = append(c.out, s.key...)
	c.out = append(c.out, c.lockEnd...)
}

// tell sends a frame of a type that has nothing but an id and the key.
func (c *Conn) tell(s *slot, id *[idLen]byte, kind string) {
	c.out = append(c.out, `{"uuid":"`...)
	c.out = append(c.out, id[:]...)
	c.out = append(c.out, `","key":"`...)
	c.out = append(c.out, s.key...)
	c.out = append(c.out, `","type":"`...)
	c.out = append(c.out, kind...)
	c.out = append(c.out, '"')
	c.out = append(c.out, c.end...)
}

func (c *Conn) unlock(i int) {
	s := &c.slots[i]
	c.request(s, i)
	s.state = unlocking
	c.out = append(c.out, `{"_uuid":"`...)
	c.out = append(c.out, s.hold[:]...)
	c.out = append(c.out, `","uuid":"`...)
	c.out = append(c.out, s.asked[:]...)
	c.out = append(c.out, `","key":"`...)
	c.out = append(c.out, s.key...)
	c.out = append(c.out, `","rwStatus":null,"force":false,"type":"unlock"`...)
	c.out = append(c.out, c.end...)
	c.leaving = c.opts.Contest != nil
}

// ask asks about the lock on a slot's key: an answer proves that the broker has
// handled all that was sent before.
func (c *Conn) ask(i int) {
	s := &c.slots[i]
	c.request(s, i)
	s.state = witnessing
	c.tell(s, &s.asked, "lock-info-request")
}

// run sends what there is to send and handles what comes, until every slot has
// its answer.
func (c *Conn) run(ctx context.Context) error {
	if err := c.nc.SetDeadline(time.Now().Add(max(0, time.Until(c.until)) + patience)); err != nil {
		return fmt.Errorf("lmxload: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetDeadline(time.Unix(1, 0)) // fails only when it is closed, which ends the run as well
	})
	defer stop()
	for {
		if err := c.flush(); err != nil {
			return c.failed(ctx, err)
		}
		if c.open == 0 {
			return nil
		}
		if err := c.read(); err != nil {
			return c.failed(ctx, err)
		}
		now := time.Now()
		for {
			n := bytes.IndexByte(c.in[c.begin:c.to], '\n')
			if n < 0 {
				break
			}
			line := c.in[c.begin : c.begin+n]
			c.begin += n + 1
			if err := c.handle(line, now); err != nil {
				return err
			}
		}
	}
}

func (c *Conn) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return rounds.Wrong("%d requests of a connection are not answered within %v", c.open, patience)
	}
	return fmt.Errorf("lmxload: %w", err)
}

func (c *Conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	if c.leaving {
		c.leaving = false
		if err := c.opts.Contest.Leave(); err != nil {
			return err
		}
	}
	_, err := c.nc.Write(c.out)
	c.out = c.out[:0]
	return err
}

// read waits for more. What is there already moves to the front, so that there
// is room.
func (c *Conn) read() error {
	if c.begin > 0 {
		c.to = copy(c.in, c.in[c.begin:c.to])
		c.begin = 0
	}
	if c.to == len(c.in) {
		return rounds.Wrong("a frame of more than %d bytes", len(c.in))
	}
	n, err := c.nc.Read(c.in[c.to:])
	c.to += n
	if n > 0 {
		return nil
	}
	return err
}
