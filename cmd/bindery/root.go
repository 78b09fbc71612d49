package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// newRootCommand builds the command tree. A new subcommand is one line here and one file.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "bindery",
		Short: "A distributed log store: Apache BookKeeper's job and protocol in one static binary",
		Long: "bindery runs bookies that keep what they acknowledged, and the tools to write, read, inspect and\n" +
			"measure the ledgers on them. `bindery standalone` starts a whole cluster on one machine.",
		Args:                       refuseUnknownSubcommand,
		Version:                    buildVersion().String(),
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return exit(usageCode(c), fmt.Errorf("%w (see `%s --help`)", err, c.CommandPath()))
	})
	root.AddCommand(
		newBenchCommand(),
		newClusterCommand(),
		newConfigCommand(),
		newCookieCommand(),
		newEntrylogCommand(),
		newGCCommand(),
		newIndexCommand(),
		newJournalCommand(),
		newLedgerCommand(),
		newOffloadCommand(),
		newNodeCommand(),
		newRecoveryCommand(),
		newRunCommand(),
		newStandaloneCommand(),
		newStatusCommand(),
		newVersionCommand(),
	)
	return root
}

// refuseUnknownSubcommand turns a mistyped command word into a usage error that names the nearest one.
func refuseUnknownSubcommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		msg += fmt.Sprintf("; did you mean %q?", near[0])
	}
	return exit(exitUsage, errors.New(msg))
}

// group makes a command that only holds subcommands: called bare it prints its help, called with an unknown word it
// fails as a usage error.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:                        use,
		Short:                      short,
		Args:                       refuseUnknownSubcommand,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(subs...)
	return c
}

// execute runs one command line and returns the process's exit code. A first SIGINT or SIGTERM cancels the context that
// commands get, a second one ends the process at once.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the next signal is not caught any more
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	err = usageError(c, err)
	var e *exitError
	if errors.As(err, &e) && e.err == nil {
		return e.code // the command has said on its own what there was to say
	}
	fmt.Fprintf(stderr, "bindery: %s\n", oneLine(err))
	return exitCode(err)
}

// oneLine folds an error into a single line: logs, scripts and people read errors line by line.
func oneLine(err error) string {
	fields := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(fields, "; ")
}
