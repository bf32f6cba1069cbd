//go:build linux && amd64

package crashtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// canTrace says why a program cannot be shown another wall clock here, nothing when it can.
const canTrace = ""

// traceMain runs a program and shows it another wall clock: this process traces it, and changes what clock_gettime says
// of CLOCK_REALTIME. The arguments are the program and its own; the seconds by which its clock is off come in the
// environment first, and then as lines on standard input. All other clocks are left alone.
//
// Preloading a library, as faketime does, has no effect on a Go program, which reads the clock without libc.
func traceMain(offset string) (code int, err error) {
	var off atomic.Int64
	set := func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		off.Store(n)
		return err
	}
	if err := set(offset); err != nil {
		return 1, err
	}
	runtime.LockOSThread() // one thread is the tracer of all
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	pid := cmd.Process.Pid
	if err := begin(pid); err != nil {
		return 1, errors.Join(err, cmd.Process.Kill())
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if set(lines.Text()) == nil {
				fmt.Fprintln(os.Stderr, "stepped")
			}
		}
	}()
	threads := make(map[int]bool)
	for {
		var ws unix.WaitStatus
		tid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 1, fmt.Errorf("wait: %w", err)
		case tid == pid && (ws.Exited() || ws.Signaled()):
			return ws.ExitStatus(), nil
		case !ws.Stopped():
			continue
		}
		signal := 0
		switch s := ws.StopSignal(); {
		case s == unix.SIGTRAP|0x80:
			err = lie(tid, off.Load())
		case s == unix.SIGTRAP: // a thread was made
		case s == unix.SIGSTOP && !threads[tid]: // and this is its first stop
			threads[tid] = true
		default:
			signal = int(s)
		}
		if err == nil {
			err = unix.PtraceSyscall(tid, signal)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // a thread may be killed at any time
			return 1, fmt.Errorf("trace: %w", err)
		}
	}
}

// begin waits for the program to be loaded and takes from it the shortcut by which it would read the clock without
// asking the system.
func begin(pid int) error {
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &regs); err != nil {
		return fmt.Errorf("read registers: %w", err)
	}
	// On the stack: the number of arguments, the arguments and the environment, each ended by a zero, and then pairs.
	at := uintptr(regs.Rsp)
	word := func() uint64 {
		var b [8]byte
		if _, err := unix.PtracePeekData(pid, at, b[:]); err != nil {
			return 0
		}
		at += 8
		return binary.LittleEndian.Uint64(b[:])
	}
	word()
	for range 2 {
		for word() != 0 {
		}
	}
	const vdso, ignored = 33, 1
	for {
		kind := word()
		switch kind {
		case 0:
			return errors.New("the program was given no shortcut to the clock, or its stack is not as expected")
		case vdso:
			var b [8]byte
			binary.LittleEndian.PutUint64(b[:], ignored)
			if _, err := unix.PtracePokeData(pid, at-8, b[:]); err != nil {
				return fmt.Errorf("write to the stack: %w", err)
			}
			if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
				return fmt.Errorf("set options: %w", err)
			}
			return unix.PtraceSyscall(pid, 0)
		}
		word()
	}
}

// lie changes the answer of a call that has read the wall clock.
func lie(tid int, offset int64) error {
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &regs); err != nil {
		return err
	}
	// Before a call runs, its result reads as ENOSYS.
	if regs.Orig_rax != unix.SYS_CLOCK_GETTIME || regs.Rdi != unix.CLOCK_REALTIME || regs.Rax != 0 {
		return nil
	}
	var b [8]byte
	if _, err := unix.PtracePeekData(tid, uintptr(regs.Rsi), b[:]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(b[:], uint64(int64(binary.LittleEndian.Uint64(b[:]))+offset))
	_, err := unix.PtracePokeData(tid, uintptr(regs.Rsi), b[:])
	return err
}
