package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Exit codes. A command that run has started exits with its own.
const (
	exitOK      = 0
	exitError   = 1
	exitNotHeld = 75  // the lock could not be had: EX_TEMPFAIL of sysexits.h, "try again later"
	exitSignal  = 128 // and the signal's number
)

// The environment: what the program reads, and what run sets for its command.
const (
	envServer = "LATCHKEY_SERVER" // address of the broker
	envToken  = "LATCHKEY_TOKEN"  // fencing token of the first key
	envTokens = "LATCHKEY_TOKENS" // key=token for every key
	envKey    = "LATCHKEY_KEY"    // the first key
	envHeld   = "LATCHKEY_HELD"   // ids of the locks that the command runs under
)

const defaultServer = "127.0.0.1:6970"

// app is one invocation of the program.
type app struct {
	in   *os.File
	out  *os.File
	err  *os.File
	env  func(string) (string, bool)
	look style // of standard output
	con  *console

	server string
	json   bool
}

func newApp(in, out, err *os.File, env func(string) (string, bool)) *app {
	return &app{in: in, out: out, err: err, env: env, look: styleOf(out, env),
		con: &console{out: err, width: terminalWidth(err)}}
}

// statusError ends the program with a status. With a nil cause nothing is
// printed: what there was to say has been said.
type statusError struct {
	status int
	cause  error
}

func (e *statusError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("status %d", e.status)
	}
	return e.cause.Error()
}

func (e *statusError) Unwrap() error { return e.cause }

// run executes the verb that args name and returns the exit status.
func (a *app) run(args []string) int {
	root := a.root()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	status := exitError
	if e, ok := errors.AsType[*statusError](err); ok {
		status = e.status
		if e.cause == nil {
			return status
		}
	}
	a.tellError(err)
	return status
}

// tellError prints one line for people, or the failure as the protocol has it.
func (a *app) tellError(err error) {
	if a.json {
		frame := wire.Failure(0, "", err)
		ofMap, isOfMap := errors.AsType[*mapError](err)
		switch { // errors of this side have no code, and their text leaks nothing
		case isOfMap:
			frame.Code, frame.Reason = ofMap.code, ofMap.text
		case errors.Is(err, errNoBroker):
			frame.Code, frame.Reason = lease.ErrUnavailable, err.Error()
		case frame.Code == lease.ErrInternal:
			frame.Code, frame.Reason = lease.ErrRefused, err.Error()
		}
		_ = a.frame(&frame) // there is nowhere else to say it
		return
	}
	a.con.line("%v", err)
}

// frame prints one object of the native protocol, which is what --json means.
func (a *app) frame(r *wire.Reply) error {
	_, err := a.out.Write(wire.AppendReply(nil, r))
	return err
}

// notef prints one line for people beside the output.
func (a *app) notef(format string, args ...any) {
	a.con.line(format, args...)
}

// root is the command line. Errors are printed by run, in one line.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "latchkey",
		Short: "Locks with leases and fencing tokens, between processes and machines",
		Long: `Locks with leases and fencing tokens, between processes and machines.

  latchkey serve                        start a broker
  latchkey run deploy -- make deploy    run a command under a lock
  latchkey ls                           who holds what, and who waits`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("there is no verb %q; `latchkey help` lists them", args[0])
			}
			return cmd.Help()
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("latchkey {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%s; see `%s --help`", flagProblem(err), cmd.CommandPath())
	})
	server := defaultServer
	if s, ok := a.env(envServer); ok && s != "" {
		server = s
	}
	root.PersistentFlags().StringVar(&a.server, "server", server,
		"address of the broker, host:port or unix:/path; default from $"+envServer)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, one object a line, as in the native protocol")
	root.AddCommand(a.serveCommand(), a.runCommand(), a.lockCommand(), a.unlockCommand(), a.renewCommand(),
		a.listCommand(), a.showCommand(), a.watchCommand(), a.forceCommand(), a.statusCommand(), a.mapCommand(), a.simCommand(), a.guardCommand(), a.gateCommand())
	return root
}

// flagProblem says in words of people what the parsing of numbers says in those of
// programs.
func flagProblem(err error) string {
	x, ok := errors.AsType[*strconv.NumError](err)
	if before, _, found := strings.Cut(err.Error(), "time: "); found {
		return before + "not a duration such as 30s or 5m"
	}
	switch {
	case !ok:
		return err.Error()
	case x.Func == "ParseBool":
		return strings.Replace(err.Error(), x.Error(), "neither true nor false", 1)
	case errors.Is(x, strconv.ErrRange):
		return strings.Replace(err.Error(), x.Error(), "too large a number", 1)
	case x.Func == "ParseUint":
		return strings.Replace(err.Error(), x.Error(), "not a whole number from 0", 1)
	}
	return strings.Replace(err.Error(), x.Error(), "not a whole number", 1)
}

// exactly checks the number of arguments and says what is missing by name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing; see `%s --help`", names[len(args)], cmd.CommandPath())
		case len(args) > len(names):
			return fmt.Errorf("%q is one argument too many; see `%s --help`", args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}

// atMostOne allows one optional argument.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("%q is one argument too many; see `%s --help`", args[1], cmd.CommandPath())
	}
	return nil
}

// interruption is a signal that asked the program to end.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string { return i.signal.String() }

func (i interruption) status() int {
	if s, ok := i.signal.(syscall.Signal); ok {
		return exitSignal + int(s)
	}
	return exitError
}

// interrupts turns the signals that ask a program to end into the end of a
// context. What was ignored by whoever started this program stays ignored.
type interrupts struct {
	signals chan os.Signal
	cancel  context.CancelCauseFunc
	quit    chan struct{}
	stopped chan struct{}
}

// interruptible returns a context that ends, with an interruption as its cause,
// on those signals.
func interruptible() (context.Context, *interrupts) {
	ctx, cancel := context.WithCancelCause(context.Background())
	i := &interrupts{make(chan os.Signal, 16), cancel, make(chan struct{}), make(chan struct{})}
	for _, s := range endSignals {
		if !signal.Ignored(s) {
			signal.Notify(i.signals, s)
		}
	}
	go i.watch()
	return ctx, i
}

func (i *interrupts) watch() {
	defer close(i.stopped)
	select {
	case s := <-i.signals:
		i.cancel(interruption{s})
	case <-i.quit:
	}
}

// end gives the signals their default meaning back.
func (i *interrupts) end() {
	signal.Stop(i.handOver())
}

// handOver ends the watch. Signals that come from now on, and those that the
// context has not ended for, are in the channel.
func (i *interrupts) handOver() chan os.Signal {
	close(i.quit)
	<-i.stopped
	return i.signals
}

// interrupted turns the error of a call whose context an interruption ended into
// the status that says so; any other is left alone.
func interrupted(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if i, ok := errors.AsType[interruption](context.Cause(ctx)); ok {
		return &statusError{status: i.status()}
	}
	return err
}

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// oneLine keeps a message on one line and free of whatever a terminal obeys
// instead of showing it, whoever is quoted in it.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, strings.TrimSpace(s))
}

// writeAll is for output that is made as a whole.
func (a *app) writeAll(s string) error {
	_, err := a.out.WriteString(s)
	return err
}

// styled is how text may look on a file.
func (a *app) styled(f *os.File) style { return styleOf(f, a.env) }
