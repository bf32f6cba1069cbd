package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/cmd/latchkey/internal/child"
)

// guardCommand is what run starts beside its command; it is nothing for people.
func (a *app) guardCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "guard",
		Short:  "watch over the process group that standard input names",
		Hidden: true,
		Args:   exactly(),
		RunE:   func(*cobra.Command, []string) error { return child.Guard(a.in) },
	}
}

// gateCommand is what a command of run is until it is guarded.
func (a *app) gateCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "gate",
		Short:              "become the command that the arguments name",
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			_ = child.Gate(args[0], args[1:])
			return &statusError{status: exitError} // run tells why
		},
	}
}

// helper is how run calls one of these: this same program. Nil when the program
// cannot tell where it is.
func helper(verb string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, verb}
}
