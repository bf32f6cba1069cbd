//go:build linux

package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// Of two brokers on one directory the second refuses with one clear line, whatever its address, and the first does not
// notice. When the first is killed the directory is free at once.
func TestTwoBrokersOnOneDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := startBroker(t, "--data", dir)
	client := connect(t, b)
	held, err := client.Hold(t.Context(), lease.Request{Keys: []string{"k"}, TTL: lease.Forever})
	if err != nil {
		t.Fatal(err)
	}
	second := exec.Command(os.Getenv(envProgram), "serve", "--listen", "127.0.0.1:0", "--http", "", "--data", dir)
	out, err := second.CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), dir) || !strings.Contains(string(out), "in use") {
		t.Errorf("the second broker: %v, and it says %q; want one line that the directory is in use", err, out)
	}
	if held.Err() != nil {
		t.Errorf("the first broker's client has lost its lease: %v", held.Err())
	}
	b.kill()
	b.start()
	if err := held.Release(t.Context()); err != nil {
		t.Errorf("release after the restart: %v", err)
	}
}

// connect makes a client of this process.
func connect(t *testing.T, b *broker) *lease.Client {
	t.Helper()
	svc := b.dial()
	c, err := lease.Connect(t.Context(), svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: t.Name(), Grace: lease.MaxGrace}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil && lease.CodeOf(err) != lease.ErrUnavailable {
			t.Error(err)
		}
		svc.Close()
	})
	return c
}

const envDisk = "LATCHKEY_CRASHTEST_DISK"

// The disk runs full under load: the broker grants nothing more and says why, what was on its way is unknown, and after
// space is made and a restart everything that it had acknowledged is there.
//
// The disk is a small one in memory, mounted where only a process of this test sees it.
func TestFullDisk(t *testing.T) {
	if os.Getenv(envDisk) != "" {
		mount(t, os.Getenv(envDisk))
		fillDisk(t, os.Getenv(envDisk))
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), envDisk+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINVAL):
		t.Skipf("this system does not let the test mount a small disk: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Logf("in a namespace of its own the test says:\n%s", out)
		t.Skip("this system does not let the test mount a small disk")
	}
	t.Logf("%s", out)
}

// The small disk has room for two segments of the journal, and beside the ballast only for one.
const (
	diskSize    = "44m"
	ballastSize = 20 << 20
)

func mount(t *testing.T, dir string) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		t.Skipf("this system does not let the test mount a small disk: %v", err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+diskSize); err != nil {
		t.Skipf("this system does not let the test mount a small disk: %v", err)
	}
}

func fillDisk(t *testing.T, disk string) {
	b := startBroker(t, "--data", filepath.Join(disk, "data"))
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, ballastSize), 0o600); err != nil {
		t.Fatal(err)
	}
	granted, unknown := loadUntilFull(t, b)
	if unknown == 0 {
		t.Error("no request was on its way when the disk was full: that proves little")
	}
	refusedAndSaid(t, b)

	// It does not start either while there is no space, and says so.
	b.kill()
	out, err := exec.Command(os.Getenv(envProgram), b.args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no space left on device") {
		t.Errorf("a start on a full disk: %v, and it says %s", err, out)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	b.start()
	allThere(t, b, granted, unknown)

	// And it works again.
	c := connect(t, b)
	if err := c.Do(t.Context(), lease.Request{Keys: []string{"again"}}, func(context.Context, *lease.Held) error { return nil }); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

// allThere looks for one key of every lease, and counts the others.
func allThere(t *testing.T, b *broker, granted []lease.Lease, unknown int) {
	t.Helper()
	svc := b.dial()
	defer svc.Close()
	for _, l := range granted {
		want := l.Holds[0]
		got, err := svc.List(t.Context(), lease.Query{Key: want.Key})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Keys) != 1 || len(got.Keys[0].Holders) != 1 || got.Keys[0].Holders[0].Token != want.Token {
			t.Fatalf("%s was acknowledged with token %d, and the broker has %+v", l.ID, want.Token, got.Keys)
		}
	}
	st, err := svc.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := st.Holds / lease.MaxKeys; st.Holds%lease.MaxKeys != 0 || n < len(granted) || n > len(granted)+unknown {
		t.Errorf("%d keys are held after the restart; %d leases of %d keys were acknowledged, %d unknown", st.Holds, len(granted), lease.MaxKeys, unknown)
	}
	t.Logf("%d leases acknowledged, %d unknown; %d keys held after the restart", len(granted), unknown, st.Holds)
}

// loadUntilFull takes long leases with much text until one is not granted any more.
func loadUntilFull(t *testing.T, b *broker) (granted []lease.Lease, unknown int) {
	t.Helper()
	const callers = 16
	var mu sync.Mutex // guards the results
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			svc, err := leaseremote.Dial(t.Context(), b.addr, leaseremote.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			// It is not closed in order: its leases are to be there in the end.
			c, err := lease.Connect(t.Context(), svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{Grace: lease.MaxGrace}})
			if err != nil {
				t.Error(err)
				return
			}
			for n := 0; ; n++ {
				l, err := c.Acquire(t.Context(), bulky(i, n))
				if err != nil {
					again, err := c.Acquire(t.Context(), lease.Request{Keys: []string{"after"}})
					if lease.CodeOf(err) != lease.ErrUnavailable || !strings.Contains(err.Error(), "no space left on device") {
						t.Errorf("a request after the disk was full: %v, %v; want %s with the reason", again, err, lease.ErrUnavailable)
					}
				}
				mu.Lock()
				if err == nil {
					granted = append(granted, l)
				} else if lease.CodeOf(err) == lease.ErrUnknown {
					unknown++
				} else if lease.CodeOf(err) != lease.ErrUnavailable {
					t.Errorf("on a full disk a request failed with %v", err)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				if n == 1000 {
					t.Error("the disk does not run full")
					return
				}
			}
		})
	}
	group.Wait()
	return granted, unknown
}

// bulky is a request of nearly a whole frame.
func bulky(caller, n int) lease.Request {
	r := lease.Request{TTL: lease.Forever, Detach: true, Label: strings.Repeat("l", lease.MaxLabelLength)}
	for k := range lease.MaxKeys {
		name := fmt.Sprintf("%d/%d/%d/", caller, n, k)
		r.Keys = append(r.Keys, name+strings.Repeat("k", lease.MaxKeyLength-len(name)))
	}
	return r
}

// refusedAndSaid checks what a caller, the statistics and the log say of a full disk.
func refusedAndSaid(t *testing.T, b *broker) {
	t.Helper()
	svc := b.dial()
	defer svc.Close()
	_, err := lease.Connect(t.Context(), svc, lease.ClientOptions{})
	for _, want := range []string{"no space left on device", "restart"} {
		if lease.CodeOf(err) != lease.ErrUnavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("a new session on a full disk: %v; want %s, and %q in it", err, lease.ErrUnavailable, want)
		}
	}
	st, err := svc.Stats(t.Context())
	if err != nil || !strings.Contains(st.Failed, "no space left on device") {
		t.Errorf("the statistics say %q, %v; want the reason", st.Failed, err)
	}
	if !strings.Contains(b.said(), "no space left on device") {
		t.Errorf("the log does not say why:\n%s", b.said())
	}
}
