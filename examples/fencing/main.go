//go:build unix

// Command fencing shows the one case that no lock service can cover alone, and how a token covers it. A process takes a
// lease, reads a row of PostgreSQL and works out a new value. Then it is frozen, as a virtual machine may be, until its
// lease has run out and another process has had the lease and written. It wakes up and writes what it had worked out.
// The row remembers the highest token that wrote it, so the late write changes nothing, and the process learns that it
// has lost its lease.
//
//	DATABASE_URL=postgres://… go run ./examples/fencing
//
// It makes a table latchkey_example_accounts and drops it in the end. It exits with 1 when the late write got through.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/examples/internal/broker"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

const (
	key = "account/alice"
	ttl = time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch {
	case os.Getenv("DATABASE_URL") == "":
		err = errors.New("DATABASE_URL is not set: give the address of a PostgreSQL database to play with")
	case len(os.Args) == 4 && os.Args[1] == "teller":
		err = teller(ctx, os.Args[2], os.Args[3])
	default:
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

// errFenced says that the row has been written under a higher token.
var errFenced = errors.New("the row was written under a higher token")

// account is a row of the table.
type account struct {
	balance int
	by      string
	token   lease.Token
}

func load(ctx context.Context, db *pgx.Conn) (a account, err error) {
	err = db.QueryRow(ctx, `select balance, written_by, last_token from latchkey_example_accounts where name = 'alice'`).
		Scan(&a.balance, &a.by, &a.token)
	return a, err
}

// save is the guarded write: the other half of a fencing token. It is one statement, so nothing can come between the
// look at the token and the write.
func save(ctx context.Context, db *pgx.Conn, a account) error {
	done, err := db.Exec(ctx, `update latchkey_example_accounts set balance = $1, written_by = $2, last_token = $3
		where name = 'alice' and last_token <= $3`, a.balance, a.by, a.token)
	if err == nil && done.RowsAffected() == 0 {
		err = errFenced
	}
	return err
}

// teller pays 100 into the account, under a lease. It says on standard output what it does, and thinks, between reading
// and writing, until it gets a line on standard input.
func teller(ctx context.Context, name, addr string) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	svc, err := leaseremote.Dial(ctx, addr, leaseremote.Options{})
	if err != nil {
		return err
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: name, PID: os.Getpid(), Grace: ttl}})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))

	err = client.Do(ctx, lease.Request{Keys: []string{key}, TTL: ttl}, func(ctx context.Context, h *lease.Held) error {
		a, err := load(ctx, db)
		if err != nil {
			return err
		}
		a = account{balance: a.balance + 100, by: name, token: h.Token()}
		if err := h.Err(); err != nil {
			return err
		}
		fmt.Println("thinks")
		bufio.NewReader(os.Stdin).ReadString('\n')
		// Were it awake, the end of ctx would have kept it from writing. But a process can be frozen at any
		// instant, also behind the last look at ctx; such a write is on its way, and no context stops it.
		return save(context.WithoutCancel(ctx), db, a)
	})
	switch {
	case err == nil:
		fmt.Println("wrote")
	case errors.Is(err, errFenced):
		fmt.Println("refused")
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	// errors.Is finds both in one error: what the function said, and how the lease was lost.
	lost := errors.Is(err, lease.ErrExpired) || errors.Is(err, lease.ErrSessionLost) || errors.Is(err, lease.ErrServiceGone)
	if errors.Is(err, errFenced) && lost {
		fmt.Println("knows")
		return nil
	}
	return err
}

func run(ctx context.Context) error {
	db, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	if err := prepare(ctx, db); err != nil {
		return err
	}
	defer db.Exec(context.WithoutCancel(ctx), `drop table latchkey_example_accounts`)
	b, err := broker.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()

	old, err := startTeller(ctx, "old", b.Addr)
	if err != nil {
		return err
	}
	defer old.end()
	if err := old.says("thinks"); err != nil {
		return err
	}
	fmt.Println("the old holder has read the row and is frozen")
	if err := old.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// The next one waits in the queue until the lease of the frozen one has run out.
	next, err := startTeller(ctx, "next", b.Addr)
	if err != nil {
		return err
	}
	defer next.end()
	if err := next.writes(); err != nil {
		return err
	}
	written, err := load(ctx, db)
	if err != nil {
		return err
	}
	fmt.Printf("the next holder wrote: the balance is %d, by %s\n", written.balance, written.by)

	fmt.Println("the old holder wakes up, and its write goes out")
	if err := old.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := old.isRefused(); err != nil {
		return err
	}
	after, err := load(ctx, db)
	if err != nil {
		return err
	}
	if after != written || written != (account{200, "next", written.token}) {
		return fmt.Errorf("the row was %+v before the late write and %+v after it; want 200, by next, both times", written, after)
	}
	fmt.Println("it was refused, the row is as the next holder left it, and the old holder knows that its lease is lost")
	return nil
}

func prepare(ctx context.Context, db *pgx.Conn) error {
	_, err := db.Exec(ctx, `create table latchkey_example_accounts (
		name       text   primary key,
		balance    bigint not null,
		written_by text   not null,
		last_token bigint not null -- the highest token that ever wrote the row
	)`)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, `insert into latchkey_example_accounts values ('alice', 100, 'the bank', 0)`)
	return err
}

// process is a teller that runs.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
}

func startTeller(ctx context.Context, name, addr string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "teller", name, addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{name, cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

// says waits for the next line of a teller.
func (p *process) says(want string) error {
	if !p.out.Scan() {
		return fmt.Errorf("%s ended before it said %q", p.name, want)
	}
	if got := p.out.Text(); got != want {
		return fmt.Errorf("%s said %q, want %q", p.name, got, want)
	}
	return nil
}

// goOn ends the thinking.
func (p *process) goOn() error {
	_, err := fmt.Fprintln(p.in)
	return err
}

// writes sees a teller through to a write that is taken.
func (p *process) writes() error {
	return errors.Join(p.says("thinks"), p.goOn(), p.says("wrote"), p.cmd.Wait())
}

// isRefused sees one through to a write that is refused, and to the insight that its lease is lost.
func (p *process) isRefused() error {
	return errors.Join(p.goOn(), p.says("refused"), p.says("knows"), p.cmd.Wait())
}

// end kills a teller that still runs, also a frozen one.
func (p *process) end() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}
