package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/proctest"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// A broker is a latchkey serve that can be killed, frozen and started again at its address.
type broker struct {
	addr    string
	args    []string
	process *proctest.Process
	log     *os.File
	sight   *leaseremote.Service // looks at it without a session
}

// startBroker starts a broker at a free port, with what serve is given besides.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "broker.log"))
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{addr: freeAddress(t), log: log}
	b.args = append([]string{bin.broker, "serve", "--listen", b.addr, "--http", ""}, args...)
	t.Cleanup(func() {
		if err := b.process.Kill(); err != nil {
			t.Error(err)
		}
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the broker said:\n%s", text)
		}
		log.Close()
	})
	b.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.sight, err = leaseremote.Dial(ctx, b.addr, leaseremote.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.sight.Close() })
	return b
}

// durable are the arguments of a broker that remembers.
func durable(t *testing.T) []string { return []string{"--data", t.TempDir()} }

// start starts the process and returns when it can be reached.
func (b *broker) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(b.args[0], b.args[1:]...)
	cmd.Stdout, cmd.Stderr = b.log, b.log
	var err error
	if b.process, err = proctest.Start(cmd); err != nil {
		t.Fatal(err)
	}
	err = until(patience, "the broker listens", func() (bool, error) {
		if !b.process.Running() {
			return false, fmt.Errorf("the broker has ended: %v", b.process.State())
		}
		conn, err := net.DialTimeout("tcp", b.addr, time.Second)
		if err != nil {
			return false, nil
		}
		return true, conn.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// freeAddress finds a port below those that the kernel gives to outgoing connections: a client that connects again and
// again to one of these would now and then be connected to itself, and keep the broker from coming back.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(20_000+rand.IntN(10_000)))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// until polls a condition of another process until it holds.
func until(limit time.Duration, what string, holds func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := holds()
		if err != nil || ok {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", limit, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// key looks at one key.
func (b *broker) key(name string) (lease.KeyInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := b.sight.List(ctx, lease.Query{Key: name})
	if err != nil || len(l.Keys) == 0 {
		return lease.KeyInfo{}, err
	}
	return l.Keys[0], nil
}

func (b *broker) stats() (lease.Stats, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return b.sight.Stats(ctx)
}

// waiting waits until so many requests wait for a key, and the last of them at least so long.
func (b *broker) waiting(name string, n int, age time.Duration) error {
	return until(patience, fmt.Sprintf("%d wait for %s", n, name), func() (bool, error) {
		k, err := b.key(name)
		return err == nil && k.Waiting == n && (n == 0 || len(k.Waiters) > 0 && k.Waiters[len(k.Waiters)-1].Age >= age), err
	})
}

// idle waits until nothing is held or awaited, and no more than so many sessions are there.
func (b *broker) idle(limit time.Duration, sessions int) error {
	var last lease.Stats
	err := until(limit, "nothing is left at the broker", func() (bool, error) {
		var err error
		last, err = b.stats()
		return last.Holds == 0 && last.Waiters == 0 && last.Sessions <= sessions, err
	})
	if err != nil {
		return fmt.Errorf("%w: %d holds, %d waiters, %d sessions", err, last.Holds, last.Waiters, last.Sessions)
	}
	return nil
}
