//go:build unix

// Command catalog shows a shop of several processes in front of one PostgreSQL. Each process shows pages of products
// through a cache whose items are in two Redis, keeps what it has read in its memory, and changes prices. One more
// process is killed between its commit and the cache.
//
//	DATABASE_URL=postgres://… go run ./examples/catalog
//
// It makes tables whose names begin with latchkey_example_catalog and drops them in the end. It exits with 1 when a page
// shows a price older than one whose change had finished before the page was begun, whichever process made it.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/examples/internal/process"
	"github.com/latchkey-go/latchkey/examples/internal/redisserver"
)

const (
	shops    = 3
	opening  = 4 * time.Second  // how long they show pages
	patience = 60 * time.Second // how long all of it may take
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var err error
	switch {
	case os.Getenv("DATABASE_URL") == "":
		err = errors.New("DATABASE_URL is not set: give the address of a PostgreSQL database to play with")
	case len(os.Args) == 2 && os.Args[1] == "shop":
		err = shop(ctx)
	case len(os.Args) == 2 && os.Args[1] == "doomed":
		err = doomed(ctx)
	default:
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "catalog:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "latchkey-catalog")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	env := []string{envBoard + "=" + filepath.Join(dir, "board"), envNamespace + "=" + rand.Text()}
	for _, name := range envNodes {
		server, err := redisserver.Start(ctx)
		if err != nil {
			return err
		}
		defer server.Stop()
		env = append(env, name+"="+server.URL)
	}
	drop, err := prepare(ctx)
	if err != nil {
		return err
	}
	defer drop()
	var open []*process.Process
	for range shops {
		p, err := process.Start(ctx, env, "shop")
		if err != nil {
			return err
		}
		defer p.Stop()
		open = append(open, p)
	}
	for _, p := range open {
		if err := says(p, "open"); err != nil {
			return err
		}
	}
	if err := killOne(ctx, env, open); err != nil {
		return err
	}
	return sumUp(open)
}

// prepare makes the tables, and returns what drops them.
func prepare(ctx context.Context) (drop func(), err error) {
	db, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(ctx, `create table latchkey_example_catalog (
			id      bigint primary key,
			name    text   not null,
			price   bigint not null, -- always what priceOf makes of the id and the version, so that readers can check it
			version bigint not null  -- rises with each change of the row
		);
		insert into latchkey_example_catalog select id, 'product ' || id, id * 1000000 + 1, 1 from generate_series(1, 200) id`)
	if err == nil {
		err = box.Create(ctx, db)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return func() {
		_, _ = db.Exec(context.WithoutCancel(ctx), `drop table latchkey_example_catalog, `+string(box))
		db.Close()
	}, nil
}

// killOne has a process change a price, and kills it before it can tell the cache. The relays of the shops do.
func killOne(ctx context.Context, env []string, open []*process.Process) error {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	p, err := process.Start(ctx, env, "doomed")
	if err != nil {
		return err
	}
	err = says(p, "has committed")
	kill()
	_ = p.Stop() // it was killed
	if err != nil {
		return err
	}
	fmt.Println("a process was killed between its commit and the cache")
	for _, p := range open {
		if err := says(p, "heard of the dead"); err != nil {
			return err
		}
	}
	fmt.Println("all shops show its price")
	return nil
}

// says waits for the next line of a process.
func says(p *process.Process, want string) error {
	line, err := p.Line()
	if err == nil && line != want {
		err = fmt.Errorf("a process says %q, want %q", line, want)
	}
	return err
}

// sumUp hears what the shops have counted.
func sumUp(open []*process.Process) error {
	var all report
	for _, p := range open {
		line, err := p.Line()
		if err != nil {
			return err
		}
		r, err := parseReport(line)
		if err != nil {
			return err
		}
		all = all.plus(r)
	}
	fmt.Printf("%d reads on %d pages: %d from memory, %d from copies of hot keys, %d loads; %d changes of prices\n",
		all.Reads, all.Pages, all.Memory, all.Copies, all.Loads, all.Changes)
	switch {
	case all.Stale > 0:
		return fmt.Errorf("%d prices were older than a change that had finished", all.Stale)
	case all.Pages == 0 || all.Changes == 0 || all.Memory == 0 || all.Hot == 0:
		return fmt.Errorf("that proves little: %+v", all)
	}
	fmt.Println("no page showed a price older than the last finished change")
	return nil
}
