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

// guardCommandLine is how run calls it: this same program. Nil when the program
// cannot tell where it is.
func guardCommandLine() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, "guard"}
}
