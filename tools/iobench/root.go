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

	"github.com/binderylog/bindery/internal/usage"
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
		Use:                        "iobench",
		Short:                      "Measure what a disk can promise to a bookie",
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Args:                       refuseUnknownCommand,
		RunE:                       func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return exit(exitUsage, usage.Line(err, c.UseLine())) })
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

// refuseUnknownCommand names the nearest command there is.
func refuseUnknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("unknown command %q; `iobench --help` lists them", args[0])
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		msg = fmt.Sprintf("unknown command %q; did you mean %q?", args[0], near[0])
	}
	return exit(exitUsage, errors.New(msg))
}

// missing is the error of a command that was not given a flag that it needs.
func missing(c *cobra.Command, flag, use string) error {
	return exit(exitUsage, usage.Missing(flag, use, c.UseLine()))
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		ends = append(ends, syscall.SIGHUP) // the terminal is gone: what was measured is kept all the same
	}
	ctx, stop := signal.NotifyContext(ctx, ends...)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var e *exitError
	if !errors.As(err, &e) && usage.FromCobra(err) {
		err = exit(exitUsage, usage.Explain(err, c.Use, c.UseLine(), c.Flags().Args()))
	}
	fmt.Fprintf(stderr, "iobench: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}
