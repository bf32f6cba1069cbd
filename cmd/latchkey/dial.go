package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// How long a broker may take to accept a connection, to answer a question, and
// to take leave. Waiting for a lock is not bounded by any of them.
const (
	dialTime   = 5 * time.Second
	answerTime = 10 * time.Second
	leaveTime  = 3 * time.Second
)

// errNoBroker says that nothing answers at the address.
var errNoBroker = errors.New("no broker")

// dial reaches the broker.
func (a *app) dial(ctx context.Context) (*leaseremote.Service, error) {
	if path, ok := strings.CutPrefix(a.server, "unix:"); ok {
		if err := checkSocketPath("unix:", path); err != nil {
			return nil, err
		}
	}
	svc, err := leaseremote.Dial(ctx, a.server, leaseremote.Options{DialTimeout: dialTime, Logger: slog.New(lines{a.con})})
	switch {
	case err == nil:
		return svc, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case lease.CodeOf(err) == lease.ErrUnavailable:
		return nil, a.noBroker(err)
	case lease.CodeOf(err) == lease.ErrRefused:
		return nil, fmt.Errorf("%w; set --server or $%s", err, envServer)
	case lease.CodeOf(err) == lease.ErrProtocol:
		return nil, fmt.Errorf("%s: %w; set --server or $%s", a.server, err, envServer)
	}
	return nil, err
}

func (a *app) noBroker(err error) error {
	switch {
	case isRefused(err):
		return fmt.Errorf("%w at %s: start one with `latchkey serve`, or set %s", errNoBroker, a.server, envServer)
	case isTimeout(err):
		return fmt.Errorf("%w at %s answers within %v: look whether it is stopped or overloaded, or set %s",
			errNoBroker, a.server, dialTime, envServer)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w at %s lets this user in: %s; a unix socket is for the user who runs the broker",
			errNoBroker, a.server, dialReason(err))
	}
	return fmt.Errorf("%w at %s: %s: start one with `latchkey serve`, or set %s", errNoBroker, a.server, dialReason(err), envServer)
}

// dialReason strips the operation and address, which the message has already.
func dialReason(err error) string {
	if x, ok := errors.AsType[*net.OpError](err); ok {
		err = x.Err
	}
	if x, ok := errors.AsType[*os.SyscallError](err); ok {
		err = x.Err
	}
	return err.Error()
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// unreached says which broker it is that does not serve, whether it answered so or
// was lost since it was dialled: the error has that.
func (a *app) unreached(err error) error {
	if code := lease.CodeOf(err); code == lease.ErrUnavailable || code == lease.ErrServiceGone {
		return fmt.Errorf("broker %s: %w", a.server, err)
	}
	return err
}

// ask runs a question to the broker that needs no session.
func (a *app) ask(question func(ctx context.Context, svc lease.Service) error) error {
	ctx, stop := interruptible()
	defer stop.end()
	svc, err := a.dial(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer svc.Close()
	short, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return interrupted(ctx, a.unreached(question(short, svc)))
}

// command runs one command on a lock that some session holds.
func (a *app) command(do func(ctx context.Context, c *lease.Client) error) error {
	return a.ask(func(ctx context.Context, svc lease.Service) error {
		c, err := lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: a.sessionOptions()})
		if err != nil {
			return err
		}
		defer a.leave(c)
		return do(ctx, c)
	})
}

// leave ends a client's session. That it could not be said goodbye to is no
// error of a verb that has its answer: the session then ends with its grace.
func (a *app) leave(c *lease.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	_ = c.Close(ctx)
}

// sessionOptions name this process to the people who look at the broker.
func (a *app) sessionOptions() lease.SessionOptions {
	host, err := os.Hostname()
	if err != nil {
		host = "" // shown only
	}
	return lease.SessionOptions{Name: fit(a.userName()), Host: fit(host), PID: os.Getpid()}
}

func (a *app) userName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	for _, name := range []string{"USER", "USERNAME"} {
		if v, ok := a.env(name); ok && v != "" {
			return v
		}
	}
	return "unknown"
}

// fit makes text that this program chose itself acceptable as a label.
func fit(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > lease.MaxLabelLength {
		s = strings.ToValidUTF8(s[:lease.MaxLabelLength], "")
	}
	return s
}

// logger writes to standard error, warnings and worse unless verbose.
func (a *app) logger(verbose bool) *slog.Logger {
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}
