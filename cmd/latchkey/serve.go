package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/httpserve"
	"github.com/latchkey-go/latchkey/internal/lmx"
	"github.com/latchkey-go/latchkey/internal/tally"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// How long an orderly end may take before it becomes a disorderly one, and how
// long clients get of it to take their answers.
const (
	shutdownTime = 10 * time.Second
	farewellTime = 3 * time.Second
)

type serveOptions struct {
	listen     string
	unix       string
	http       string
	httpHosts  []string
	data       string
	fsync      string
	tokenFloor uint64
	insecure   bool
	verbose    bool
}

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "start a broker",
		Long: `Start a broker and run it until SIGTERM or SIGINT; a second signal ends it at once.

Without --data it keeps everything in memory: when it ends every lock is
forgotten, and tokens start from the clock. With --data grants survive a restart
and tokens never go back.`,
		Example: `  latchkey serve
  latchkey serve --data /var/lib/latchkey --unix /run/latchkey.sock`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, value := range map[string]string{"data": o.data, "unix": o.unix} {
				if value == "" && cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s is empty: give a path, or leave it out", name)
				}
			}
			if cmd.Flags().Changed("fsync") && o.data == "" {
				return errors.New("--fsync says when the directory is synced: it needs --data")
			}
			if err := o.check(); err != nil {
				return err
			}
			return a.serve(o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:6970", `address for clients, port 0 for any; "" for none`)
	f.StringVar(&o.unix, "unix", "", "path of a unix socket for clients of this user")
	f.StringVar(&o.http, "http", "127.0.0.1:6971", `address of the HTTP API, metrics and status page; "" for none`)
	f.StringArrayVar(&o.httpHosts, "http-host", nil, "`name` under which HTTP may be reached besides loopback; repeatable")
	f.StringVar(&o.data, "data", "", "directory that keeps locks and tokens over a restart")
	f.StringVar(&o.fsync, "fsync", "always", "when the directory is synced: always, before each answer; interval, every 100ms; or never")
	f.Uint64Var(&o.tokenFloor, "token-floor", 0, "make every token greater than this; for a directory restored from a backup")
	f.BoolVar(&o.insecure, "insecure", false, "allow addresses beyond loopback, where anyone may take and force locks")
	f.BoolVar(&o.verbose, "verbose", false, "log more")
	return cmd
}

// check refuses what cannot be meant.
func (o *serveOptions) check() error {
	if o.listen == "" && o.unix == "" && o.http == "" {
		return errors.New("there is nothing to listen on: give --listen, --unix or --http")
	}
	if err := checkSocketPath("--unix ", o.unix); err != nil {
		return err
	}
	if lease.Token(o.tokenFloor) >= lease.MaxToken {
		return fmt.Errorf("--token-floor %d is not a token: they are below %d", o.tokenFloor, lease.MaxToken)
	}
	for _, h := range o.httpHosts {
		if net.ParseIP(strings.Trim(h, "[]")) == nil && (h == "" || strings.ContainsAny(h, "/:*, \t")) {
			return fmt.Errorf("--http-host %q is not the name of a host, without scheme and port", h)
		}
	}
	for _, l := range []struct{ flag, address string }{{"--listen", o.listen}, {"--http", o.http}} {
		if l.address == "" {
			continue
		}
		host, _, err := net.SplitHostPort(l.address)
		if err != nil {
			return fmt.Errorf("%s %q is not host:port", l.flag, l.address)
		}
		if !o.insecure && !isLoopback(host) {
			return fmt.Errorf("%s %s can be reached from other machines, and there is no access control yet: "+
				"anyone there could take and force locks; listen on 127.0.0.1, or add --insecure if the network is trusted",
				l.flag, l.address)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// broker is a running serve.
type broker struct {
	svc       *leaselocal.Service
	lmx       *lmx.Server
	tcp       *tcpserve.Server
	http      *httpserve.Server // nil without an HTTP listener
	listeners []listener
	log       *slog.Logger
}

func (a *app) serve(o serveOptions) error {
	signals := make(chan os.Signal, 2)
	for _, s := range endSignals {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	b := &broker{log: a.logger(o.verbose)}
	// The listeners come first: a port that is taken is found before a journal
	// is read, and what connects meanwhile waits.
	if err := b.listen(o); err != nil {
		b.closeListeners()
		return err
	}
	if err := a.open(b, o); err != nil {
		b.closeListeners()
		return err
	}
	failed := make(chan error, len(b.listeners))
	for _, l := range b.listeners {
		go func() { failed <- l.serve(b) }()
	}
	a.announce(b, o)
	select {
	case <-signals:
		return b.shutdown(signals)
	case err := <-failed:
		return errors.Join(err, b.shutdown(signals))
	}
}

// open makes what the listeners lead to.
func (a *app) open(b *broker, o serveOptions) error {
	policy, err := leaselocal.ParseFsync(o.fsync)
	if err != nil {
		return err
	}
	if o.data != "" && a.styled(a.err).width > 0 {
		long := time.AfterFunc(time.Second, func() { a.notef("reading %s …", o.data) })
		defer long.Stop()
	}
	b.svc, err = leaselocal.Open(leaselocal.Options{
		Dir: o.data, Fsync: policy, TokenFloor: lease.Token(o.tokenFloor), Logger: b.log,
	})
	if err != nil {
		return err
	}
	b.lmx = lmx.New(b.svc, b.log)
	b.tcp = tcpserve.New(b.svc, tcpserve.Options{
		Version: version(), Logger: b.log,
		Dialect: func(p *tcpserve.Peer) tcpserve.Handler { return b.lmx.Open(p) },
	})
	if o.http == "" {
		return nil
	}
	rows := b.rows(o)
	b.http, err = httpserve.New(b.svc, httpserve.Options{
		Version: version(), Logger: b.log, Hosts: o.allowedHosts(), More: func() []httpserve.Row { return rows },
		Dialect: func() tally.Extra { return b.lmx.Counts().Extra() },
	})
	if err != nil {
		return errors.Join(err, b.svc.Close())
	}
	return nil
}

// allowedHosts are the names that HTTP requests may use: those given, and the
// address that was asked for.
func (o *serveOptions) allowedHosts() []string {
	hosts := o.httpHosts
	if host, _, err := net.SplitHostPort(o.http); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	return hosts
}

// rows are what the status page shows of this process.
func (b *broker) rows(o serveOptions) []httpserve.Row {
	var rows []httpserve.Row
	for _, l := range b.listeners {
		rows = append(rows, httpserve.Row{Name: "listens on " + l.kind, Value: l.address})
	}
	data := o.data
	if data == "" {
		data = "none: memory only"
	}
	return append(rows, httpserve.Row{Name: "directory", Value: data},
		httpserve.Row{Name: "process", Value: "pid " + strconv.Itoa(os.Getpid())})
}

// announce prints what listens where, and how much the broker remembers.
func (a *app) announce(b *broker, o serveOptions) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	st, err := b.svc.Stats(ctx)
	if err != nil {
		st.Durability, st.Fencing = "unknown", "unknown"
	}
	if a.json {
		a.announceJSON(b, st)
		return
	}
	memory := "memory only, everything is forgotten at the end; --data DIR keeps it"
	if o.data != "" {
		memory = fmt.Sprintf("%s, fsync %s", o.data, st.Durability)
	}
	text := ""
	for _, l := range b.listeners {
		text += fmt.Sprintf("%-8s %s\n", l.kind, l.address)
	}
	text += fmt.Sprintf("%-8s %s (fencing: %s)\n", "data", memory, st.Fencing)
	if st.Recovering > 0 {
		text += fmt.Sprintf("%-8s nothing is granted for %s: the last end was unclean, and leases may have been forgotten\n",
			"wait", span(st.Recovering))
	}
	_ = a.writeAll(text)
}

// shutdown ends the broker in order: nothing new is taken, those that wait are
// answered, everything is synced, and then the connections are closed.
func (b *broker) shutdown(signals <-chan os.Signal) error {
	done := make(chan struct{})
	defer close(done)
	go b.hurry(signals, done)
	b.closeListeners()
	ctx, cancel := context.WithTimeout(context.Background(), farewellTime)
	defer cancel()
	ended := make(chan error, 2)
	go func() { ended <- b.tcp.Shutdown(ctx) }()
	go func() { ended <- b.closeHTTP() }()
	// This is what answers the requests that wait, so the two above can end.
	err := b.svc.Close()
	for range cap(ended) {
		select {
		case e := <-ended:
			if e != nil {
				b.log.Info("a client did not take its last answer", "error", e)
			}
		case <-ctx.Done():
			b.log.Info("a client kept its connection busy until the end")
		}
	}
	if err != nil {
		return fmt.Errorf("close the broker: %w", err)
	}
	return nil
}

func (b *broker) closeHTTP() error {
	if b.http == nil {
		return nil
	}
	return b.http.Close()
}

// hurry ends the process at once on another signal, or when the orderly end
// takes too long.
func (b *broker) hurry(signals <-chan os.Signal, done <-chan struct{}) {
	limit := time.NewTimer(shutdownTime)
	defer limit.Stop()
	select {
	case <-done:
	case s := <-signals:
		os.Exit(interruption{s}.status())
	case <-limit.C:
		b.log.Error("the end took too long", "limit", shutdownTime)
		os.Exit(exitError)
	}
}
