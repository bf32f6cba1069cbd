//go:build unix

package child

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// The gate is what a command is before it is the command: a process with its id and
// in its group that waits until the guard knows both, and then becomes it. Should
// Run's process be killed or frozen meanwhile, nothing has run.
//
// It has two pipes. A byte on the first opens it, and its end without one says that
// nobody is there to guard the command. The number of an error comes back on the
// second, which is closed by becoming the command.
const (
	gateOpens = 3 // descriptor in the gate
	gateFails = 4
)

type gate struct {
	opens  *os.File // to the gate
	fails  *os.File // from the gate
	theirs [2]*os.File
}

func newGate() (*gate, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	back, report, err := os.Pipe()
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	return &gate{opens: out, fails: back, theirs: [2]*os.File{in, report}}, nil
}

// started closes the ends that the started process has.
func (g *gate) started() {
	for _, f := range g.theirs {
		f.Close()
	}
}

func (g *gate) open() {
	_, _ = g.opens.Write([]byte{1}) // a gate that is gone has its end reported
	g.opens.Close()
}

func (g *gate) close() {
	g.opens.Close()
	g.fails.Close()
}

// failure is why the gate could not become the command, once its process has ended;
// nil when it did.
func (g *gate) failure() error {
	var text [16]byte
	n, _ := g.fails.Read(text[:])
	number, err := strconv.Atoi(string(text[:n]))
	if err != nil {
		return nil
	}
	return syscall.Errno(number)
}

// Gate waits to be told that this process is guarded, and then executes a command in
// its place. It returns only if that fails.
func Gate(path string, args []string) error {
	syscall.CloseOnExec(gateOpens)
	syscall.CloseOnExec(gateFails)
	var told [1]byte
	n, err := syscall.Read(gateOpens, told[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(gateOpens, told[:])
	}
	if n != 1 {
		return errors.New("gate: nobody guards the command")
	}
	err = syscall.Exec(path, args, os.Environ())
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		_, _ = syscall.Write(gateFails, []byte(strconv.Itoa(int(number))))
	}
	return err
}
