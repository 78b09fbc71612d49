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

// version is set at build time.
var version = "dev"

const (
	exitFailed  = 1
	exitUsage   = 2
	exitRefused = 3
	exitPartial = 4
)

// exitError gives an error its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exit(code int, err error) error { return &exitError{code, err} }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "iobench",
		Short:         "Measure what a disk can promise to a bookie",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit(exitUsage, err) })
	root.AddCommand(chapterCommands()...)
	root.AddCommand(newQuickCommand(), newFullCommand(), newSoakCommand(), newRawCommand(), newLiveCommand(), newVerifyCommand(), newReportCommand(), newCompareCommand(), newApplyCommand(), newCollectCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "iobench", version)
			return err
		},
	})
	return root
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "iobench: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	for _, start := range []string{"unknown command", "accepts ", "requires "} {
		if strings.HasPrefix(err.Error(), start) {
			return exitUsage
		}
	}
	return exitFailed
}
