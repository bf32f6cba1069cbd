package lmxload

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// version is that of the client whose frames are sent.
const version = "0.2.25"

const (
	window    = 64               // requests in flight at most, where there are more keys
	patience  = 20 * time.Second // within which something must come
	glance    = 100 * time.Millisecond
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
	fd      int
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
func Dial(addr string, keys []string, o Options) (*Conn, error) {
	if len(keys) == 0 || len(keys) > maxSlots || o.Contest != nil && len(keys) != 1 {
		return nil, fmt.Errorf("lmxload: %d keys for one connection", len(keys))
	}
	to, err := netip.ParseAddrPort(addr)
	if err != nil || !to.Addr().Is4() {
		return nil, fmt.Errorf("lmxload: %q is not an IPv4 address with a port", addr)
	}
	fd, err := connect(&unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err != nil {
		return nil, fmt.Errorf("lmxload: connect to %s: %w", addr, err)
	}
	return newConn(fd, keys, o), nil
}

// connect makes a socket that the runtime knows nothing of: its poller would wake
// threads, on the cores that the broker needs, for what drive waits for anyway.
func connect(to unix.Sockaddr) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	err = unix.Connect(fd, to)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, err
	}
	return fd, nil
}

func newConn(fd int, keys []string, o Options) *Conn {
	life := "null"
	if o.TTL > 0 {
		life = strconv.FormatInt(o.TTL.Milliseconds(), 10)
	}
	pid := strconv.Itoa(os.Getpid())
	c := &Conn{
		opts: o, fd: fd, slots: make([]slot, len(keys)), in: make([]byte, inputSize),
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
func (c *Conn) Close() error { return unix.Close(c.fd) }

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

// arrived reads what is there and handles it. Nothing is sent yet.
func (c *Conn) arrived(now time.Time) error {
	if err := c.read(); err != nil {
		return err
	}
	for {
		n := bytes.IndexByte(c.in[c.begin:c.to], '\n')
		if n < 0 {
			return nil
		}
		line := c.in[c.begin : c.begin+n]
		c.begin += n + 1
		if err := c.handle(line, now); err != nil {
			return err
		}
	}
}

// read reads once. What is there already moves to the front, so that there is
// room.
func (c *Conn) read() error {
	if c.begin > 0 {
		c.to = copy(c.in, c.in[c.begin:c.to])
		c.begin = 0
	}
	if c.to == len(c.in) {
		return rounds.Wrong("a frame of more than %d bytes", len(c.in))
	}
	n, err := unix.Read(c.fd, c.in[c.to:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil:
		return fmt.Errorf("lmxload: read: %w", err)
	case n == 0:
		return errors.New("lmxload: the broker closed a connection")
	}
	c.to += n
	return nil
}

// flush sends what there is to send. The broker reads, so there is no point in
// doing something else while it cannot be sent.
func (c *Conn) flush() error {
	if c.leaving {
		c.leaving = false
		if err := c.opts.Contest.Leave(); err != nil {
			return err
		}
	}
	for out := c.out; len(out) > 0; {
		n, err := unix.Write(c.fd, out)
		switch {
		case err == nil:
			out = out[n:]
		case err == unix.EAGAIN:
			if n, err = unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, int(patience.Milliseconds())); n == 0 && err == nil {
				return rounds.Wrong("the broker has read nothing for %v", patience)
			}
		case err != unix.EINTR:
			return fmt.Errorf("lmxload: write: %w", err)
		}
	}
	c.out = c.out[:0]
	return nil
}
