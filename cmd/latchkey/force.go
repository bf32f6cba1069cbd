package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

type forceOptions struct {
	token  uint64
	reason string
	yes    bool
}

func (a *app) forceCommand() *cobra.Command {
	var o forceOptions
	cmd := &cobra.Command{
		Use:   "force KEY",
		Short: "take a lock away from whoever holds it",
		Long: `End every hold of a key, or the one with --token, against its holder's will. The
holder is told at once, and a run kills its command; but a holder that is frozen
or cut off goes on until it notices. The token printed is above all that were
ended: give it to what the lock protects to shut them out now.`,
		Args: exactly("KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := lease.CheckKey(args[0]); err != nil {
				return err
			}
			if lease.Token(o.token) >= lease.MaxToken {
				return fmt.Errorf("--token %d is not a token: they are below %d", o.token, lease.MaxToken)
			}
			return a.force(args[0], o)
		},
	}
	cmd.Flags().Uint64Var(&o.token, "token", 0, "only the hold with this token")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why, for the holder and the log")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) force(key string, o forceOptions) error {
	if !o.yes {
		sure, err := a.confirm(key, o)
		if err != nil || !sure {
			return err
		}
	}
	return a.ask(func(ctx context.Context, svc lease.Service) error {
		s := a.sessionOptions()
		f, err := svc.Force(ctx, lease.ForceRequest{Key: key, Token: lease.Token(o.token),
			By: fit(s.Name + "@" + s.Host), Reason: o.reason})
		if lease.CodeOf(err) == lease.ErrNotHeld {
			return fmt.Errorf("%w; `latchkey show %s` tells who holds it now", err, plain(key))
		}
		if err != nil {
			return err
		}
		if a.json {
			frame := wire.ForceDone(0, &f)
			return a.frame(&frame)
		}
		return a.writeAll(fmt.Sprintf("ended %s of %s\ntoken  %d\n",
			count(len(f.Holds), "hold", "holds"), plain(key), f.Token))
	})
}

// confirm shows who would lose the lock, and asks. Where nobody can be asked,
// --yes must have been given.
func (a *app) confirm(key string, o forceOptions) (bool, error) {
	if err := a.canAsk("force"); err != nil {
		return false, err
	}
	var holders []lease.Holder
	err := a.ask(func(ctx context.Context, svc lease.Service) error {
		l, err := svc.List(ctx, lease.Query{Key: key})
		if err != nil || len(l.Keys) == 0 {
			return err
		}
		for _, h := range l.Keys[0].Holders {
			if o.token == 0 || h.Token == lease.Token(o.token) {
				holders = append(holders, h)
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if len(holders) == 0 {
		return false, &lease.Error{Code: lease.ErrNotHeld, Op: "force", Key: key, Reason: "nobody holds it, or not with that token"}
	}
	for _, h := range holders {
		fmt.Fprintf(a.err, "%s  token %d, held for %s\n", who(h.Party), h.Token, span(h.Since.Truncate(time.Millisecond)))
	}
	return a.sure(fmt.Sprintf("Take %s away? The holder may be in the middle of its work.", plain(key)), "not forced")
}

// canAsk refuses to ask where nobody can answer.
func (a *app) canAsk(verb string) error {
	if a.styled(a.in).width == 0 || a.styled(a.err).width == 0 {
		return fmt.Errorf("%s asks before it acts, and there is no terminal to ask on: add --yes", verb)
	}
	return nil
}

// sure asks a question whose answer is yes or no, and says so when it was no.
func (a *app) sure(question, not string) (bool, error) {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && answer == "" {
		fmt.Fprintln(a.err)
		return false, &statusError{exitError, errors.New(not + ": no answer")}
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, &statusError{exitError, errors.New(not)}
}
